//! Interfaces, tables, routes and neighbours: what is written is what is read.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use vpp_config::messages::interface::{
    CreateLoopbackInstance, DeleteLoopback, SwInterfaceAddDelAddress, SwInterfaceDump,
    SwInterfaceEvent, SwInterfaceGetTable, SwInterfaceSetFlags, SwInterfaceSetMtu,
    SwInterfaceSetTable, SwInterfaceTagAddDel, WantInterfaceEvents,
};
use vpp_config::messages::ip::{
    IpAddressDump, IpRouteAddDel, IpRouteAddDelV2, IpRouteDump, IpRouteLookup, IpRouteV2Dump,
    IpTableAddDelV2, IpTableDump, IpTableReplaceBegin, IpTableReplaceEnd,
    SwInterfaceIp6EnableDisable, SwInterfaceIp6GetLinkLocalAddress,
    SwInterfaceIp6SetLinkLocalAddress,
};
use vpp_config::messages::nd::{
    Ip6NdProxyAddDel, SwInterfaceIp6NdRaConfig, SwInterfaceIp6NdRaPrefix,
};
use vpp_config::messages::neighbor::{IpNeighborAddDel, IpNeighborConfigGet, IpNeighborDump};
use vpp_config::types::{
    AddressFamily, FibPath, FibPathProto, IfStatusFlags, InterfaceIndex, InterfaceMtu, IpNeighbor,
    IpNeighborFlags, IpRoute, IpRouteV2, IpTable, MacAddress, Prefix,
};
use vpp_config::{Client, Options, Retval};

use crate::instance::start;

const TABLE: u32 = 42;

fn address(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

fn table() -> IpTable {
    IpTable {
        table_id: TABLE,
        is_ip6: true,
        name: "causeway:7".try_into().unwrap(),
    }
}

/// A loopback interface that is up, in the table.
async fn loopback(client: &Client) -> InterfaceIndex {
    let add = IpTableAddDelV2 {
        table: table(),
        create_mfib: false,
        ..IpTableAddDelV2::default()
    };
    client.call(&add).await.unwrap();
    let made = client.call(&CreateLoopbackInstance::default()).await;
    let sw_if_index = made.unwrap().sw_if_index;
    let bind = SwInterfaceSetTable {
        sw_if_index,
        is_ipv6: true,
        vrf_id: TABLE,
    };
    client.call(&bind).await.unwrap();
    let enable = SwInterfaceIp6EnableDisable {
        sw_if_index,
        enable: true,
    };
    client.call(&enable).await.unwrap();
    let up = SwInterfaceSetFlags {
        sw_if_index,
        flags: IfStatusFlags::ADMIN_UP,
    };
    client.call(&up).await.unwrap();
    sw_if_index
}

#[tokio::test]
async fn an_interface_says_what_it_was_told() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let sw_if_index = loopback(&client).await;
    let tag = SwInterfaceTagAddDel {
        is_add: true,
        sw_if_index,
        tag: "causeway:sandbox:1".try_into().unwrap(),
    };
    client.call(&tag).await.unwrap();
    let mtu = InterfaceMtu {
        l3: 1400,
        ip4: 0,
        ip6: 1380,
        mpls: 0,
    };
    let set = SwInterfaceSetMtu {
        sw_if_index,
        mtu: mtu.clone(),
    };
    client.call(&set).await.unwrap();
    let address = Prefix::host(address(1).into());
    let add = SwInterfaceAddDelAddress {
        sw_if_index,
        is_add: true,
        prefix: address,
        ..SwInterfaceAddDelAddress::default()
    };
    client.call(&add).await.unwrap();
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let set = SwInterfaceIp6SetLinkLocalAddress {
        sw_if_index,
        ip: link_local,
    };
    client.call(&set).await.unwrap();

    let dump = SwInterfaceDump {
        sw_if_index,
        ..SwInterfaceDump::default()
    };
    let [details] = &client.dump(&dump).await.unwrap()[..] else {
        panic!("one interface was asked for");
    };
    assert_eq!(details.sw_if_index, sw_if_index);
    assert_eq!(details.tag, tag.tag);
    assert_eq!(details.mtu, mtu);
    assert!(details.flags.contains(IfStatusFlags::ADMIN_UP));
    assert_eq!(details.interface_name, "loop0");
    let get = SwInterfaceGetTable {
        sw_if_index,
        is_ipv6: true,
    };
    assert_eq!(client.call(&get).await.unwrap().vrf_id, TABLE);
    let dump = IpAddressDump {
        sw_if_index,
        is_ipv6: true,
    };
    let addresses = client.dump(&dump).await.unwrap();
    assert_eq!(addresses[0].prefix, address);
    let get = SwInterfaceIp6GetLinkLocalAddress { sw_if_index };
    assert_eq!(client.call(&get).await.unwrap().ip, link_local);

    // With addresses, it stays in its table.
    let move_away = SwInterfaceSetTable {
        sw_if_index,
        is_ipv6: true,
        vrf_id: 0,
    };
    let error = client.call(&move_away).await.unwrap_err();
    assert_eq!(error.retval(), Some(Retval::ADDRESS_FOUND_FOR_INTERFACE));
    client.call(&DeleteLoopback { sw_if_index }).await.unwrap();
    let gone = client.call(&DeleteLoopback { sw_if_index }).await;
    assert_eq!(
        gone.unwrap_err().retval(),
        Some(Retval::INVALID_SW_IF_INDEX)
    );
}

