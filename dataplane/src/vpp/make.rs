//! VPP's part of a port: made in an order in which nothing forwards before all of it is there.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use causeway_types::{GATEWAY, MacAddress, SandboxUid};
use ipnet::Ipv6Net;
use vpp_config::Retval;
use vpp_config::messages::attach::{
    AfPacketCreateV3, AfPacketDelete, AfPacketFlags, CreateVhostUserIfV2, DeleteVhostUserIf,
    MemifCreateV2, MemifDelete, MemifDump, MemifRole, MemifSocketFilenameAddDelV2,
    MemifSocketFilenameDump,
};
use vpp_config::messages::classify::{ClassifyAddDelSession, ClassifyAddDelTable};
use vpp_config::messages::feature::FeatureEnableDisable;
use vpp_config::messages::interface::{
    SwInterfaceSetFlags, SwInterfaceSetMtu, SwInterfaceTagAddDel,
};
use vpp_config::messages::l2::{
    BridgeDomainAddDelV2, ClassifySetInterfaceL2Tables, SwInterfaceSetL2Bridge,
};
use vpp_config::messages::neighbor::IpNeighborAddDel;
use vpp_config::types::{
    IfStatusFlags, InterfaceIndex, InterfaceMtu, IpNeighbor, IpNeighborFlags, MacAddress as VppMac,
};
use vpp_config::wire::VarText;

use super::classify::{self, BLOCKS, ETHERNET, TO_ROUTING, Table};
use super::facts::{Facts, Inlet, Tag, border_link};
use super::routes;
use super::session::{self, Vpp, failed, refusal, text};
use crate::backend::BackendError;

/// The most that a sandbox's or the router's stack hands over at once. A packet ring has a
/// place of fixed size for each packet, so that this decides how much memory a port takes.
pub(super) const SEGMENTS: u32 = 16_000;
/// A place in a packet ring: five pages, for the above with its headers. VPP does not look whether
/// what it puts into one fits. What came out of one does, since VPP drops what the kernel cut.
const PLACE: u32 = 20_480;
/// A place for what a guest sends that shares memory with VPP: for the 65,535 bytes that an
/// interface can send, with headers.
const LARGE_PLACE: u32 = 69_632;
/// Places in each ring.
const PLACES: u32 = 64;
/// What a classifier table takes from the system for its few entries.
const TABLE_MEMORY: u32 = 1 << 16;

/// VPP's part of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) inlet: InterfaceIndex,
    pub(super) border: InterfaceIndex,
    pub(super) bridge: u32,
    /// The head of the classifier's chain, and its second table; `u32::MAX` is none.
    pub(super) tables: [u32; 2],
}

impl Port {
    /// What has to go when the port does.
    pub(super) fn remains(&self, facts: &Facts) -> Remains {
        let (name, memif) = match &facts.inlet {
            Inlet::Host(name) => (format!("host-{name}"), None),
            Inlet::VhostUser(_) => ("VirtualEthernet".to_owned(), None),
            Inlet::Memif(path) => (
                "memif".to_owned(),
                Some(path.to_string_lossy().into_owned()),
            ),
        };
        let border = format!("host-{}", border_link(facts.uid));
        Remains {
            interfaces: vec![(self.inlet, name), (self.border, border)],
            bridges: vec![self.bridge],
            tables: self.tables.to_vec(),
            routes: vec![(facts.address, self.border)],
            memif,
        }
    }
}

