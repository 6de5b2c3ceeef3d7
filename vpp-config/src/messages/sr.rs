//! Segment routing over IPv6.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::{IpAddr, Ipv6Addr};

use super::reply::Done;
use crate::types::{InterfaceIndex, Prefix};
use crate::wire::{Count, DecodeError, EncodeError, Reader, Wire, Writer};

wire_enums! {
    /// What a segment does.
    SrBehavior: u8 {
        /// Goes on to the next segment.
        End = 1,
        /// Sends to a neighbour.
        X = 2,
        /// Looks the next segment up in a table.
        T = 3,
        /// Decapsulates frames, and sends them out of an interface.
        Dx2 = 5,
        /// Decapsulates IPv6, and sends to a neighbour.
        Dx6 = 6,
        /// Decapsulates IPv4, and sends to a neighbour.
        Dx4 = 7,
        /// Decapsulates IPv6, and looks the destination up in a table.
        Dt6 = 8,
        /// Decapsulates IPv4, and looks the destination up in a table.
        Dt4 = 9,
        /// A micro-segment, with hardware in mind.
        EndUnPerf = 11,
        /// A micro-segment.
        EndUn = 12,
        /// A micro-segment to a neighbour.
        Ua = 13,
    }

    /// What a policy does with several lists of segments.
    SrPolicyType: u8 {
        /// Shares traffic by weight.
        Default = 0,
        /// Sends everything along each.
        Spray = 1,
        /// Measures, too.
        Tef = 2,
    }

    /// What is steered into a policy.
    SrSteer: u8 {
        /// Frames of an interface.
        L2 = 2,
        /// An IPv4 prefix.
        Ipv4 = 4,
        /// An IPv6 prefix.
        Ipv6 = 6,
    }
}

/// A list of segments, at most 16.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct SidList {
    /// The share of the traffic.
    pub weight: u32,
    /// The segments, first to last.
    pub sids: Vec<Ipv6Addr>,
}

impl SidList {
    /// How many segments there may be.
    pub const MAX: usize = 16;
}

/// The number of segments, the weight, and places for the greatest number.
impl Wire for SidList {
    const MIN: usize = 1 + 4 + Self::MAX * Ipv6Addr::MIN;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        let count = self.sids.len();
        let unused = Self::MAX.checked_sub(count).ok_or(EncodeError::TooMany {
            count,
            max: Self::MAX,
        })?;
        out.count::<u8>(count)?;
        self.weight.put(out)?;
        self.sids.iter().try_for_each(|sid| sid.put(out))?;
        out.zeros(unused * Ipv6Addr::MIN);
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u8::get(input)?.to_len();
        let weight = u32::get(input)?;
        let places = input.take(Self::MAX * Ipv6Addr::MIN)?;
        if count > Self::MAX {
            return Err(DecodeError::Count {
                count,
                left: places.len(),
            });
        }
        let mut places = Reader::new(places);
        let sids = (0..count)
            .map(|_| Ipv6Addr::get(&mut places))
            .collect::<Result<_, _>>()?;
        Ok(Self { weight, sids })
    }

    fn unset() -> Self {
        Self {
            weight: 1,
            sids: Vec::new(),
        }
    }
}

#[cfg(test)]
impl crate::wire::sample::Sample for SidList {
    fn sample(random: &mut crate::wire::sample::Random) -> Self {
        use crate::wire::sample::Sample;

        let count = random.below(Self::MAX + 1);
        Self {
            weight: Sample::sample(random),
            sids: (0..count).map(|_| Sample::sample(random)).collect(),
        }
    }
}

requests! {
    /// Makes a segment of this node, or deletes one.
    SrLocalsidAddDel("sr_localsid_add_del", 0x5a36c324) {
        is_del: bool,
        localsid: Ipv6Addr,
        /// Takes the routing header away one segment early.
        end_psp: bool,
        behavior: SrBehavior,
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        vlan_index: u32,
        /// The table that decapsulated packets are looked up in.
        fib_table: u32,
        nh_addr: IpAddr,
    } -> Done = 0xe8d4e804;

    /// Makes a policy. The definition may change without a new name.
    SrPolicyAddV2("sr_policy_add_v2", 0xf6297f36) {
        /// The policy's own segment, which is its name.
        bsid_addr: Ipv6Addr,
        weight: u32,
        /// Encapsulates; otherwise it inserts a header.
        is_encap: bool,
        r#type: SrPolicyType,
        /// The table that the first segment is looked up in.
        fib_table: u32,
        sids: SidList,
        encap_src: Ipv6Addr,
    } -> Done = 0xe8d4e804;

    /// Deletes a policy.
    SrPolicyDel("sr_policy_del", 0xcb4d48d5) {
        bsid_addr: Ipv6Addr,
        /// Looked at when the address is unspecified.
        sr_policy_index: u32,
    } -> Done = 0xe8d4e804;

    /// Steers traffic into a policy, or no longer.
    SrSteeringAddDel("sr_steering_add_del", 0xe46b0a0f) {
        is_del: bool,
        bsid_addr: Ipv6Addr,
        sr_policy_index: u32,
        table_id: u32,
        prefix: Prefix,
        sw_if_index: InterfaceIndex,
        traffic_type: SrSteer,
    } -> Done = 0xe8d4e804;

    /// Sets the source address of what is encapsulated.
    SrSetEncapSource("sr_set_encap_source", 0xd3bad5e1) {
        encaps_source: Ipv6Addr,
    } -> Done = 0xe8d4e804;

    /// Sets the hop limit of what is encapsulated.
    SrSetEncapHopLimit("sr_set_encap_hop_limit", 0xaa75d7d0) {
        hop_limit: u8,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// The segments of this node.
    SrLocalsidsDump("sr_localsids_dump", 0x51077d14) {} =>
    /// A segment of this node.
    SrLocalsidsDetails("sr_localsids_details", 0x2e9221b9) {
        addr: Ipv6Addr,
        end_psp: bool,
        behavior: SrBehavior,
        fib_table: u32,
        vlan_index: u32,
        xconnect_nh_addr: IpAddr,
        xconnect_iface_or_vrf_table: u32,
    };

    /// All policies.
    SrPoliciesV2Dump("sr_policies_v2_dump", 0x51077d14) {} =>
    /// A policy.
    SrPoliciesV2Details("sr_policies_v2_details", 0x96dcb699) {
        bsid: Ipv6Addr,
        encap_src: Ipv6Addr,
        r#type: SrPolicyType,
        is_encap: bool,
        fib_table: u32,
        [u8: sid_lists] sid_lists: Vec<SidList>,
    };

    /// All that is steered into policies.
    SrSteeringPolDump("sr_steering_pol_dump", 0x51077d14) {} =>
    /// What is steered into a policy.
    SrSteeringPolDetails("sr_steering_pol_details", 0xd41258c9) {
        traffic_type: SrSteer,
        fib_table: u32,
        prefix: Prefix,
        sw_if_index: InterfaceIndex,
        bsid: Ipv6Addr,
    };
}
