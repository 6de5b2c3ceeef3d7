//! Routes and their paths.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};

use super::{InterfaceIndex, Prefix};
use crate::wire::{Count, DecodeError, EncodeError, Reader, Wire, Writer};

/// An address whose family is told elsewhere.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AddressUnion([u8; 16]);

impl AddressUnion {
    /// The address, if it is of this family.
    pub fn to_v4(self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The address, if it is of this family.
    pub fn to_v6(self) -> Ipv6Addr {
        self.0.into()
    }
}

impl From<IpAddr> for AddressUnion {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => {
                let [a, b, c, d] = address.octets();
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&[a, b, c, d]);
                Self(octets)
            }
            IpAddr::V6(address) => Self(address.octets()),
        }
    }
}

impl fmt::Debug for AddressUnion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddressUnion({})", self.to_v6())
    }
}

impl Serialize for AddressUnion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_v6().serialize(serializer)
    }
}

impl Wire for AddressUnion {
    const MIN: usize = 16;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.bytes(&self.0);
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(input.array()?))
    }

    fn unset() -> Self {
        Self::default()
    }
}

/// MPLS labels that a path pushes, at most 16.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LabelStack(pub Vec<MplsLabel>);

impl LabelStack {
    /// How many there may be.
    pub const MAX: usize = 16;
}

/// The number of labels, and places for the greatest number.
impl Wire for LabelStack {
    const MIN: usize = 1 + Self::MAX * MplsLabel::MIN;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        let count = self.0.len();
        let unused = Self::MAX.checked_sub(count).ok_or(EncodeError::TooMany {
            count,
            max: Self::MAX,
        })?;
        out.count::<u8>(count)?;
        self.0.iter().try_for_each(|label| label.put(out))?;
        out.zeros(unused * MplsLabel::MIN);
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u8::get(input)?.to_len();
        let places = input.take(Self::MAX * MplsLabel::MIN)?;
        if count > Self::MAX {
            return Err(DecodeError::Count {
                count,
                left: places.len(),
            });
        }
        let mut places = Reader::new(places);
        (0..count)
            .map(|_| MplsLabel::get(&mut places))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn unset() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod sample {
    use super::{AddressUnion, LabelStack, MplsLabel};
    use crate::wire::sample::{Random, Sample};

    impl Sample for AddressUnion {
        fn sample(random: &mut Random) -> Self {
            Self(Sample::sample(random))
        }
    }

    impl Sample for LabelStack {
        fn sample(random: &mut Random) -> Self {
            let count = random.below(LabelStack::MAX + 1);
            Self((0..count).map(|_| MplsLabel::sample(random)).collect())
        }
    }
}

wire_enums! {
    /// What a path does with a packet.
    FibPathType: u32 {
        /// Sends it to the next hop.
        Normal = 0,
        /// Delivers it to VPP itself.
        Local = 1,
        /// Drops it.
        Drop = 2,
        /// Encapsulates it in UDP.
        UdpEncap = 3,
        /// Imposes a BIER header.
        BierImp = 4,
        /// Drops it and tells the sender that the destination is unreachable.
        IcmpUnreach = 5,
        /// Drops it and tells the sender that this is prohibited.
        IcmpProhibit = 6,
        /// Looks its source up in a table.
        SourceLookup = 7,
        /// Sends it out of an interface with its link-layer header as it is.
        Dvr = 8,
        /// Takes it as received from an interface.
        InterfaceRx = 9,
        /// Hands it to a classifier table.
        Classify = 10,
    }

    /// The protocol that a next hop's address belongs to.
    FibPathProto: u32 {
        /// IPv4.
        Ip4 = 0,
        /// IPv6.
        Ip6 = 1,
        /// MPLS.
        Mpls = 2,
        /// Ethernet.
        Ethernet = 3,
        /// BIER.
        Bier = 4,
    }
}

wire_flags! {
    /// How a path is resolved.
    FibPathFlags: u32 {
        /// Only through an attached prefix.
        RESOLVE_VIA_ATTACHED = 1,
        /// Only through a host route.
        RESOLVE_VIA_HOST = 2,
        /// Takes the pseudowire control word away.
        POP_PW_CW = 4,
    }
}

wire_structs! {
    /// One MPLS label.
    MplsLabel {
        /// Whether the hop limit is carried over.
        is_uniform: u8,
        /// The label.
        label: u32,
        /// The hop limit, where it is not carried over.
        ttl: u8,
        /// The traffic class.
        exp: u8,
    }

    /// Where a path leads.
    FibNextHop {
        /// The address, of the path's protocol.
        address: AddressUnion,
        /// A label to look up instead.
        via_label: u32 = MPLS_LABEL_INVALID,
        /// An object made before, such as an encapsulation.
        obj_id: u32 = u32::MAX,
        /// A classifier table.
        classify_table_index: u32 = u32::MAX,
    }

    /// One path of a route.
    FibPath {
        /// The interface to send by, if it is given.
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        /// Where the next hop is looked up when no interface is given.
        table_id: u32,
        /// For multicast.
        rpf_id: u32 = u32::MAX,
        /// The share of the traffic.
        weight: u8 = 1,
        /// Paths with the lowest value are used.
        preference: u8,
        /// What is done with a packet.
        r#type: FibPathType,
        /// How the path is resolved.
        flags: FibPathFlags,
        /// The protocol of the next hop.
        proto: FibPathProto,
        /// The next hop.
        nh: FibNextHop,
        /// Labels that are pushed.
        labels: LabelStack,
    }

    /// A route.
    IpRoute {
        /// The table.
        table_id: u32,
        /// Where the stats segment counts it. VPP tells it.
        stats_index: u32,
        /// The destination.
        prefix: Prefix,
        /// Where it leads.
        [u8: paths] paths: Vec<FibPath>,
    }

    /// A route with its source.
    IpRouteV2 {
        /// The table.
        table_id: u32,
        /// Where the stats segment counts it. VPP tells it.
        stats_index: u32,
        /// The destination.
        prefix: Prefix,
        /// Who added it. Zero is the API.
        [u8: paths] src: u8,
        /// Where it leads.
        paths: Vec<FibPath>,
    }
}

/// One more than the greatest label.
const MPLS_LABEL_INVALID: u32 = 1 << 20;

impl FibPath {
    /// A path to a neighbour, or to whatever is attached when the address is unspecified.
    pub fn to(address: IpAddr, sw_if_index: InterfaceIndex) -> Self {
        Self {
            sw_if_index,
            proto: FibPathProto::of(address),
            nh: FibNextHop {
                address: address.into(),
                ..FibNextHop::default()
            },
            ..Self::default()
        }
    }

    /// A path that drops.
    pub fn drop(proto: FibPathProto) -> Self {
        Self {
            r#type: FibPathType::Drop,
            proto,
            ..Self::default()
        }
    }

    /// A path that goes on looking in another table.
    pub fn table(table_id: u32, proto: FibPathProto) -> Self {
        Self {
            table_id,
            proto,
            ..Self::default()
        }
    }
}

impl FibPathProto {
    /// The protocol of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ip4,
            IpAddr::V6(_) => Self::Ip6,
        }
    }
}
