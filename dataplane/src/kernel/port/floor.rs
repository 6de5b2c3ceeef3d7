//! The floor that an attach is measured against: the same link operations and nothing else.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_types::{GATEWAY, Labels, SandboxId, SandboxName, SandboxUid, TenantName};
use ipnet::{IpNet, Ipv6Net};

use super::super::message::{self, VethEnd};
use super::super::namespace::Namespace;
use super::super::route::{Batch, RouteSocket, Verb};
use crate::backend::Backend;
use crate::desired::{Attachment, InterfaceName, Mtu, SandboxSpec};
use crate::facade::Dataplane;
use crate::kernel::{KernelBackend, KernelConfig};

const COUNT: u16 = 200;

/// A measurement: in fresh namespaces (`unshare --net --mount`) with tmpfs on /run.
#[test]
#[ignore = "a measurement that needs namespaces of its own"]
fn attach_beside_bare_netlink() {
    let run = |line: &str| {
        assert!(
            Command::new("sh")
                .args(["-c", line])
                .status()
                .unwrap()
                .success(),
            "{line}"
        );
    };
    run("mkdir -p /run/netns");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let config = KernelConfig {
            operator_prefixes: vec!["2001:db8:1::/48".parse().unwrap()],
            ..KernelConfig::default()
        };
        let backend = Arc::new(KernelBackend::new(config));
        let plane = Dataplane::open(Arc::<KernelBackend>::clone(&backend))
            .await
            .unwrap();
        for n in 0..COUNT {
            run(&format!("ip netns add s{n}; ip netns add f{n}"));
        }
        let (mut attach, mut links, mut floor) = (Vec::new(), Vec::new(), Vec::new());
        let mut bare = Bare::new();
        for n in 0..COUNT {
            let start = Instant::now();
            plane.attach(spec(n)).await.unwrap();
            attach.push(start.elapsed());
            floor.push(bare.attach(n));
            plane.detach(spec(n).uid).await.unwrap();
            let start = Instant::now();
            backend.attach(&spec(n)).await.unwrap();
            links.push(start.elapsed());
        }
        println!("attach {:?}", quantiles(attach));
        println!("links  {:?}", quantiles(links));
        println!("floor  {:?}", quantiles(floor));
        for n in 0..COUNT {
            plane.detach(spec(n).uid).await.unwrap();
        }
        for chunk in 0..2 {
            let mut running = tokio::task::JoinSet::new();
            let start = Instant::now();
            for n in chunk * 100..(chunk + 1) * 100 {
                let plane = plane.clone();
                running.spawn(async move {
                    plane.attach(spec(n)).await.unwrap();
                    start.elapsed()
                });
            }
            println!("100 at once {:?}", quantiles(running.join_all().await));
        }
    });
}

fn quantiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn spec(n: u16) -> SandboxSpec {
    SandboxSpec {
        uid: SandboxUid::from_random(u64::from(n)),
        id: SandboxId::new(
            TenantName::new("t").unwrap(),
            SandboxName::new(format!("s{n}")).unwrap(),
        ),
        address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n + 1),
        prefix: None,
        attachment: Attachment::Netns {
            path: PathBuf::from(format!("/run/netns/s{n}")),
            interface: InterfaceName::default(),
        },
        mtu: Mtu::default(),
        networks: std::collections::BTreeSet::new(),
        labels: Labels::default(),
        firewall: Arc::default(),
        quarantined: false,
    }
}

/// Veth pair, both ends up, addresses and routes, by somebody in a hurry.
struct Bare {
    home: Namespace,
    routes: RouteSocket,
}

impl Bare {
    fn new() -> Self {
        Self {
            home: Namespace::current().unwrap(),
            routes: RouteSocket::open().unwrap(),
        }
    }

    fn attach(&mut self, n: u16) -> Duration {
        let start = Instant::now();
        let target = Namespace::open(&PathBuf::from(format!("/run/netns/f{n}"))).unwrap();
        let index = 10_000 + u32::from(n);
        let address = IpNet::from(Ipv6Net::from(Ipv6Addr::new(
            0x2001, 0xdb8, 2, 0, 0, 0, 0, n,
        )));
        let link_local = IpNet::from(Ipv6Net::new_assert(GATEWAY, 64));
        let name = format!("b{n}");
        let end = |name, namespace, up| VethEnd {
            name,
            mac: None,
            mtu: 1500,
            index: Some(index),
            namespace,
            up,
            group: None,
        };
        // The end that is made first cannot be up yet: it has no peer.
        let peer = end("eth0", Some(target.as_fd().as_raw_fd()), false);
        let mut batch = Batch::default();
        batch.push(
            Verb::Create,
            message::new_veth(&end(&name, None, true), &peer),
            "",
            "",
        );
        batch.push(Verb::Create, message::address(index, link_local), "", "");
        batch.push(Verb::Create, message::route(index, address, None), "", "");
        self.routes.run(batch).unwrap();
        target.enter().unwrap();
        let mut batch = Batch::default();
        batch.push(Verb::Change, message::link_up(1), "", "");
        batch.push(Verb::Change, message::link_up(index), "", "");
        batch.push(Verb::Create, message::address(index, address), "", "");
        let everywhere = IpNet::from(Ipv6Net::default());
        let gateway = Some(IpAddr::V6(GATEWAY));
        batch.push(
            Verb::Create,
            message::route(index, everywhere, gateway),
            "",
            "",
        );
        RouteSocket::open().unwrap().run(batch).unwrap();
        self.home.enter().unwrap();
        start.elapsed()
    }
}