/// Makes VPP's part of a port. What it leaves on failure is found by name and tag.
pub(super) async fn make(
    vpp: &Vpp,
    facts: &Facts,
    operator: &[Ipv6Net],
) -> Result<Port, BackendError> {
    let turn = vpp.turn().await;
    let inlet = inlet(vpp, facts).await?;
    let place = if facts.inlet.is_shared_memory() {
        LARGE_PLACE
    } else {
        PLACE
    };
    let border = af_packet(vpp, &border_link(facts.uid), facts.mac, place).await?;
    vpp.soften().await;
    drop(turn);
    tag(vpp, border, Tag::Border(facts.uid)).await?;
    let bridge = bridge(vpp, facts.uid, [inlet, border]).await?;
    // What the classifier takes out of the bridge goes to routing, on an interface that needs
    // no address and no neighbour discovery of its own.
    let routed = FeatureEnableDisable {
        sw_if_index: inlet,
        enable: false,
        arc_name: text("ip6-unicast"),
        feature_name: text("ip6-not-enabled"),
    };
    vpp.call("route what comes from a sandbox", &routed).await?;
    neighbour(vpp, inlet, facts.address, facts.mac, true).await?;
    neighbour(vpp, border, GATEWAY, MacAddress::GATEWAY, true).await?;
    routes::to_border(vpp, facts.address, border, true).await?;
    let tables = match classify::tables(facts.address, operator) {
        Some(tables) => classifier(vpp, &tables).await?,
        None => [u32::MAX; 2],
    };
    for index in [inlet, border] {
        let mtu = SwInterfaceSetMtu {
            sw_if_index: index,
            mtu: InterfaceMtu {
                l3: facts.mtu,
                ..InterfaceMtu::default()
            },
        };
        vpp.call("set an MTU", &mtu).await?;
        let up = SwInterfaceSetFlags {
            sw_if_index: index,
            flags: IfStatusFlags::ADMIN_UP,
        };
        vpp.call("set an interface up", &up).await?;
    }
    tag(vpp, inlet, Tag::Port(facts.uid, tables)).await?;
    Ok(Port {
        inlet,
        border,
        bridge,
        tables,
    })
}

async fn inlet(vpp: &Vpp, facts: &Facts) -> Result<InterfaceIndex, BackendError> {
    match &facts.inlet {
        Inlet::Host(name) => af_packet(vpp, name, MacAddress::GATEWAY, PLACE).await,
        Inlet::VhostUser(socket) => vhost_user(vpp, facts, socket).await,
        Inlet::Memif(socket) => memif(vpp, socket).await,
    }
}

/// Attaches an interface of the host, with places of this size for what is sent. One that was
/// attached before, by an attempt that ended too early, is attached anew.
async fn af_packet(
    vpp: &Vpp,
    name: &str,
    mac: MacAddress,
    place: u32,
) -> Result<InterfaceIndex, BackendError> {
    let create = AfPacketCreateV3 {
        hw_addr: vpp_mac(mac),
        host_if_name: text(name),
        rx_frame_size: PLACE,
        tx_frame_size: place,
        rx_frames_per_block: PLACES,
        tx_frames_per_block: PLACES,
        flags: AfPacketFlags::CKSUM_GSO | AfPacketFlags::VERSION_2,
        ..AfPacketCreateV3::default()
    };
    let operation = "attach an interface of the host";
    match vpp.try_call(&create).await {
        Ok(made) => Ok(made.sw_if_index),
        Err(error) if refusal(&error) == Some(Retval::IF_ALREADY_EXISTS) => {
            let delete = AfPacketDelete {
                host_if_name: text(name),
            };
            vpp.call("detach an interface of the host", &delete).await?;
            Ok(vpp.call(operation, &create).await?.sw_if_index)
        }
        Err(error) => Err(failed(operation)(error)),
    }
}

async fn vhost_user(
    vpp: &Vpp,
    facts: &Facts,
    socket: &Path,
) -> Result<InterfaceIndex, BackendError> {
    if !session::offers_vhost_user(vpp) {
        return Err(BackendError::VppLacks {
            plugin: "vhost_plugin.so",
            used_for: "a vhost-user attachment",
        });
    }
    let create = CreateVhostUserIfV2 {
        is_server: true,
        sock_filename: text(&socket.to_string_lossy()),
        use_custom_mac: true,
        mac_address: vpp_mac(MacAddress::GATEWAY),
        tag: text(&Tag::Port(facts.uid, [u32::MAX; 2]).text()),
        ..CreateVhostUserIfV2::default()
    };
    let made = vpp.call("make a vhost-user interface", &create).await?;
    // The tag says that a port is whole, which it is not yet.
    untag(vpp, made.sw_if_index).await?;
    Ok(made.sw_if_index)
}

