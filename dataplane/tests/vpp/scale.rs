//! Many sandboxes on one VPP, each test in a process and namespaces of its own.

use std::net::Ipv6Addr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use causeway_dataplane::{Dataplane, SandboxSpec};
use tokio::task::JoinSet;

use super::instance::{Instance, Room};
use super::ports::{common::*, ctl, forwarder};

mod cycles;
mod room;

/// Sandboxes on the full node. What takes the time is the kernel: making a packet socket waits
/// three times until no processor sees what was before, some forty milliseconds in all, closing
/// it as long, and VPP has two for each sandbox and makes one after the other. So
/// `CAUSEWAY_TEST_SANDBOXES=1000` is a test of a quarter of an hour.
const SANDBOXES: u16 = 150;

/// Networks on the full node; number `n` is in network `n` modulo this.
const NETWORKS: u16 = 10;

/// How many of them are looked at.
const SAMPLE: u16 = 16;

/// How long it may take until all of the sample answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// More sandboxes than VPP reads sockets at a time.
const CROWD: u16 = 24;

fn sandboxes() -> u16 {
    let asked = std::env::var("CAUSEWAY_TEST_SANDBOXES");
    asked.map_or(SANDBOXES, |count| count.parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
fn say(what: &str, since: Instant) {
    println!("{what}: {} ms", since.elapsed().as_millis());
}

/// A flow of echo requests, which says at its end what it lost.
struct Flow(Option<Child>);

impl Flow {
    fn start(from: &str, to: &str, every: &str) -> Self {
        let child = Command::new("ip")
            .args(["netns", "exec", from, "ping", "-q", "-i", every, to])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(Some(child))
    }

    /// Packets that were sent, and that came back.
    fn end(mut self) -> (u64, u64) {
        let child = self.0.take().unwrap();
        run(&format!("kill -INT {}", child.id()));
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("transmitted"));
        let numbers: Vec<u64> = line
            .unwrap()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        (numbers[0], numbers[1])
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Which of the pairs reach each other, all tried at the same time.
async fn reached(pairs: &[(String, Ipv6Addr)]) -> Vec<bool> {
    let tries = pairs
        .iter()
        .cloned()
        .map(|(from, to)| tokio::task::spawn_blocking(move || ping(&from, to).success()));
    let mut reached = Vec::new();
    for done in tries.collect::<Vec<_>>() {
        reached.push(done.await.unwrap());
    }
    reached
}

async fn all_reached(pairs: &[(String, Ipv6Addr)]) {
    let begun = Instant::now();
    while !reached(pairs).await.iter().all(|reached| *reached) {
        assert!(begun.elapsed() < PATIENCE, "not all are reached");
    }
}

async fn attach_all(plane: &Dataplane, specs: &[SandboxSpec]) {
    let mut running = JoinSet::new();
    for spec in specs {
        let (plane, spec) = (plane.clone(), spec.clone());
        running.spawn(async move { plane.attach(spec).await });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap().unwrap();
    }
}

async fn detach_all(plane: &Dataplane, specs: &[SandboxSpec]) {
    let mut running = JoinSet::new();
    for spec in specs {
        let (plane, uid) = (plane.clone(), spec.uid);
        running.spawn(async move { plane.detach(uid).await });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap().unwrap();
    }
}

fn make_room(room: Room) {
    *forwarder::vpp() = Some(Instance::start_with("/run/vpp", room));
}

fn pid() -> u32 {
    forwarder::vpp().as_ref().unwrap().pid()
}

/// What there is that each sandbox adds to.
fn seen() -> Vec<(&'static str, usize)> {
    [
        ("interfaces", ctl("show interface")),
        ("bridges", ctl("show bridge-domain")),
        ("classifiers", ctl("show classify tables")),
        ("routes and tables", ctl("show ip6 fib")),
        ("neighbours", ctl("show ip6 neighbors")),
        ("links", run("ip -o link")),
        ("ports", run("ip -n causeway -o link")),
        ("the border's routes", run("ip -n causeway -6 route")),
        ("the border's neighbours", run("ip -n causeway -6 neigh")),
        ("elements", run("ip netns exec causeway nft list table inet causeway | grep -c 2001:db8:1:: || true")),
    ]
    .into_iter()
    .map(|(what, text)| match text.trim().parse() {
        Ok(count) => (what, count),
        Err(_) => (what, text.lines().count()),
    })
    .collect()
}

#[test]
fn many_that_speak_at_once_do_not_hold_vpp() {
    isolated(
        concat!(module_path!(), "::many_that_speak_at_once_do_not_hold_vpp"),
        async || {
            let plane = dataplane().await;
            let specs: Vec<_> = (1..=CROWD).map(|n| spec(n, &["front"])).collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
            }
            attach_all(&plane, &specs).await;
            // While VPP does something else, each of them sends something.
            let process = pid();
            run(&format!("kill -STOP {process}"));
            let say_something = |spec: &SandboxSpec| {
                let (from, to) = (&spec.id.name, specs[0].address);
                format!("ip netns exec {from} ping -c 1 -W 1 {to} & ")
            };
            let line: String = specs.iter().map(say_something).collect();
            shell(&(line + "wait"));
            run(&format!("kill -CONT {process}"));
            let pairs: Vec<_> = specs
                .windows(2)
                .map(|pair| (pair[0].id.name.to_string(), pair[1].address))
                .collect();
            all_reached(&pairs).await;
            assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
        },
    );
}

#[test]
fn a_full_node_survives_the_death_of_vpp() {
    isolated(
        concat!(module_path!(), "::a_full_node_survives_the_death_of_vpp"),
        async || {
            let count = sandboxes();
            make_room(Room::MANY);
            let plane = dataplane().await;
            let specs: Vec<_> = (1..=count)
                .map(|n| spec(n, &[format!("net{}", n % NETWORKS).as_str()]))
                .collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
            }
            let empty = seen();
            let begun = Instant::now();
            attach_all(&plane, &specs).await;
            say(&format!("attach.vpp_fill_{count}"), begun);
            let at = |n: u16| &specs[usize::from(n)];
            let pairs = |distance: u16| -> Vec<(String, Ipv6Addr)> {
                let step = usize::from((count / SAMPLE).max(1));
                (0..count)
                    .step_by(step)
                    .map(|n| {
                        (
                            at(n).id.name.to_string(),
                            at((n + distance) % count).address,
                        )
                    })
                    .collect()
            };
            // The last ones' neighbours are the first ones only where the networks come out even.
            let (friends, strangers) = (pairs(NETWORKS), pairs(NETWORKS + 1));
            let reachable: Vec<bool> = reached(&friends).await;
            assert!(reachable.iter().all(|reached| *reached), "{reachable:?}");
            assert!(reached(&strangers).await.iter().all(|reached| !reached));
            let wanted = desired(&specs);
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);

            let flow = Flow::start("s1", &at(NETWORKS).address.to_string(), "0.05");
            let begun = Instant::now();
            forwarder::vpp().as_mut().unwrap().kill();
            say("until the kernel has cleared up after VPP", begun);
            let begun = Instant::now();
            forwarder::vpp().as_mut().unwrap().restart();
            let report = plane.reconcile(&wanted).await.unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            all_reached(&friends).await;
            say(&format!("resync.vpp_{count}"), begun);
            assert!(reached(&strangers).await.iter().all(|reached| !reached));
            let begun = Instant::now();
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            say("a reconcile that finds nothing", begun);
            let (sent, received) = flow.end();
            assert!(0 < received && received < sent, "{received} of {sent}");

            let begun = Instant::now();
            detach_all(&plane, &specs).await;
            say("detach all", begun);
            assert_eq!(seen(), empty);
        },
    );
}

#[test]
fn an_agent_that_restarts_loses_no_packet() {
    isolated(
        concat!(module_path!(), "::an_agent_that_restarts_loses_no_packet"),
        async || {
            let mut plane = dataplane().await;
            let specs: Vec<_> = (1..=4).map(|n| spec(n, &["front"])).collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
            }
            let wanted = desired(&specs);
            assert!(plane.reconcile(&wanted).await.unwrap().problems.is_empty());
            all_reached(&[("s1".into(), specs[1].address)]).await;
            // One that VPP carries by itself, and one that the border does.
            let flows = [
                Flow::start("s1", &specs[1].address.to_string(), "0.002"),
                Flow::start("s3", "fe80::1%eth0", "0.002"),
            ];
            for _ in 0..5 {
                drop(plane);
                tokio::time::sleep(Duration::from_millis(200)).await;
                plane = dataplane().await;
                assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            for flow in flows {
                let (sent, received) = flow.end();
                assert!(sent > 500, "only {sent} were sent");
                // The last may still be on its way.
                assert!(sent - received <= 1, "{received} of {sent}");
            }
        },
    );
}
