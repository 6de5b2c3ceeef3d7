//! Forwarding by access list. These definitions may change without new names.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::Done;
use crate::types::{FibPath, InterfaceIndex};

wire_structs! {
    /// Where packets go that an access list permits.
    AbfPolicy {
        /// The caller's choice.
        policy_id: u32,
        acl_index: u32,
        [u8: paths] paths: Vec<FibPath>,
    }

    /// A policy on an interface.
    AbfItfAttach {
        policy_id: u32,
        sw_if_index: InterfaceIndex,
        /// The lowest comes first.
        priority: u32,
        is_ipv6: bool,
    }
}

requests! {
    /// Adds paths to a policy, making it where needed, or takes them away.
    AbfPolicyAddDel("abf_policy_add_del", 0xc6131197) {
        is_add: bool,
        policy: AbfPolicy,
    } -> Done = 0xe8d4e804;

    /// Puts a policy on an interface, or takes it away.
    AbfItfAttachAddDel("abf_itf_attach_add_del", 0x25c8621b) {
        is_add: bool,
        attach: AbfItfAttach,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// All policies.
    AbfPolicyDump("abf_policy_dump", 0x51077d14) {} =>
    /// A policy.
    AbfPolicyDetails("abf_policy_details", 0xb7487fa4) { policy: AbfPolicy };

    /// All policies on interfaces.
    AbfItfAttachDump("abf_itf_attach_dump", 0x51077d14) {} =>
    /// A policy on an interface.
    AbfItfAttachDetails("abf_itf_attach_details", 0x7819523e) { attach: AbfItfAttach };
}
