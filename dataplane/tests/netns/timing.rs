//! How long an attach takes, beside the same link operations by bare netlink.

use std::process::Command;
use std::time::{Duration, Instant};

use super::common::{dataplane, desired, isolated, ping, run, spec};

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

const COUNT: u16 = 200;

/// Not a check but a measurement: `cargo test -- --ignored --nocapture attach_time`.
#[test]
#[ignore = "a measurement"]
fn attach_time() {
    isolated("timing::attach_time", async || {
        let plane = dataplane().await;
        for n in 1..=COUNT {
            run(&format!("ip netns add s{n}; ip netns add f{n}"));
        }
        let mut attach = Vec::new();
        let mut floor = Vec::new();
        for n in 1..=COUNT {
            let spec = spec(n, &["front"]);
            let start = Instant::now();
            plane.attach(spec).await.unwrap();
            attach.push(start.elapsed());
            floor.push(bare(n));
        }
        println!(
            "one at a time: attach p50 {:?} p99 {:?}",
            median(attach.clone()).0,
            median(attach).1
        );
        println!(
            "floor: p50 {:?} p99 {:?}",
            median(floor.clone()).0,
            median(floor).1
        );
        let specs: Vec<_> = (1..=COUNT).map(|n| spec(n, &["front"])).collect();
        let start = Instant::now();
        assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
        println!("reconcile of {COUNT}, nothing to do: {:?}", start.elapsed());
        for batch in specs.chunks(100) {
            for spec in batch {
                plane.detach(spec.uid).await.unwrap();
            }
            let mut running = tokio::task::JoinSet::new();
            let start = Instant::now();
            for spec in batch {
                let (plane, spec) = (plane.clone(), spec.clone());
                running.spawn(async move {
                    let start = Instant::now();
                    plane.attach(spec).await.unwrap();
                    start.elapsed()
                });
            }
            let times = running.join_all().await;
            println!(
                "100 at once: p50 {:?} p99 {:?} all {:?}",
                median(times.clone()).0,
                median(times).1,
                start.elapsed()
            );
        }
    });
}

/// The same link operations through `ip -batch`, one process whose start is not counted apart.
fn bare(n: u16) -> Duration {
    let script = format!(
        "link add b{n} mtu 1500 type veth peer name eth0 netns f{n}\n\
         addr add fe80::1/64 dev b{n} nodad\nlink set b{n} up\n\
         route add 2001:db8:2::{n:x}/128 dev b{n}\n"
    );
    let inside = format!(
        "link set lo up\nlink set eth0 up\naddr add 2001:db8:2::{n:x}/128 dev eth0 nodad\n\
         route add default via fe80::1 dev eth0 onlink\n"
    );
    std::fs::write("/tmp/outer", script).unwrap();
    std::fs::write("/tmp/inner", inside).unwrap();
    let start = Instant::now();
    for arguments in [
        [
            "-n".to_owned(),
            "causeway".to_owned(),
            "-batch".to_owned(),
            "/tmp/outer".to_owned(),
        ],
        [
            "-n".to_owned(),
            format!("f{n}"),
            "-batch".to_owned(),
            "/tmp/inner".to_owned(),
        ],
    ] {
        assert!(
            Command::new("ip")
                .args(arguments)
                .status()
                .unwrap()
                .success()
        );
    }
    start.elapsed()
}

/// Fifteen hundred ports. Slow, since making the namespaces is.
#[test]
#[ignore = "takes a minute"]
fn fifteen_hundred_ports() {
    isolated("timing::fifteen_hundred_ports", async || {
        let plane = dataplane().await;
        let count = 1500_u16;
        for n in 1..=count {
            run(&format!("ip netns add s{n}"));
        }
        let mut times = Vec::new();
        for n in 1..=count {
            let start = Instant::now();
            plane.attach(spec(n, &["front"])).await.unwrap();
            times.push(start.elapsed());
        }
        println!(
            "the first hundred: p50 {:?}",
            median(times[..100].to_vec()).0
        );
        println!(
            "the last hundred: p50 {:?}",
            median(times[1400..].to_vec()).0
        );
        for n in [1, 700, 1499] {
            assert!(ping(&format!("s{n}"), spec(n + 1, &[]).address).success());
        }
        let specs: Vec<_> = (1..=count).map(|n| spec(n, &["front"])).collect();
        let start = Instant::now();
        assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
        println!("reconcile of {count}, nothing to do: {:?}", start.elapsed());
        let start = Instant::now();
        plane.teardown().await.unwrap();
        println!("teardown of {count}: {:?}", start.elapsed());
        assert!(!run("ip -n s1500 link").contains("eth0"));
    });
}

/// How soon a packet comes back after an attach.
#[test]
#[ignore = "a measurement"]
fn first_ping() {
    isolated("timing::first_ping", async || {
        let plane = dataplane().await;
        for n in 1..=20 {
            run(&format!("ip netns add s{n}"));
            plane.attach(spec(n, &["front"])).await.unwrap();
            let to = if n % 2 == 0 {
                "fe80::1%eth0".to_owned()
            } else {
                spec(1, &[]).address.to_string()
            };
            let out = run(&format!(
                "ip netns exec s{n} ping -c 300 -i 0.01 -W 1 {to} | grep -m1 -o 'icmp_seq=[0-9]*'"
            ));
            println!("{n}: {}", out.trim());
        }
        println!("{}", run("ip -n causeway -s link show cw000000001014"));
    });
}