/// VPP listens on the socket, and has one interface there.
async fn memif(vpp: &Vpp, socket: &Path) -> Result<InterfaceIndex, BackendError> {
    if !session::offers_memif(vpp) {
        return Err(BackendError::VppLacks {
            plugin: "memif_plugin.so",
            used_for: "a memif attachment",
        });
    }
    let path = socket.to_string_lossy();
    remove_memifs(vpp, &path).await?;
    let named = MemifSocketFilenameAddDelV2 {
        is_add: true,
        socket_filename: VarText::new(&path),
        ..MemifSocketFilenameAddDelV2::default()
    };
    let socket_id = vpp.call("name a memif socket", &named).await?.socket_id;
    let create = MemifCreateV2 {
        role: MemifRole::Master,
        socket_id,
        hw_addr: vpp_mac(MacAddress::GATEWAY),
        ..MemifCreateV2::default()
    };
    let made = vpp.try_call(&create).await;
    match made {
        Ok(made) => Ok(made.sw_if_index),
        Err(error) => {
            remove_memifs(vpp, &path).await?;
            Err(failed("make a memif")(error))
        }
    }
}

/// Removes what there is on a memif socket, and the socket.
async fn remove_memifs(vpp: &Vpp, path: &str) -> Result<(), BackendError> {
    let sockets = MemifSocketFilenameDump::default();
    for socket in vpp.dump("list its memif sockets", &sockets).await? {
        if socket.socket_filename.to_str() != path {
            continue;
        }
        for memif in vpp.dump("list its memifs", &MemifDump::default()).await? {
            if memif.socket_id == socket.socket_id {
                let delete = MemifDelete {
                    sw_if_index: memif.sw_if_index,
                };
                vpp.call("delete a memif", &delete).await?;
            }
        }
        let forget = MemifSocketFilenameAddDelV2 {
            is_add: false,
            socket_id: socket.socket_id,
            ..MemifSocketFilenameAddDelV2::default()
        };
        vpp.call("forget a memif socket", &forget).await?;
    }
    Ok(())
}

async fn bridge(
    vpp: &Vpp,
    uid: SandboxUid,
    members: [InterfaceIndex; 2],
) -> Result<u32, BackendError> {
    // Of two members each gets what the other sends: there is nothing to learn.
    let create = BridgeDomainAddDelV2 {
        flood: true,
        uu_flood: true,
        bd_tag: text(&Tag::Bridge(uid).text()),
        ..BridgeDomainAddDelV2::default()
    };
    let bridge = vpp.call("make a bridge", &create).await?.bd_id;
    for member in members {
        let join = SwInterfaceSetL2Bridge {
            rx_sw_if_index: member,
            bd_id: bridge,
            ..SwInterfaceSetL2Bridge::default()
        };
        vpp.call("put an interface into a bridge", &join).await?;
    }
    Ok(bridge)
}

async fn neighbour(
    vpp: &Vpp,
    on: InterfaceIndex,
    address: Ipv6Addr,
    mac: MacAddress,
    is_add: bool,
) -> Result<(), BackendError> {
    let request = IpNeighborAddDel {
        is_add,
        neighbor: IpNeighbor {
            sw_if_index: on,
            flags: IpNeighborFlags::STATIC | IpNeighborFlags::NO_FIB_ENTRY,
            mac_address: vpp_mac(mac),
            ip_address: IpAddr::V6(address),
        },
    };
    vpp.call("fix a neighbour", &request).await.map(drop)
}

async fn classifier(vpp: &Vpp, tables: &[Table; 2]) -> Result<[u32; 2], BackendError> {
    let [first, second] = tables;
    let second = table(vpp, second, u32::MAX).await?;
    let first = table(vpp, first, second).await?;
    Ok([first, second])
}

async fn table(vpp: &Vpp, table: &Table, next: u32) -> Result<u32, BackendError> {
    let create = ClassifyAddDelTable {
        is_add: true,
        memory_size: TABLE_MEMORY,
        match_n_vectors: BLOCKS,
        next_table_index: next,
        mask: table.mask.to_vec(),
        ..ClassifyAddDelTable::default()
    };
    let index = vpp
        .call("make a classifier", &create)
        .await?
        .new_table_index;
    for bytes in &table.matches {
        let entry = ClassifyAddDelSession {
            is_add: true,
            table_index: index,
            hit_next_index: TO_ROUTING,
            advance: ETHERNET,
            r#match: bytes.to_vec(),
            ..ClassifyAddDelSession::default()
        };
        vpp.call("fill a classifier", &entry).await?;
    }
    Ok(index)
}

