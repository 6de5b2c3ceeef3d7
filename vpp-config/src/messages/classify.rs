//! Classifier tables: masks and values of a packet's first bytes.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{
    ClassifyTable, ClassifyTableIds, Done, InterfaceClassifyTables, NewClassifyTable,
};
use crate::types::InterfaceIndex;

wire_enums! {
    /// What a match does besides sending the packet on.
    ClassifyAction: u8 {
        /// Nothing.
        None = 0,
        /// The packet is looked up in the IPv4 table of the metadata.
        SetIp4FibIndex = 1,
        /// The packet is looked up in the IPv6 table of the metadata.
        SetIp6FibIndex = 2,
        /// The metadata goes along with the packet.
        SetMetadata = 3,
    }
}

requests! {
    /// Makes a table, or deletes one.
    ClassifyAddDelTable("classify_add_del_table", 0x6849e39e) {
        is_add: bool,
        /// Deletes the tables that follow, too.
        del_chain: bool,
        table_index: u32 = u32::MAX,
        nbuckets: u32 = 2,
        memory_size: u32 = 2 << 20,
        /// How many blocks of 16 bytes are passed over.
        skip_n_vectors: u32,
        /// How many blocks of 16 bytes are looked at.
        match_n_vectors: u32 = 1,
        next_table_index: u32 = u32::MAX,
        miss_next_index: u32 = u32::MAX,
        /// Whether blocks are counted from where the packet stands, not from its buffer's start.
        current_data_flag: u8,
        current_data_offset: i16,
        [u32: mask] mask: Vec<u8>,
    } -> NewClassifyTable = 0x05486349;

    /// Adds a value to a table, or takes it away.
    ClassifyAddDelSession("classify_add_del_session", 0xf20879f0) {
        is_add: bool,
        table_index: u32,
        hit_next_index: u32 = u32::MAX,
        opaque_index: u32 = u32::MAX,
        advance: i32,
        action: ClassifyAction,
        metadata: u32,
        /// The skipped blocks belong to it.
        [u32: r#match] r#match: Vec<u8>,
    } -> Done = 0xe8d4e804;

    /// Hangs tables at an interface's input.
    InputAclSetInterface("input_acl_set_interface", 0xde7ad708) {
        sw_if_index: InterfaceIndex,
        /// `u32::MAX` is none, here and below.
        ip4_table_index: u32 = u32::MAX,
        ip6_table_index: u32 = u32::MAX,
        l2_table_index: u32 = u32::MAX,
        is_add: bool,
    } -> Done = 0xe8d4e804;

    /// Hangs tables at what VPP delivers to itself.
    PuntAclAddDel("punt_acl_add_del", 0xa93bf3a0) {
        ip4_table_index: u32 = u32::MAX,
        ip6_table_index: u32 = u32::MAX,
        is_add: bool = true,
    } -> Done = 0xe8d4e804;

    /// Which tables there are.
    ClassifyTableIdsGet("classify_table_ids", 0x51077d14) {} -> ClassifyTableIds = 0xd1d20e1d;

    /// Which tables an interface has.
    ClassifyTableByInterface("classify_table_by_interface", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> InterfaceClassifyTables = 0xed4197db;

    /// A table.
    ClassifyTableInfo("classify_table_info", 0x0cca2cd9) {
        table_id: u32,
    } -> ClassifyTable = 0x4a573c0e;
}

dumps! {
    /// The values of a table.
    ClassifySessionDump("classify_session_dump", 0x0cca2cd9) { table_id: u32 } =>
    /// A value of a table.
    ClassifySessionDetails("classify_session_details", 0x60e3ef94) {
        retval: i32,
        table_id: u32,
        hit_next_index: u32,
        advance: i32,
        opaque_index: u32,
        [u32: r#match] r#match: Vec<u8>,
    };
}
