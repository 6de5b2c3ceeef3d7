//! Interfaces that sandboxes are attached by.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

use super::reply::{Done, Interface, SocketId};
use crate::types::{IfStatusFlags, InterfaceIndex, MacAddress, Prefix4, Prefix6};
use crate::wire::{FixedText, VarText};

wire_enums! {
    /// What an `af_packet` interface carries.
    AfPacketMode: u32 {
        /// Frames.
        Ethernet = 1,
        /// Packets.
        Ip = 2,
    }

    /// Which end of a memif an interface is.
    MemifRole: u32 {
        /// The one that listens and owns the socket.
        Master = 0,
        /// The one that connects and owns the memory.
        Slave = 1,
    }

    /// What a memif carries.
    MemifMode: u32 {
        /// Frames.
        Ethernet = 0,
        /// Packets.
        Ip = 1,
        /// Packets to and from VPP's punt path.
        PuntInject = 2,
    }
}

wire_flags! {
    /// How an `af_packet` interface works.
    AfPacketFlags: u32 {
        /// Sends past the queueing discipline of the host.
        QDISC_BYPASS = 1,
        /// Leaves checksums and segmentation to the host.
        CKSUM_GSO = 2,
        /// The second version of the ring.
        VERSION_2 = 8,
    }

    /// How a tap works.
    TapFlags: u32 {
        /// Takes packets larger than the MTU.
        GSO = 1,
        /// Leaves checksums to the other end.
        CSUM_OFFLOAD = 2,
        /// The host's device stays when VPP goes.
        PERSIST = 4,
        /// Takes a device that exists.
        ATTACH = 8,
        /// Packets, not frames.
        TUN = 16,
        /// Joins packets of one flow.
        GRO_COALESCE = 32,
        /// Packed rings.
        PACKED = 64,
        /// Buffers in order.
        IN_ORDER = 128,
        /// The same number of queues both ways.
        CONSISTENT_QP = 256,
    }

    /// Features that a vhost-user interface and its peer agree on, the first 32.
    VirtioFeaturesFirst32: u32 {
        /// Checksums towards the host.
        CSUM = 1,
        /// Checksums towards the guest.
        GUEST_CSUM = 2,
        /// TCP over IPv4 segments towards the guest.
        GUEST_TSO4 = 128,
        /// TCP over IPv6 segments towards the guest.
        GUEST_TSO6 = 256,
        /// TCP over IPv4 segments towards the host.
        HOST_TSO4 = 2048,
        /// TCP over IPv6 segments towards the host.
        HOST_TSO6 = 4096,
        /// Packets over several buffers.
        MRG_RXBUF = 32768,
        /// Several queues.
        MQ = 4_194_304,
        /// Indirect descriptors.
        INDIRECT_DESC = 268_435_456,
        /// The vhost-user protocol's own features.
        PROTOCOL_FEATURES = 1_073_741_824,
    }

    /// The features after these.
    VirtioFeaturesLast32: u32 {
        /// Virtio 1.
        VERSION_1 = 1,
    }
}

