//! Addresses, tables and neighbours.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Serialize, Serializer};

use super::{InterfaceIndex, MacAddress};
use crate::wire::FixedText;

macro_rules! prefixes {
    ($($(#[$meta:meta])* $name:ident: $address:ident, $net:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// It may be any address with a length, since interface addresses are given that way too.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// The address.
            pub address: $address,
            /// How many leading bits count.
            pub len: u8,
        }

        impl $name {
            /// The address with all its bits.
            pub fn host(address: $address) -> Self {
                Self::from($net::from(address))
            }

            /// The network, unless the length is no length.
            pub fn to_net(self) -> Option<$net> {
                $net::new(self.address, self.len).ok()
            }
        }

        impl From<$net> for $name {
            fn from(net: $net) -> Self {
                Self {
                    address: net.addr(),
                    len: net.prefix_len(),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.address, self.len)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl $crate::wire::Wire for $name {
            const MIN: usize = <$address as $crate::wire::Wire>::MIN + 1;

            fn put(
                &self,
                out: &mut $crate::wire::Writer,
            ) -> Result<(), $crate::wire::EncodeError> {
                self.address.put(out)?;
                self.len.put(out)
            }

            fn get(
                input: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::DecodeError> {
                Ok(Self {
                    address: $address::get(input)?,
                    len: u8::get(input)?,
                })
            }

            fn unset() -> Self {
                Self {
                    address: $address::unset(),
                    len: 0,
                }
            }
        }

        #[cfg(test)]
        impl $crate::wire::sample::Sample for $name {
            fn sample(random: &mut $crate::wire::sample::Random) -> Self {
                Self {
                    address: $crate::wire::sample::Sample::sample(random),
                    len: $crate::wire::sample::Sample::sample(random),
                }
            }
        }
    )*};
}

prefixes! {
    /// A prefix of either family.
    Prefix: IpAddr, IpNet;
    /// An IPv4 prefix, in fields for nothing else.
    Prefix4: Ipv4Addr, Ipv4Net;
    /// An IPv6 prefix, in fields for nothing else.
    Prefix6: Ipv6Addr, Ipv6Net;
}

impl From<Ipv6Net> for Prefix {
    fn from(net: Ipv6Net) -> Self {
        IpNet::V6(net).into()
    }
}

impl From<Ipv4Net> for Prefix {
    fn from(net: Ipv4Net) -> Self {
        IpNet::V4(net).into()
    }
}

wire_enums! {
    /// A family of addresses.
    AddressFamily: u8 {
        /// IPv4.
        Ip4 = 0,
        /// IPv6.
        Ip6 = 1,
    }

    /// A protocol over IP. In filters, zero is any protocol.
    IpProto: u8 {
        /// IPv6 hop-by-hop options; any protocol in filters.
        HopOpt = 0,
        /// ICMP.
        Icmp = 1,
        /// IGMP.
        Igmp = 2,
        /// TCP.
        Tcp = 6,
        /// UDP.
        Udp = 17,
        /// GRE.
        Gre = 47,
        /// ESP.
        Esp = 50,
        /// AH.
        Ah = 51,
        /// `ICMPv6`.
        Icmp6 = 58,
        /// EIGRP.
        Eigrp = 88,
        /// OSPF.
        Ospf = 89,
        /// SCTP.
        Sctp = 132,
        /// Reserved.
        Reserved = 255,
    }

    /// What is done to fragments.
    ReassemblyType: u32 {
        /// Packets are put together.
        Full = 0,
        /// Ports are remembered for later fragments, which travel on as they are.
        ShallowVirtual = 1,
    }
}

wire_flags! {
    /// How a neighbour entry behaves.
    IpNeighborFlags: u8 {
        /// It does not age.
        STATIC = 1,
        /// It makes no host route.
        NO_FIB_ENTRY = 2,
    }
}

wire_structs! {
    /// A forwarding table.
    IpTable {
        /// Its number, which is the operator's choice.
        table_id: u32,
        /// IPv6; otherwise IPv4.
        is_ip6: bool,
        /// A name for people, and a mark of whose it is.
        name: FixedText<64>,
    }

    /// A neighbour's link-layer address.
    IpNeighbor {
        /// The interface that it is behind.
        sw_if_index: InterfaceIndex,
        /// How the entry behaves.
        flags: IpNeighborFlags,
        /// The link-layer address.
        mac_address: MacAddress,
        /// The address.
        ip_address: IpAddr,
    }

    /// The path MTU towards an address.
    IpPathMtu {
        /// VPP has this in the type, and ignores it there.
        client_index: u32,
        /// And this.
        context: u32,
        /// The table of the address.
        table_id: u32,
        /// The address.
        nh: IpAddr,
        /// The greatest packet.
        path_mtu: u16,
    }
}
