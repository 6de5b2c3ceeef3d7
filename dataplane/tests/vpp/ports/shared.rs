//! Guests that share memory with VPP: by memif, and by vhost-user.

use std::time::{Duration, Instant};

use causeway_dataplane::{Attachment, SandboxSpec};
use causeway_types::MacAddress;

use super::common::*;
use super::{PATIENCE, await_ping, ctl, forwarder};
use crate::instance::Instance;

/// Sandbox number `n`, attached by memif.
fn by_memif(n: u16, networks: &[&str]) -> SandboxSpec {
    let mut spec = spec(n, networks);
    spec.attachment = Attachment::Memif {
        socket: format!("/run/memif{n}.sock").into(),
    };
    spec
}

/// A second VPP as the other end of a memif.
fn peer(spec: &SandboxSpec) -> Instance {
    let peer = Instance::start("/run/peer");
    let (address, mac) = (spec.address, spec.mac());
    let Attachment::Memif { socket } = &spec.attachment else {
        panic!("not by memif");
    };
    for command in [
        format!("create memif socket id 1 filename {}", socket.display()),
        format!("create interface memif id 0 socket-id 1 slave hw-addr {mac}"),
        "set interface state memif1/0 up".to_owned(),
        "enable ip6 interface memif1/0".to_owned(),
        format!("set interface ip address memif1/0 {address}/128"),
        format!(
            "set ip neighbor static memif1/0 fe80::1 {}",
            MacAddress::GATEWAY
        ),
        "ip route add ::/0 via fe80::1 memif1/0".to_owned(),
    ] {
        let said = peer.ctl(&command);
        assert!(!said.contains("unknown"), "{command}: {said}");
    }
    peer
}

#[test]
fn a_memif_peer_has_its_networks_and_leaves_nothing() {
    isolated(
        concat!(
            module_path!(),
            "::a_memif_peer_has_its_networks_and_leaves_nothing"
        ),
        async || {
            forwarder::share_memory();
            let plane = dataplane().await;
            let specs = [
                spec(1, &["front"]),
                by_memif(2, &["front"]),
                spec(3, &["back"]),
            ];
            for n in [1, 3] {
                run(&format!("ip netns add s{n}"));
            }
            for spec in &specs {
                plane.attach(spec.clone()).await.unwrap();
            }
            let peer = peer(&specs[1]);
            await_ping("s1", specs[1].address);
            assert!(!ping("s3", specs[1].address).success());
            let said = peer.ctl(&format!("ping {} repeat 3 interval 0.1", specs[0].address));
            assert!(said.contains("3 received"), "{said}");
            let said = peer.ctl(&format!("ping {} repeat 1 interval 0.1", specs[2].address));
            assert!(said.contains("0 received"), "{said}");

            // Nobody else gets the socket.
            let mut thief = spec(4, &["front"]);
            thief.attachment = specs[1].attachment.clone();
            let taken = format!("{:?}", plane.attach(thief).await.unwrap_err());
            assert!(taken.contains("SocketInUse"), "{taken}");
            assert!(ping("s1", specs[1].address).success());

            // VPP restarts, and listens on the socket again.
            let wanted = desired(&specs);
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            forwarder::vpp().as_mut().unwrap().kill();
            forwarder::vpp().as_mut().unwrap().restart();
            let report = plane.reconcile(&wanted).await.unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            await_ping("s1", specs[1].address);

            plane.detach(specs[1].uid).await.unwrap();
            let left = ctl("show memif");
            assert!(!left.contains("memif2"), "{left}");
            assert!(!ping("s1", specs[1].address).success());
        },
    );
}

#[test]
fn vhost_user_sockets_come_and_go() {
    isolated(
        concat!(module_path!(), "::vhost_user_sockets_come_and_go"),
        async || {
            forwarder::share_memory();
            let plane = dataplane().await;
            let mut spec = spec(1, &["front"]);
            let socket = std::path::Path::new("/run/vm.sock");
            spec.attachment = Attachment::VhostUser {
                socket: socket.to_owned(),
            };
            for _ in 0..3 {
                plane.attach(spec.clone()).await.unwrap();
                assert!(socket.exists());
                let wanted = desired(&[spec.clone()]);
                assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
                plane.detach(spec.uid).await.unwrap();
                assert!(!ctl("show interface").contains("VirtualEthernet"));
            }
        },
    );
}