/// Lets the classifier take packets of a port out of its bridge, or none.
pub(super) async fn classify(
    vpp: &Vpp,
    inlet: InterfaceIndex,
    table: Option<u32>,
) -> Result<(), BackendError> {
    let request = ClassifySetInterfaceL2Tables {
        sw_if_index: inlet,
        ip6_table_index: table.unwrap_or(u32::MAX),
        ..ClassifySetInterfaceL2Tables::default()
    };
    vpp.call("switch a classifier", &request).await.map(drop)
}

async fn tag(vpp: &Vpp, index: InterfaceIndex, tag: Tag) -> Result<(), BackendError> {
    let request = SwInterfaceTagAddDel {
        is_add: true,
        sw_if_index: index,
        tag: text(&tag.text()),
    };
    vpp.call("tag an interface", &request).await.map(drop)
}

async fn untag(vpp: &Vpp, index: InterfaceIndex) -> Result<(), BackendError> {
    let request = SwInterfaceTagAddDel {
        is_add: false,
        sw_if_index: index,
        ..SwInterfaceTagAddDel::default()
    };
    vpp.call("untag an interface", &request).await.map(drop)
}

/// What there may be of a port in VPP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// Interfaces, each with its name in VPP.
    pub(super) interfaces: Vec<(InterfaceIndex, String)>,
    pub(super) bridges: Vec<u32>,
    pub(super) tables: Vec<u32>,
    /// Routes to the border.
    pub(super) routes: Vec<(Ipv6Addr, InterfaceIndex)>,
    /// The memif socket, if that is how the sandbox is attached.
    pub(super) memif: Option<String>,
}

impl Remains {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Takes away what there is of a port, whatever it is.
pub(super) async fn remove(vpp: &Vpp, remains: &Remains) -> Result<(), BackendError> {
    const GONE: &[Retval] = &[
        Retval::INVALID_SW_IF_INDEX,
        Retval::INVALID_INTERFACE,
        Retval::NO_SUCH_ENTRY,
        Retval::NO_SUCH_TABLE,
    ];
    for (index, _) in &remains.interfaces {
        let down = SwInterfaceSetFlags {
            sw_if_index: *index,
            ..SwInterfaceSetFlags::default()
        };
        let operation = "set an interface down";
        vpp.call_unless(operation, &down, GONE).await?;
        let off = ClassifySetInterfaceL2Tables {
            sw_if_index: *index,
            ..ClassifySetInterfaceL2Tables::default()
        };
        vpp.call_unless("switch a classifier", &off, GONE).await?;
    }
    for (address, index) in &remains.routes {
        routes::to_border(vpp, *address, *index, false).await?;
    }
    if let Some(path) = &remains.memif {
        remove_memifs(vpp, path).await?;
    }
    for (index, name) in &remains.interfaces {
        let operation = "delete an interface";
        if let Some(host) = name.strip_prefix("host-") {
            let delete = AfPacketDelete {
                host_if_name: text(host),
            };
            vpp.call_unless(operation, &delete, GONE).await?;
        } else if name.starts_with("VirtualEthernet") {
            let delete = DeleteVhostUserIf {
                sw_if_index: *index,
            };
            vpp.call_unless(operation, &delete, GONE).await?;
        } else if name.starts_with("memif") {
            let delete = MemifDelete {
                sw_if_index: *index,
            };
            vpp.call_unless(operation, &delete, GONE).await?;
        }
    }
    for bridge in &remains.bridges {
        let delete = BridgeDomainAddDelV2 {
            bd_id: *bridge,
            is_add: false,
            ..BridgeDomainAddDelV2::default()
        };
        vpp.call_unless("delete a bridge", &delete, GONE).await?;
    }
    for table in remains.tables.iter().filter(|table| **table != u32::MAX) {
        let delete = ClassifyAddDelTable {
            is_add: false,
            table_index: *table,
            match_n_vectors: BLOCKS,
            mask: vec![0; 16 * BLOCKS as usize],
            ..ClassifyAddDelTable::default()
        };
        vpp.call_unless("delete a classifier", &delete, GONE)
            .await?;
    }
    Ok(())
}

fn vpp_mac(mac: MacAddress) -> VppMac {
    VppMac(mac.octets())
}