requests! {
    /// Attaches an interface of the host, such as one end of a veth pair.
    AfPacketCreateV3("af_packet_create_v3", 0xb3a809d4) {
        mode: AfPacketMode = AfPacketMode::Ethernet,
        hw_addr: MacAddress,
        use_random_hw_addr: bool,
        host_if_name: FixedText<64>,
        /// Zero is VPP's choice, here and below.
        rx_frame_size: u32,
        tx_frame_size: u32,
        rx_frames_per_block: u32,
        tx_frames_per_block: u32,
        flags: AfPacketFlags,
        num_rx_queues: u16 = 1,
        num_tx_queues: u16 = 1,
    } -> Interface = 0x5383d31f;

    /// Detaches it.
    AfPacketDelete("af_packet_delete", 0x863fa648) {
        host_if_name: FixedText<64>,
    } -> Done = 0xe8d4e804;

    /// Makes a tap. Some releases crash when `host_namespace` is given without `host_if_name`:
    /// give both.
    TapCreateV3("tap_create_v3", 0x3f3fd1df) {
        /// VPP's own number for it; by default the next.
        id: u32 = u32::MAX,
        use_random_mac: bool = true,
        mac_address: MacAddress,
        num_rx_queues: u16 = 1,
        num_tx_queues: u16 = 1,
        tx_ring_sz: u16 = 256,
        rx_ring_sz: u16 = 256,
        host_mtu_set: bool,
        host_mtu_size: u32,
        host_mac_addr_set: bool,
        host_mac_addr: MacAddress,
        host_ip4_prefix_set: bool,
        host_ip4_prefix: Prefix4,
        host_ip6_prefix_set: bool,
        host_ip6_prefix: Prefix6,
        host_ip4_gw_set: bool,
        host_ip4_gw: Ipv4Addr,
        host_ip6_gw_set: bool,
        host_ip6_gw: Ipv6Addr,
        tap_flags: TapFlags,
        host_namespace_set: bool,
        /// A name, an absolute path, or `pid:` and a process id.
        host_namespace: FixedText<64>,
        host_if_name_set: bool,
        host_if_name: FixedText<64>,
        host_bridge_set: bool,
        host_bridge: FixedText<64>,
        tag: VarText,
    } -> Interface = 0x5383d31f;

    /// Deletes a tap.
    TapDeleteV2("tap_delete_v2", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Done = 0xe8d4e804;

    /// Makes a vhost-user interface.
    CreateVhostUserIfV2("create_vhost_user_if_v2", 0xdba1cc1d) {
        /// VPP listens, and the virtual machine connects.
        is_server: bool,
        sock_filename: FixedText<256>,
        /// Whether `custom_dev_instance` is given.
        renumber: bool,
        disable_mrg_rxbuf: bool,
        disable_indirect_desc: bool,
        enable_gso: bool,
        enable_packed: bool,
        enable_event_idx: bool,
        custom_dev_instance: u32,
        use_custom_mac: bool,
        mac_address: MacAddress,
        tag: FixedText<64>,
    } -> Interface = 0x5383d31f;

    /// Deletes a vhost-user interface.
    DeleteVhostUserIf("delete_vhost_user_if", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Done = 0xe8d4e804;

    /// Names a socket file for memifs, or forgets it.
    MemifSocketFilenameAddDelV2("memif_socket_filename_add_del_v2", 0x34223bdf) {
        is_add: bool,
        /// By default, VPP chooses.
        socket_id: u32 = u32::MAX,
        /// A path, or `@` and a name in the abstract namespace.
        socket_filename: VarText,
    } -> SocketId = 0x9f29bdb9;

    /// Makes a memif.
    MemifCreateV2("memif_create_v2", 0x8c7de5f7) {
        role: MemifRole,
        mode: MemifMode,
        rx_queues: u8 = 1,
        tx_queues: u8 = 1,
        /// Tells the memifs of one socket apart, and is the same at both ends.
        id: u32,
        socket_id: u32,
        /// A power of two.
        ring_size: u32 = 1024,
        buffer_size: u16 = 2048,
        no_zero_copy: bool,
        use_dma: bool,
        hw_addr: MacAddress,
        secret: FixedText<24>,
    } -> Interface = 0x5383d31f;

    /// Deletes a memif.
    MemifDelete("memif_delete", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// All `af_packet` interfaces.
    AfPacketDump("af_packet_dump", 0x51077d14) {} =>
    /// An `af_packet` interface.
    AfPacketDetails("af_packet_details", 0x58c7c042) {
        sw_if_index: InterfaceIndex,
        host_if_name: FixedText<64>,
    };

    /// One tap, or all.
    SwInterfaceTapV2Dump("sw_interface_tap_v2_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// A tap.
    SwInterfaceTapV2Details("sw_interface_tap_v2_details", 0x1e2b2a47) {
        sw_if_index: InterfaceIndex,
        id: u32,
        tx_ring_sz: u16,
        rx_ring_sz: u16,
        host_mtu_size: u32,
        host_mac_addr: MacAddress,
        host_ip4_prefix: Prefix4,
        host_ip6_prefix: Prefix6,
        tap_flags: TapFlags,
        dev_name: FixedText<64>,
        host_if_name: FixedText<64>,
        host_namespace: FixedText<64>,
        host_bridge: FixedText<64>,
    };

    /// One vhost-user interface, or all.
    SwInterfaceVhostUserDump("sw_interface_vhost_user_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// A vhost-user interface.
    SwInterfaceVhostUserDetails("sw_interface_vhost_user_details", 0x0cee1e53) {
        sw_if_index: InterfaceIndex,
        interface_name: FixedText<64>,
        virtio_net_hdr_sz: u32,
        features_first_32: VirtioFeaturesFirst32,
        features_last_32: VirtioFeaturesLast32,
        is_server: bool,
        sock_filename: FixedText<256>,
        /// Memory regions that the peer shares; none while there is no peer.
        num_regions: u32,
        sock_errno: i32,
    };

    /// All socket files.
    MemifSocketFilenameDump("memif_socket_filename_dump", 0x51077d14) {} =>
    /// A socket file.
    MemifSocketFilenameDetails("memif_socket_filename_details", 0x7ff326f7) {
        socket_id: u32,
        socket_filename: FixedText<108>,
    };

    /// All memifs.
    MemifDump("memif_dump", 0x51077d14) {} =>
    /// A memif.
    MemifDetails("memif_details", 0xda34feb9) {
        sw_if_index: InterfaceIndex,
        hw_addr: MacAddress,
        id: u32,
        role: MemifRole,
        mode: MemifMode,
        zero_copy: bool,
        socket_id: u32,
        ring_size: u32,
        buffer_size: u16,
        flags: IfStatusFlags,
        if_name: FixedText<64>,
    };
}
