//! VPP's tables and the routes in them.

use std::net::{IpAddr, Ipv6Addr};

use causeway_types::GATEWAY;
use ipnet::Ipv6Net;
use vpp_config::Retval;
use vpp_config::messages::interface::SwInterfaceSetTable;
use vpp_config::messages::ip::{IpRouteAddDel, IpTableAddDelV2};
use vpp_config::types::{FibPath, FibPathProto, FibPathType, InterfaceIndex, IpRoute, IpTable};

use super::session::{Vpp, text};
use crate::backend::BackendError;
use crate::elements::GroupId;

/// The number of the table that leads each sandbox's packets to its own port on the border, by
/// their source. Tables of groups have the numbers above.
pub(super) const BORDER: u32 = 0x8000_0000;

/// The number of a group's table. Group numbers are handed out in order from one.
pub(super) const fn table_of(group: GroupId) -> u32 {
    BORDER | group.0
}

/// The group that a table number stands for.
pub(super) fn group_of(table: u32) -> Option<GroupId> {
    (table > BORDER).then_some(GroupId(table & !BORDER))
}

/// A table as VPP is asked for it.
pub(super) fn ip_table(number: u32) -> IpTable {
    let name = match group_of(number) {
        Some(group) => format!("causeway group {group}"),
        None => "causeway border".to_owned(),
    };
    IpTable {
        table_id: number,
        is_ip6: true,
        name: text(&name),
    }
}

/// Whether a table that VPP has is one of ours.
pub(super) fn is_ours(table: &IpTable) -> bool {
    table.is_ip6
        && table.table_id >= BORDER
        && table.name.to_str() == ip_table(table.table_id).name.to_str()
}

/// Makes a table, or gives it up.
pub(super) async fn table(vpp: &Vpp, number: u32, is_add: bool) -> Result<(), BackendError> {
    let request = IpTableAddDelV2 {
        table: ip_table(number),
        create_mfib: false,
        is_add,
    };
    vpp.call("make or delete a table", &request).await.map(drop)
}

/// Makes a group's table, in which everything leads to the border, or gives it up.
pub(super) async fn group(vpp: &Vpp, group: GroupId, is_add: bool) -> Result<(), BackendError> {
    let number = table_of(group);
    let default = FibPath {
        table_id: BORDER,
        r#type: FibPathType::SourceLookup,
        proto: FibPathProto::Ip6,
        ..FibPath::default()
    };
    if is_add {
        table(vpp, number, true).await?;
    }
    route(vpp, number, Ipv6Net::default(), default, is_add).await?;
    if is_add {
        return Ok(());
    }
    table(vpp, number, false).await
}

/// What has this source goes to its port on the border.
pub(super) async fn to_border(
    vpp: &Vpp,
    source: Ipv6Addr,
    border: InterfaceIndex,
    is_add: bool,
) -> Result<(), BackendError> {
    let path = if is_add {
        FibPath::to(IpAddr::V6(GATEWAY), border)
    } else {
        // The whole route goes, also when its interface has gone before.
        FibPath::drop(FibPathProto::Ip6)
    };
    route(vpp, BORDER, source.into(), path, is_add).await
}

/// What is sent to this address by the group goes to the sandbox.
pub(super) async fn direct(
    vpp: &Vpp,
    group: GroupId,
    address: Ipv6Addr,
    inlet: InterfaceIndex,
) -> Result<(), BackendError> {
    let path = FibPath::to(IpAddr::V6(address), inlet);
    route(vpp, table_of(group), address.into(), path, true).await
}

/// What is sent to this address by the group goes to the border.
pub(super) async fn no_longer_direct(
    vpp: &Vpp,
    group: GroupId,
    address: Ipv6Addr,
) -> Result<(), BackendError> {
    // The whole route goes, whatever its path.
    let path = FibPath::drop(FibPathProto::Ip6);
    route(vpp, table_of(group), address.into(), path, false).await
}

/// What VPP answers about a route that is not there.
const GONE: &[Retval] = &[Retval::NO_SUCH_ENTRY, Retval::NO_SUCH_FIB];

async fn route(
    vpp: &Vpp,
    table_id: u32,
    prefix: Ipv6Net,
    path: FibPath,
    is_add: bool,
) -> Result<(), BackendError> {
    let request = IpRouteAddDel {
        is_add,
        is_multipath: false,
        route: IpRoute {
            table_id,
            prefix: prefix.into(),
            paths: vec![path],
            ..IpRoute::default()
        },
    };
    let operation = "add or remove a route";
    if is_add {
        return vpp.call(operation, &request).await.map(drop);
    }
    vpp.call_unless(operation, &request, GONE).await
}

/// Has a port's packets looked up in a table.
pub(super) async fn bind(vpp: &Vpp, inlet: InterfaceIndex, table: u32) -> Result<(), BackendError> {
    let request = SwInterfaceSetTable {
        sw_if_index: inlet,
        is_ipv6: true,
        vrf_id: table,
    };
    vpp.call("put an interface into a table", &request)
        .await
        .map(drop)
}
