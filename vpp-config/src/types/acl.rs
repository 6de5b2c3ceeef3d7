//! Access lists.

use super::{IpProto, MacAddress, Prefix};

wire_enums! {
    /// What a rule does with a packet.
    AclAction: u8 {
        /// Drops it.
        Deny = 0,
        /// Lets it pass.
        Permit = 1,
        /// Lets it pass, and the answers to it.
        PermitReflect = 2,
    }
}

wire_structs! {
    /// A rule of an access list. Both prefixes have to be of one family.
    AclRule {
        /// What is done with a packet that matches.
        is_permit: AclAction,
        /// Where it comes from.
        src_prefix: Prefix,
        /// Where it goes.
        dst_prefix: Prefix,
        /// Zero is any protocol; then ports are not looked at.
        proto: IpProto,
        /// The lowest source port, or ICMP type.
        srcport_or_icmptype_first: u16,
        /// The highest.
        srcport_or_icmptype_last: u16 = u16::MAX,
        /// The lowest destination port, or ICMP code.
        dstport_or_icmpcode_first: u16,
        /// The highest.
        dstport_or_icmpcode_last: u16 = u16::MAX,
        /// The flags that are looked at.
        tcp_flags_mask: u8,
        /// What these flags have to be.
        tcp_flags_value: u8,
    }

    /// A rule on pairs of link-layer and IP source addresses.
    MacIpRule {
        /// What is done with a packet that matches.
        is_permit: AclAction,
        /// The link-layer address that it comes from.
        src_mac: MacAddress,
        /// The bits of it that count.
        src_mac_mask: MacAddress,
        /// Where it comes from.
        src_prefix: Prefix,
    }
}