fn route(last: u16, paths: Vec<FibPath>) -> IpRouteAddDel {
    IpRouteAddDel {
        route: IpRoute {
            table_id: TABLE,
            prefix: Prefix::host(address(last).into()),
            paths,
            ..IpRoute::default()
        },
        ..IpRouteAddDel::default()
    }
}

#[tokio::test]
async fn routes_are_marked_swept_and_read_as_they_were_written() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let sw_if_index = loopback(&client).await;
    let next_hop = FibPath::to(address(9).into(), sw_if_index);
    let kept = route(2, vec![next_hop.clone()]);
    let swept = route(3, vec![FibPath::drop(FibPathProto::Ip6)]);
    client.call(&kept).await.unwrap();
    client.call(&swept).await.unwrap();
    let v2 = IpRouteAddDelV2 {
        route: IpRouteV2 {
            table_id: TABLE,
            prefix: Prefix::host(address(4).into()),
            paths: vec![FibPath::table(0, FibPathProto::Ip6)],
            ..IpRouteV2::default()
        },
        ..IpRouteAddDelV2::default()
    };
    client.call(&v2).await.unwrap();

    let tables = client.dump(&IpTableDump {}).await.unwrap();
    assert!(tables.iter().any(|details| details.table == table()));
    let begin = IpTableReplaceBegin { table: table() };
    client.call(&begin).await.unwrap();
    client.call(&kept).await.unwrap();
    let end = IpTableReplaceEnd { table: table() };
    client.call(&end).await.unwrap();

    let dump = IpRouteDump { table: table() };
    let routes = client.dump(&dump).await.unwrap();
    let find = |prefix| {
        routes
            .iter()
            .map(|details| &details.route)
            .find(move |route| route.prefix == prefix)
    };
    let read = find(kept.route.prefix).expect("the route that was written again");
    assert_eq!(read.table_id, TABLE);
    let [path] = &read.paths[..] else {
        panic!("{read:?}");
    };
    assert_eq!(path.sw_if_index, sw_if_index);
    assert_eq!(path.proto, FibPathProto::Ip6);
    assert_eq!(IpAddr::from(path.nh.address.to_v6()), address(9));
    assert!(find(swept.route.prefix).is_none());
    assert!(find(v2.route.prefix).is_none());
    let v2 = IpRouteV2Dump {
        src: 0,
        table: table(),
    };
    let with_source = client.dump(&v2).await.unwrap();
    assert_eq!(with_source.len(), routes.len());

    let lookup = IpRouteLookup {
        table_id: TABLE,
        exact: 1,
        prefix: kept.route.prefix,
    };
    let found = client.call(&lookup).await.unwrap();
    assert_eq!(found.route.prefix, kept.route.prefix);
}