#[test]
fn guests_share_memory_with_vpp_only_where_that_is_allowed() {
    isolated(
        concat!(
            module_path!(),
            "::guests_share_memory_with_vpp_only_where_that_is_allowed"
        ),
        async || {
            let plane = dataplane().await;
            run("ip netns add s1");
            let specs = [spec(1, &["front"]), by_memif(2, &["front"])];
            plane.attach(specs[0].clone()).await.unwrap();
            let mut by_vhost_user = spec(3, &["front"]);
            by_vhost_user.attachment = Attachment::VhostUser {
                socket: "/run/vm.sock".into(),
            };
            for spec in [&specs[1], &by_vhost_user] {
                let refused = plane.attach(spec.clone()).await.unwrap_err();
                let said = format!("{refused:?}");
                assert!(said.contains("SharedMemory"), "{said}");
            }
            let interfaces = ctl("show interface");
            assert!(!interfaces.contains("memif"), "{interfaces}");
            assert!(!interfaces.contains("VirtualEthernet"), "{interfaces}");

            forwarder::share_memory();
            let plane = dataplane().await;
            let wanted = desired(&specs);
            assert!(plane.reconcile(&wanted).await.unwrap().problems.is_empty());
            let _peer = peer(&specs[1]);
            await_ping("s1", specs[1].address);

            // What was allowed before is taken away when it is no longer.
            forwarder::share_no_memory();
            let plane = dataplane().await;
            let problems = plane.reconcile(&wanted).await.unwrap().problems;
            assert_eq!(problems.len(), 1, "{problems:?}");
            let interfaces = ctl("show interface");
            assert!(!interfaces.contains("memif"), "{interfaces}");
        },
    );
}

/// Sizes of frames, up to the largest that an interface can send.
const SIZES: [usize; 3] = [1_000, 30_000, 65_549];
/// How many at a time: what a memif takes of the largest.
const BURST: u32 = 25;
/// How many times: in all more than a ring has places.
const TURNS: u32 = 4;

/// Packets that came to the router from a sandbox.
fn seen_by_router(spec: &SandboxSpec) -> u64 {
    let text = run(&format!("ip -n causeway -s link show cw{}", spec.uid));
    let mut lines = text.lines().skip_while(|line| !line.contains("RX:"));
    let counters = lines.nth(1).unwrap();
    counters.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Has a peer send frames of this size, all with these bytes first.
fn flood(peer: &Instance, head: &[u8], size: usize) {
    let hex = head
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    for turn in 0..TURNS {
        let name = format!("of{size}-{turn}");
        let script = format!("/run/flood{size}");
        let lines = format!(
            "packet-generator new {{ name {name} limit {BURST} size {size}-{size} \
             node memif1/0-output interface memif1/0 data {{ hex 0x{hex} }} }}\n\
             packet-generator enable-stream {name}\n"
        );
        std::fs::write(&script, lines).unwrap();
        peer.ctl(&format!("exec {script}"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = peer.ctl("show packet-generator");
            if state
                .lines()
                .any(|line| line.starts_with(&name) && line.contains(" No "))
            {
                break;
            }
            assert!(Instant::now() < deadline, "it does not end: {state}");
            std::thread::sleep(Duration::from_millis(20));
        }
        peer.ctl(&format!("packet-generator delete {name}"));
    }
}

/// The first bytes of a frame to the gateway with a UDP packet that ends long before the frame.
fn head(from: &SandboxSpec, to: std::net::Ipv6Addr) -> Vec<u8> {
    let mut frame = MacAddress::GATEWAY.octets().to_vec();
    frame.extend(from.mac().octets());
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]);
    frame.extend(from.address.octets());
    frame.extend(to.octets());
    frame.extend([0, 7, 0, 7, 0, 8, 0, 0]);
    frame
}

#[test]
fn frames_of_every_size_that_an_interface_can_send_leave_vpp_alive() {
    isolated(
        concat!(
            module_path!(),
            "::frames_of_every_size_that_an_interface_can_send_leave_vpp_alive"
        ),
        async || {
            forwarder::share_memory();
            let plane = dataplane().await;
            let specs = [
                spec(1, &["front"]),
                by_memif(2, &["front", "shared"]),
                by_memif(3, &["shared"]),
            ];
            run("ip netns add s1");
            for spec in &specs {
                plane.attach(spec.clone()).await.unwrap();
            }
            let peer = peer(&specs[1]);
            await_ping("s1", specs[1].address);
            let pid = forwarder::vpp().as_ref().unwrap().pid();
            // By way of the border to the first, and of VPP alone to the other.
            for size in SIZES {
                let before = seen_by_router(&specs[1]);
                flood(&peer, &head(&specs[1], specs[0].address), size);
                // One that does not fit into its place is not taken by the kernel.
                let deadline = Instant::now() + PATIENCE;
                while seen_by_router(&specs[1]) < before + u64::from(TURNS * BURST) {
                    assert!(Instant::now() < deadline, "not all of {size} bytes came");
                    // What a busy kernel left in the ring goes with the next.
                    let _answer = ping("s1", specs[1].address);
                }
                flood(&peer, &head(&specs[1], specs[2].address), size);
                await_ping("s1", specs[1].address);
            }
            assert_eq!(forwarder::vpp().as_ref().unwrap().pid(), pid);
            let running = format!("/proc/{pid}/comm");
            let name = std::fs::read_to_string(running).unwrap();
            assert!(name.starts_with("vpp"), "{name}");
            let said = peer.ctl(&format!(
                "ping {} repeat 3 interval 0.1 size 1400",
                specs[0].address
            ));
            assert!(said.contains("3 received"), "{said}");
        },
    );
}
