//! Ports and their repair, each test in a process and namespaces of its own.

use std::time::{Duration, Instant};

#[path = "../netns/common.rs"]
pub(crate) mod common;
pub(crate) mod forwarder;
mod shared;
mod supervised;

use common::*;

#[path = "../netns/tap.rs"]
mod tap;

mod cases {
    use super::common::*;

    include!("../netns/cases.rs");
}

/// How long a repair may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn ctl(command: &str) -> String {
    forwarder::vpp().as_ref().unwrap().ctl(command)
}

/// Pings until it succeeds, and says how long that took.
fn await_ping(from: &str, to: std::net::Ipv6Addr) -> Duration {
    let begun = Instant::now();
    while !ping(from, to).success() {
        assert!(begun.elapsed() < PATIENCE, "{from} does not reach {to}");
    }
    begun.elapsed()
}

#[test]
fn what_is_unrestricted_never_comes_to_the_border() {
    isolated(
        concat!(
            module_path!(),
            "::what_is_unrestricted_never_comes_to_the_border"
        ),
        async || {
            let plane = dataplane().await;
            let specs = [spec(1, &["front"]), spec(2, &["front"])];
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
                plane.attach(spec.clone()).await.unwrap();
            }
            let border = || {
                let file = format!("/sys/class/net/cw{}/statistics/rx_packets", specs[0].uid);
                let text = run(&format!(
                    "nsenter --net=/run/netns/causeway unshare -m sh -c \
                     'mount -t sysfs sysfs /sys; cat {file}'"
                ));
                text.trim().parse::<u64>().unwrap()
            };
            let (before, sent) = (border(), plane.counters().await.unwrap());
            run(&format!(
                "ip netns exec s1 ping -c 20 -i 0.01 -W 1 {}",
                specs[1].address
            ));
            // The sandbox says a thing or two about groups while its interface comes up.
            let seen = border() - before;
            assert!(seen < 10, "{seen} of 20 came to the border");
            // It is counted all the same, by VPP.
            let deadline = Instant::now() + PATIENCE;
            loop {
                let now = plane.counters().await.unwrap();
                let of = |counters: &causeway_dataplane::Counters| {
                    let sandbox = &counters.sandboxes[&specs[0].uid];
                    sandbox.sent_packets.min(sandbox.received_packets)
                };
                if of(&now) >= of(&sent) + 20 {
                    break;
                }
                assert!(Instant::now() < deadline, "{now:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        },
    );
}

#[test]
fn what_vpp_gives_up_is_counted_for_its_sender() {
    isolated(
        concat!(
            module_path!(),
            "::what_vpp_gives_up_is_counted_for_its_sender"
        ),
        async || {
            let plane = dataplane().await;
            let specs = [spec(1, &["front"]), spec(2, &["front"])];
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
                plane.attach(spec.clone()).await.unwrap();
            }
            await_ping("s1", specs[1].address);
            let dropped = async |spec: &causeway_dataplane::SandboxSpec| {
                // VPP writes its counters down now and then.
                tokio::time::sleep(Duration::from_millis(100)).await;
                let counters = plane.counters().await.unwrap();
                let drops = &counters.sandboxes[&spec.uid].drops;
                drops
                    .get(&causeway_types::Reason::Forwarder)
                    .copied()
                    .unwrap_or(0)
            };
            let before = dropped(&specs[0]).await;
            let ping = |hops: u8| {
                let line = "ip netns exec s1 ping -c 5 -i 0.01 -W 1";
                shell(&format!("{line} -t {hops} {} || true", specs[1].address));
            };
            ping(64);
            assert_eq!(dropped(&specs[0]).await, before);
            ping(1);
            let deadline = Instant::now() + PATIENCE;
            while dropped(&specs[0]).await < before + 5 {
                assert!(Instant::now() < deadline, "{:?}", plane.counters().await);
            }
            assert_eq!(dropped(&specs[1]).await, 0, "the other sent nothing of it");
        },
    );
}

#[test]
fn a_vpp_that_restarts_gets_everything_back() {
    isolated(
        concat!(module_path!(), "::a_vpp_that_restarts_gets_everything_back"),
        async || {
            let plane = dataplane().await;
            let specs: Vec<_> = (1..=4).map(|n| spec(n, &["front"])).collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
                plane.attach(spec.clone()).await.unwrap();
            }
            let wanted = desired(&specs);
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            let links = run("ip -n s1 -o link");
            forwarder::vpp().as_mut().unwrap().kill();
            assert!(!ping("s1", specs[1].address).success());
            forwarder::vpp().as_mut().unwrap().restart();
            let report = plane.reconcile(&wanted).await.unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            for spec in &specs[1..] {
                await_ping("s1", spec.address);
            }
            assert_eq!(
                run("ip -n s1 -o link"),
                links,
                "the sandbox saw nothing of it"
            );
            // And so does another agent that takes over.
            let plane = dataplane().await;
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            plane.teardown().await.unwrap();
            let left = ctl("show interface");
            assert!(!left.contains("host-"), "{left}");
            let tables = ctl("show ip6 fib summary");
            assert!(!tables.contains("causeway"), "{tables}");
        },
    );
}

