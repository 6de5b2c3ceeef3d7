//! What replies say besides their return value.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::Ipv6Addr;

use super::memclnt::ModuleVersion;
use super::{Reply, RetvalPlace};
use crate::types::{AddressFamily, InterfaceIndex, IpRoute, MacAddress};
use crate::wire::{FixedText, VarText};

replies! {
    /// Nothing: it is done.
    Done {}

    /// Who answers.
    Pid {
        /// VPP puts its own index here: ignore it.
        client_index: u32,
        /// The process id of VPP. It changes when VPP restarts, unless each VPP has a process
        /// namespace of its own.
        vpe_pid: u32,
    }

    /// The versions of API files.
    ApiVersions { [u32: api_versions] api_versions: Vec<ModuleVersion> }

    /// Definitions.
    ApiJson { json: VarText }

    /// What runs.
    Version {
        program: FixedText<32>,
        version: FixedText<32>,
        build_date: FixedText<32>,
        build_directory: FixedText<256>,
    }

    /// The output of a command.
    CliOutput { reply: VarText }

    /// An interface, most often a new one.
    Interface { sw_if_index: InterfaceIndex }

    /// A link-layer address.
    Mac { mac_address: MacAddress }

    /// A bridge domain's number.
    BridgeDomain { bd_id: u32 }

    /// The table of an interface.
    VrfId { vrf_id: u32 }

    /// Where the stats segment counts it.
    StatsIndex { stats_index: u32 }

    /// A route.
    Route { route: IpRoute }

    /// An IPv6 address.
    Ip6Address { ip: Ipv6Addr }

    /// Limits of reassembly.
    Reassembly {
        timeout_ms: u32,
        max_reassemblies: u32,
        max_reassembly_length: u32,
        expire_walk_interval_ms: u32,
        is_ip6: bool,
    }

    /// Limits of learned neighbours.
    NeighborConfig {
        af: AddressFamily,
        max_number: u32,
        max_age: u32,
        /// Whether the oldest gives way to a new one.
        recycle: bool,
    }

    /// Where to go on. With [`crate::Retval::EAGAIN`] there is more.
    Cursor { cursor: u32 }

    /// The number of a socket file.
    SocketId { socket_id: u32 }

    /// The number of a policer.
    PolicerIndex { policer_index: u32 }

    /// Whether a feature is on.
    FeatureState { is_enabled: bool }

    /// A new classifier table.
    NewClassifyTable {
        new_table_index: u32,
        skip_n_vectors: u32,
        match_n_vectors: u32,
    }

    /// Classifier tables.
    ClassifyTableIds { [u32: ids] ids: Vec<u32> }

    /// The classifier tables of an interface.
    InterfaceClassifyTables {
        sw_if_index: InterfaceIndex,
        l2_table_id: u32,
        ip4_table_id: u32,
        ip6_table_id: u32,
    }

    /// A classifier table.
    ClassifyTable {
        table_id: u32,
        nbuckets: u32,
        match_n_vectors: u32,
        skip_n_vectors: u32,
        active_sessions: u32,
        next_table_index: u32,
        miss_next_index: u32,
        [u32: mask] mask: Vec<u8>,
    }

    /// The path of a socket.
    Pathname { pathname: FixedText<108> }
}

wire_structs! {
    /// The number of an access list.
    AclIndex { acl_index: u32 }

    /// The version of the ACL plugin.
    AclVersion { major: u32, minor: u32 }

    /// How many sessions the ACL plugin keeps.
    AclConnections { conn_table_max_entries: u64 }
}

/// Unlike all others, the return value comes last.
impl Reply for AclIndex {
    const RETVAL: RetvalPlace = RetvalPlace::Last;
}

impl Reply for AclVersion {
    const RETVAL: RetvalPlace = RetvalPlace::Absent;
}

impl Reply for AclConnections {
    const RETVAL: RetvalPlace = RetvalPlace::Absent;
}
