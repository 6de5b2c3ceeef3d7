//! Interfaces.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::wire::{DecodeError, EncodeError, Reader, Wire, Writer};

/// The number of an interface: VPP's `sw_if_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceIndex(pub u32);

impl InterfaceIndex {
    /// No interface; in dumps, every interface.
    pub const NONE: Self = Self(u32::MAX);
    /// `local0`, which every VPP has.
    pub const LOCAL0: Self = Self(0);

    const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    const fn raw(self) -> u32 {
        self.0
    }
}

impl fmt::Display for InterfaceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            f.write_str("none")
        } else {
            self.0.fmt(f)
        }
    }
}

raw_wire!(InterfaceIndex: u32);

/// An Ethernet address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddress({self})")
    }
}

impl Wire for MacAddress {
    const MIN: usize = 6;

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

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
impl crate::wire::sample::Sample for MacAddress {
    fn sample(random: &mut crate::wire::sample::Random) -> Self {
        Self(crate::wire::sample::Sample::sample(random))
    }
}

wire_structs! {
    /// The greatest packets of an interface, by protocol. Zero leaves a value to `l3`.
    InterfaceMtu {
        /// For everything that has no value of its own.
        l3: u32,
        /// For IPv4.
        ip4: u32,
        /// For IPv6.
        ip6: u32,
        /// For MPLS.
        mpls: u32,
    }
}

wire_flags! {
    /// Whether an interface is up.
    IfStatusFlags: u32 {
        /// The operator wants it up.
        ADMIN_UP = 1,
        /// The link is up.
        LINK_UP = 2,
    }

    /// What a sub-interface matches.
    SubIfFlags: u32 {
        /// Frames without a tag.
        NO_TAGS = 1,
        /// Frames with one tag.
        ONE_TAG = 2,
        /// Frames with two tags.
        TWO_TAGS = 4,
        /// 802.1ad tags.
        DOT1AD = 8,
        /// Exactly as many tags.
        EXACT_MATCH = 16,
        /// What no other sub-interface matches.
        DEFAULT = 32,
        /// Any outer tag.
        OUTER_VLAN_ID_ANY = 64,
        /// Any inner tag.
        INNER_VLAN_ID_ANY = 128,
        /// 802.1ah.
        DOT1AH = 256,
    }
}

wire_enums! {
    /// What an interface is.
    IfType: u32 {
        /// An interface of its own.
        Hardware = 0,
        /// A sub-interface.
        Sub = 1,
        /// A point-to-point interface.
        P2p = 2,
        /// One end of a pipe.
        Pipe = 3,
    }

    /// The duplex mode of a link.
    LinkDuplex: u32 {
        /// Not known.
        Unknown = 0,
        /// One direction at a time.
        Half = 1,
        /// Both directions.
        Full = 2,
    }

    /// How a receive queue is served.
    RxMode: u32 {
        /// Not known.
        Unknown = 0,
        /// Looked at in every round.
        Polling = 1,
        /// Looked at after an interrupt.
        Interrupt = 2,
        /// Interrupts under low load, polling under high.
        Adaptive = 3,
        /// As the driver prefers.
        Default = 4,
    }
}
