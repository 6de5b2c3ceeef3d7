//! Ports and their repair, each test in a process and namespaces of its own.

use std::time::{Duration, Instant};

#[path = "../netns/common.rs"]
mod common;
mod forwarder;

use common::*;

mod cases {
    use super::common::*;

    include!("../netns/cases.rs");
}

/// How long a repair may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn ctl(command: &str) -> String {
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
            let before = plane.counters().await.unwrap();
            run(&format!(
                "ip netns exec s1 ping -c 20 -i 0.01 -W 1 {}",
                specs[1].address
            ));
            let after = plane.counters().await.unwrap();
            let passed = |counters: &causeway_dataplane::Counters| {
                counters.sandboxes[&specs[0].uid].sent_packets
            };
            // The sandbox says a thing or two about groups while its interface comes up.
            let seen = passed(&after) - passed(&before);
            assert!(seen < 10, "{seen} of 20 came to the border");
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
                let said = ctl(damage);
                let report = plane.reconcile(&wanted).await.unwrap();
                assert!(report.problems.is_empty(), "{damage}: {said} {report:?}");
                let again = plane.reconcile(&wanted).await.unwrap();
                assert_eq!(again.changes, 0, "{damage}: {said}");
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
