//! One exchange with VPP that uses each kind of message. It is recorded from a real VPP, and replayed
//! where there is none.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use vpp_config::messages::acl::{AclAddReplace, AclDump, AclPluginGetConnTableMaxEntries};
use vpp_config::messages::interface::{
    CreateLoopbackInstance, DeleteLoopback, SwInterfaceDump, SwInterfaceEvent, SwInterfaceSetFlags,
    SwInterfaceSetTable, SwInterfaceTagAddDel, WantInterfaceEvents,
};
use vpp_config::messages::ip::{
    IpPathMtuGet, IpPathMtuUpdate, IpRouteAddDel, IpRouteDump, IpTableAddDelV2, IpTableDump,
};
use vpp_config::messages::memclnt::ControlPing;
use vpp_config::messages::neighbor::{IpNeighborAddDel, IpNeighborDump};
use vpp_config::messages::policer::{PolicerAdd, PolicerConfig, PolicerInputV2};
use vpp_config::types::{
    AclAction, AclRule, AddressFamily, FibPath, IfStatusFlags, InterfaceIndex, IpNeighbor,
    IpPathMtu, IpProto, IpRoute, IpTable, MacAddress, Prefix,
};
use vpp_config::{Client, Needs, Options};

/// Has the exchange, one request after the other. What was answered.
#[expect(clippy::too_many_lines, reason = "one request after the other")]
pub(crate) async fn exchange(socket: &Path) -> Vec<Value> {
    let options = Options {
        name: "exchange".try_into().unwrap(),
        ..Options::default()
    };
    let client = Client::connect(socket, options, Needs::new())
        .await
        .unwrap();
    let mut events = client.events();
    let mut said = Vec::new();
    macro_rules! call {
        ($request:expr) => {{
            let reply = client.call(&$request).await.unwrap();
            said.push(serde_json::to_value(&reply).unwrap());
            reply
        }};
    }
    macro_rules! dump {
        ($request:expr) => {{
            let all = client.dump(&$request).await.unwrap();
            said.push(serde_json::to_value(&all).unwrap());
        }};
    }

    call!(ControlPing {});
    call!(WantInterfaceEvents {
        enable_disable: 1,
        pid: 7,
    });
    let table = IpTable {
        table_id: 42,
        is_ip6: true,
        name: "exchange".try_into().unwrap(),
    };
    call!(IpTableAddDelV2 {
        table: table.clone(),
        create_mfib: false,
        is_add: true,
    });
    let sw_if_index = call!(CreateLoopbackInstance::default()).sw_if_index;
    call!(SwInterfaceSetTable {
        sw_if_index,
        is_ipv6: true,
        vrf_id: 42,
    });
    call!(SwInterfaceTagAddDel {
        is_add: true,
        sw_if_index,
        tag: "exchange:1".try_into().unwrap(),
    });
    call!(SwInterfaceSetFlags {
        sw_if_index,
        flags: IfStatusFlags::ADMIN_UP,
    });
    let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
    let event = event.unwrap().unwrap();
    let event = event.decode::<SwInterfaceEvent>().unwrap().unwrap();
    said.push(serde_json::to_value(&event).unwrap());
    dump!(SwInterfaceDump::default());

    let host = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    call!(IpNeighborAddDel {
        is_add: true,
        neighbor: IpNeighbor {
            sw_if_index,
            mac_address: MacAddress([2, 0, 0, 0, 0, 1]),
            ip_address: host.into(),
            ..IpNeighbor::default()
        },
    });
    let neighbors = client
        .dump(&IpNeighborDump {
            af: AddressFamily::Ip6,
            ..IpNeighborDump::default()
        })
        .await
        .unwrap();
    said.push(json!(neighbors.len()));
    call!(IpRouteAddDel {
        route: IpRoute {
            table_id: 42,
            prefix: Prefix::host(host.into()),
            paths: vec![FibPath::to(host.into(), sw_if_index)],
            ..IpRoute::default()
        },
        ..IpRouteAddDel::default()
    });
    dump!(IpTableDump {});
    dump!(IpRouteDump { table });
    call!(IpPathMtuUpdate {
        pmtu: IpPathMtu {
            table_id: 42,
            nh: host.into(),
            path_mtu: 1400,
            ..IpPathMtu::default()
        },
    });
    let mtus = client.get(&IpPathMtuGet {}).await.unwrap();
    said.push(serde_json::to_value(&mtus).unwrap());

    call!(AclPluginGetConnTableMaxEntries {});
    call!(AclAddReplace {
        tag: "exchange".try_into().unwrap(),
        r: vec![AclRule {
            is_permit: AclAction::Permit,
            src_prefix: Prefix::host(host.into()),
            dst_prefix: Prefix {
                address: Ipv6Addr::UNSPECIFIED.into(),
                len: 0,
            },
            proto: IpProto::Icmp6,
            ..AclRule::default()
        }],
        ..AclAddReplace::default()
    });
    dump!(AclDump::default());
    let policer_index = call!(PolicerAdd {
        name: "exchange".try_into().unwrap(),
        infos: PolicerConfig {
            cir: 1000,
            cb: 10_000,
            ..PolicerConfig::default()
        },
    })
    .policer_index;
    // Answered with another message's reply.
    call!(PolicerInputV2 {
        policer_index,
        sw_if_index,
        apply: true,
    });
    let missing = DeleteLoopback {
        sw_if_index: InterfaceIndex(4711),
    };
    let error = client.call(&missing).await.unwrap_err();
    said.push(json!(error.to_string()));
    said
}
