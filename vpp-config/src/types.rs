//! Types that messages share.

mod acl;
mod fib;
mod interface;
mod ip;

pub use acl::{AclAction, AclRule, MacIpRule};
pub use fib::{
    AddressUnion, FibNextHop, FibPath, FibPathFlags, FibPathProto, FibPathType, IpRoute, IpRouteV2,
    LabelStack, MplsLabel,
};
pub use interface::{
    IfStatusFlags, IfType, InterfaceIndex, InterfaceMtu, LinkDuplex, MacAddress, RxMode, SubIfFlags,
};
pub use ip::{
    AddressFamily, IpNeighbor, IpNeighborFlags, IpPathMtu, IpProto, IpTable, Prefix, Prefix4,
    Prefix6, ReassemblyType,
};