#[test]
fn damage_of_every_kind_is_repaired() {
    isolated(
        concat!(module_path!(), "::damage_of_every_kind_is_repaired"),
        async || {
            let plane = dataplane().await;
            let specs: Vec<_> = (1..=3).map(|n| spec(n, &["front"])).collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
            }
            let wanted = desired(&specs);
            let report = plane.reconcile(&wanted).await.unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            for damage in [
                "set interface state host-cv000000001001 down",
                "set interface l3 host-cv000000001002",
                "delete host-interface name cb000000001001",
                "delete host-interface name cv000000001003",
                "ip route del 2001:db8:1::7:102/128 table 2147483649",
                "ip route del ::/0 table 2147483649",
                "ip route del 2001:db8:1::7:102/128 table 2147483648",
                "set ip6 neighbor del host-cv000000001002 2001:db8:1::7:102 06:00:07:01:02:03",
            ] {
                let links = run("ip -n s1 -o link; ip -n s2 -o link; ip -n s3 -o link");
                let said = ctl(damage);
                let report = plane.reconcile(&wanted).await.unwrap();
                assert!(report.problems.is_empty(), "{damage}: {said} {report:?}");
                let again = plane.reconcile(&wanted).await.unwrap();
                assert_eq!(again.changes, 0, "{damage}: {said}");
                let now = run("ip -n s1 -o link; ip -n s2 -o link; ip -n s3 -o link");
                assert_eq!(now, links, "{damage}: the sandboxes saw nothing of it");
                for spec in &specs[1..] {
                    await_ping("s1", spec.address);
                }
            }
        },
    );
}

#[test]
fn a_detached_sandbox_leaves_nothing() {
    isolated(
        concat!(module_path!(), "::a_detached_sandbox_leaves_nothing"),
        async || {
            let plane = dataplane().await;
            for n in 1..=2 {
                run(&format!("ip netns add s{n}"));
            }
            plane.attach(spec(2, &["front"])).await.unwrap();
            let seen = || {
                [
                    ctl("show mode"),
                    ctl("show bridge-domain"),
                    ctl("show classify tables"),
                    ctl("show ip6 fib"),
                    run(
                        "ip -o link | cut -d: -f2; ip netns exec causeway ip -o link | cut -d: -f2",
                    ),
                ]
                .map(|text| text.lines().count())
            };
            plane.attach(spec(1, &["front"])).await.unwrap();
            plane.detach(spec(1, &[]).uid).await.unwrap();
            let before = seen();
            for _ in 0..10 {
                plane.attach(spec(1, &["front"])).await.unwrap();
                assert!(ping("s1", spec(2, &[]).address).success());
                plane.detach(spec(1, &[]).uid).await.unwrap();
            }
            assert_eq!(before, seen());
        },
    );
}

/// An echo server over TCP, and a client that asks it every tenth of a second and ends with an
/// error when one answer does not come within five seconds.
const STREAM: &str = r#"
import socket, sys, time
address, port, mode = sys.argv[1], 7000, sys.argv[2]
if mode == "serve":
    listener = socket.create_server((address, port), family=socket.AF_INET6)
    stream, _ = listener.accept()
    while data := stream.recv(100):
        stream.sendall(data)
else:
    stream = socket.create_connection((address, port), timeout=5)
    for turn in range(60):
        stream.sendall(b"x")
        if stream.recv(1) != b"x":
            sys.exit("the stream ended")
        time.sleep(0.1)
"#;

#[test]
fn a_stream_survives_as_long_as_it_is_permitted_whoever_carries_it() {
    isolated(
        concat!(
            module_path!(),
            "::a_stream_survives_as_long_as_it_is_permitted_whoever_carries_it"
        ),
        async || {
            let plane = dataplane().await;
            let specs = [spec(1, &["front"]), spec(2, &["front"])];
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
                plane.attach(spec.clone()).await.unwrap();
            }
            std::fs::write("/run/stream.py", STREAM).unwrap();
            let start = |namespace: &str, mode: &str| {
                let mut command = std::process::Command::new("ip");
                command.args(["netns", "exec", namespace, "python3", "/run/stream.py"]);
                command.args([&specs[1].address.to_string(), mode]);
                command.spawn().unwrap()
            };
            let mut server = start("s2", "serve");
            tokio::time::sleep(Duration::from_millis(500)).await;
            let mut client = start("s1", "ask");
            // From everything to one port and back, twice: VPP, the border, VPP, the border, VPP.
            let narrow = causeway_dataplane::Firewall {
                ingress: causeway_dataplane::Ingress::Rules(vec![
                    causeway_dataplane::IngressRule {
                        from: causeway_dataplane::IngressPeer::Network {
                            network: specs[0].networks.first().unwrap().clone(),
                            labels: causeway_types::Labels::default(),
                        },
                        ports: causeway_dataplane::Ports::Only(vec![
                            causeway_dataplane::PortRange::new(
                                causeway_dataplane::Protocol::Tcp,
                                7000,
                                7000,
                            )
                            .unwrap(),
                        ]),
                    },
                ]),
                ..causeway_dataplane::Firewall::default()
            };
            let narrow = std::sync::Arc::new(narrow);
            for turn in 0..4 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut second = specs[1].clone();
                if turn % 2 == 0 {
                    second.firewall = std::sync::Arc::clone(&narrow);
                }
                plane.update(vec![second.clone()]).await.unwrap();
                assert_eq!(ping("s1", second.address).success(), turn % 2 == 1);
            }
            assert!(client.wait().unwrap().success(), "the stream broke");
            server.wait().unwrap();
        },
    );
}
