//! The interfaces that sandboxes are attached by.

use vpp_config::messages::attach::{
    AfPacketCreateV3, AfPacketDelete, AfPacketDump, CreateVhostUserIfV2, DeleteVhostUserIf,
    MemifCreateV2, MemifDelete, MemifDump, MemifRole, MemifSocketFilenameAddDelV2,
    MemifSocketFilenameDump, SwInterfaceTapV2Dump, SwInterfaceVhostUserDump, TapCreateV3,
    TapDeleteV2,
};
use vpp_config::messages::interface::SwInterfaceDump;
use vpp_config::types::MacAddress;

use crate::instance::start;

#[tokio::test]
async fn a_veth_is_attached_and_detached() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    vpp.in_namespace(&[
        "ip", "link", "add", "cw0", "type", "veth", "peer", "name", "cw1",
    ]);
    let create = AfPacketCreateV3 {
        hw_addr: MacAddress([2, 0, 0, 0, 0, 1]),
        host_if_name: "cw0".try_into().unwrap(),
        ..AfPacketCreateV3::default()
    };
    let sw_if_index = client.call(&create).await.unwrap().sw_if_index;
    let dump = SwInterfaceDump {
        sw_if_index,
        ..SwInterfaceDump::default()
    };
    let interfaces = client.dump(&dump).await.unwrap();
    assert_eq!(interfaces[0].interface_name, "host-cw0");
    assert_eq!(interfaces[0].l2_address, create.hw_addr);
    let all = client.dump(&AfPacketDump {}).await.unwrap();
    assert_eq!(all[0].host_if_name, "cw0");
    let delete = AfPacketDelete {
        host_if_name: create.host_if_name,
    };
    client.call(&delete).await.unwrap();
    assert!(client.dump(&AfPacketDump {}).await.unwrap().is_empty());
    assert!(client.call(&delete).await.unwrap_err().retval().is_some());
}

#[tokio::test]
async fn a_vhost_user_socket_is_made_and_removed() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let socket = vpp.path("vm.sock");
    let create = CreateVhostUserIfV2 {
        is_server: true,
        sock_filename: socket.to_str().unwrap().try_into().unwrap(),
        use_custom_mac: true,
        mac_address: MacAddress([2, 0, 0, 0, 0, 2]),
        tag: "causeway:vm".try_into().unwrap(),
        ..CreateVhostUserIfV2::default()
    };
    let sw_if_index = client.call(&create).await.unwrap().sw_if_index;
    let dump = SwInterfaceVhostUserDump { sw_if_index };
    let details = client.dump(&dump).await.unwrap();
    assert_eq!(details[0].sock_filename, create.sock_filename);
    assert!(details[0].is_server);
    let dump = SwInterfaceDump {
        sw_if_index,
        ..SwInterfaceDump::default()
    };
    assert_eq!(client.dump(&dump).await.unwrap()[0].tag, "causeway:vm");
    client
        .call(&DeleteVhostUserIf { sw_if_index })
        .await
        .unwrap();
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_memif_is_made_and_removed() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let path = vpp.path("memif.sock");
    let name = MemifSocketFilenameAddDelV2 {
        is_add: true,
        socket_filename: path.to_str().unwrap().into(),
        ..MemifSocketFilenameAddDelV2::default()
    };
    let socket_id = client.call(&name).await.unwrap().socket_id;
    let create = MemifCreateV2 {
        role: MemifRole::Master,
        socket_id,
        id: 3,
        hw_addr: MacAddress([2, 0, 0, 0, 0, 3]),
        ..MemifCreateV2::default()
    };
    let sw_if_index = client.call(&create).await.unwrap().sw_if_index;
    let all = client.dump(&MemifDump {}).await.unwrap();
    assert_eq!(all[0].sw_if_index, sw_if_index);
    assert_eq!((all[0].id, all[0].socket_id), (3, socket_id));
    let sockets = client.dump(&MemifSocketFilenameDump {}).await.unwrap();
    let named = sockets.iter().find(|socket| socket.socket_id == socket_id);
    assert_eq!(named.unwrap().socket_filename, path.to_str().unwrap());
    client.call(&MemifDelete { sw_if_index }).await.unwrap();
    let forget = MemifSocketFilenameAddDelV2 {
        is_add: false,
        socket_id,
        ..name
    };
    client.call(&forget).await.unwrap();
}

#[tokio::test]
async fn a_tap_is_made_and_removed_or_refused_where_the_kernel_has_no_part_of_it() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let create = TapCreateV3 {
        host_if_name_set: true,
        host_if_name: "cwtap".try_into().unwrap(),
        tag: "causeway:tap".into(),
        ..TapCreateV3::default()
    };
    let made = client.call(&create).await;
    let is_there = |device| std::path::Path::new(device).exists();
    if !is_there("/dev/net/tun") || !is_there("/dev/vhost-net") {
        let error = made.unwrap_err();
        assert!(error.retval().is_some(), "{error}");
        return;
    }
    let sw_if_index = made.unwrap().sw_if_index;
    let taps = client
        .dump(&SwInterfaceTapV2Dump { sw_if_index })
        .await
        .unwrap();
    assert_eq!(taps[0].host_if_name, "cwtap");
    client.call(&TapDeleteV2 { sw_if_index }).await.unwrap();
}