#[tokio::test]
async fn neighbours_and_advertisements_are_told() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let sw_if_index = loopback(&client).await;
    let neighbor = IpNeighbor {
        sw_if_index,
        flags: IpNeighborFlags::STATIC | IpNeighborFlags::NO_FIB_ENTRY,
        mac_address: MacAddress([2, 0, 0, 0, 0, 9]),
        ip_address: address(9).into(),
    };
    let add = IpNeighborAddDel {
        is_add: true,
        neighbor: neighbor.clone(),
    };
    client.call(&add).await.unwrap();
    let dump = IpNeighborDump {
        af: AddressFamily::Ip6,
        ..IpNeighborDump::default()
    };
    let neighbors = client.dump(&dump).await.unwrap();
    assert_eq!(neighbors[0].neighbor, neighbor);
    // In seconds: a wrong byte order would be far off.
    assert!((0.0..3600.0).contains(&neighbors[0].age), "{neighbors:?}");
    let get = IpNeighborConfigGet {
        af: AddressFamily::Ip6,
    };
    assert!(client.call(&get).await.unwrap().max_number > 0);

    let quiet = SwInterfaceIp6NdRaConfig {
        sw_if_index,
        suppress: 1,
        ..SwInterfaceIp6NdRaConfig::default()
    };
    client.call(&quiet).await.unwrap();
    let prefix = SwInterfaceIp6NdRaPrefix {
        sw_if_index,
        prefix: "2001:db8::/64".parse::<ipnet::Ipv6Net>().unwrap().into(),
        no_autoconfig: true,
        val_lifetime: 600,
        pref_lifetime: 300,
        ..SwInterfaceIp6NdRaPrefix::default()
    };
    client.call(&prefix).await.unwrap();
    let proxy = Ip6NdProxyAddDel {
        sw_if_index,
        is_add: true,
        ip: address(77),
    };
    client.call(&proxy).await.unwrap();
}

#[tokio::test]
async fn events_come_once_they_are_asked_for() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let mut events = client.events();
    let want = WantInterfaceEvents {
        enable_disable: 1,
        pid: 7,
    };
    client.call(&want).await.unwrap();
    let again = client.call(&want).await.unwrap_err();
    assert_eq!(again.retval(), Some(Retval::INVALID_REGISTRATION));
    let sw_if_index = loopback(&client).await;
    let went_up = async {
        loop {
            let event = events.next().await.unwrap();
            let event = event.decode::<SwInterfaceEvent>().unwrap().unwrap();
            if event.sw_if_index == sw_if_index && event.flags.contains(IfStatusFlags::ADMIN_UP) {
                return event;
            }
        }
    };
    let event = tokio::time::timeout(Duration::from_secs(10), went_up).await;
    assert_eq!(event.expect("it went up").pid, 7);
}

#[tokio::test]
async fn thousands_of_routes_pass_through_the_window() {
    const COUNT: u16 = 5000;
    let Some(vpp) = start() else { return };
    let options = Options {
        deadline: Duration::from_secs(60),
        ..Options::default()
    };
    let client = vpp.client_with(options).await;
    loopback(&client).await;
    let started = Instant::now();
    let routes: Vec<_> = (100..100 + COUNT)
        .map(|last| route(last, vec![FibPath::drop(FibPathProto::Ip6)]))
        .collect();
    try_join_all(routes.iter().map(|route| client.call(route)))
        .await
        .unwrap();
    let written = started.elapsed();
    let started = Instant::now();
    let read = client.dump(&IpRouteDump { table: table() }).await.unwrap();
    println!(
        "{COUNT} routes written in {written:?}, {} read in {:?}",
        read.len(),
        started.elapsed()
    );
    assert!(read.len() >= usize::from(COUNT));
}
