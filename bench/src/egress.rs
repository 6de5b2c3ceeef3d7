//! HTTPS requests: direct, through the proxy unopened, through the proxy with a secret put in,
//! and through a peer that does the same.

use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use causeway::lab::internet::address_of;
use causeway::lab::{Namespace, run_ok};
use rustls::ClientConfig;

use crate::floor::Router;
use crate::netns;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

mod client;
mod cpu;
mod hudsucker;
mod origin;

pub(crate) use hudsucker::build as build_peer;

use client::Target;

/// A site that policy lets through unopened, and one whose requests are looked into.
const OPEN_SITE: &str = "static.example";
const GUARDED_SITE: &str = "api.forge.example";
const POLICY: &str = include_str!("egress/policy.yaml");

const ROUNDS: usize = 5;
/// Connections of the run that counts requests. The run that takes their time has one.
const CONNECTIONS: usize = 32;
const TIME: Duration = Duration::from_millis(1500);
const TIME_ALONE: Duration = Duration::from_millis(700);
/// The size of the body that is fetched whole, in bytes.
const BODY: u32 = 1 << 28;

/// Where the plain router and its one host are.
const PLAIN_PREFIX: &str = "3ffe:b00:5::/64";
const PLAIN_ROUTER: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 5, 0, 0, 0, 0, 1);
const PLAIN_HOST: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 5, 0, 0, 0, 0, 2);

/// One way to the server, and what was seen on it.
struct Way {
    name: &'static str,
    target: Target,
    /// The processes in between.
    between: Vec<u32>,
    rates: Vec<f64>,
    cpu: Vec<f64>,
    p50s: Vec<f64>,
    p99s: Vec<f64>,
    gbps: Vec<f64>,
}

/// `egress.*`.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let internet = world.lab().internet();
    let mut roots = vec![origin::start(&internet, &[OPEN_SITE, GUARDED_SITE])?];
    world.trust(&roots.concat())?;
    let plain = plain_network()?;
    let mut ways = vec![direct(&plain)?];
    ways.extend(ours(world, &mut roots)?);
    let router = Namespace {
        name: "egress-plain".to_owned(),
    };
    let peer = match world.hudsucker() {
        Err(why) => {
            report.missing("egress.hudsucker_rps", why);
            None
        }
        Ok(program) => {
            let listen = SocketAddr::from((PLAIN_ROUTER, hudsucker::PORT));
            let peer = hudsucker::Peer::start(program, &router, listen, world.folder(), &roots)?;
            roots.push(peer.authority.clone());
            ways.push(Way::new(
                "hudsucker",
                peer.target(plain),
                vec![peer.process()],
            ));
            Some(peer)
        }
    };
    let tls = client::trusting(&roots)?;
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.round(&tls).with_context(|| way.name)?;
        }
    }
    drop(peer);
    summarize(ways, report);
    Ok(())
}

impl Way {
    fn new(name: &'static str, target: Target, between: Vec<u32>) -> Self {
        let [rates, cpu, p50s, p99s, gbps] = [const { Vec::new() }; 5];
        Self {
            name,
            target,
            between,
            rates,
            cpu,
            p50s,
            p99s,
            gbps,
        }
    }

    fn round(&mut self, tls: &Arc<ClientConfig>) -> anyhow::Result<()> {
        let before = cpu::used(&self.between)?;
        let many = client::run(&self.target, tls, CONNECTIONS, TIME)?;
        let used = cpu::used(&self.between)?.saturating_sub(before);
        let requests = u32::try_from(many.times.len())?;
        self.cpu
            .push(used.as_secs_f64() * 1e6 / f64::from(requests));
        self.rates.push(many.rate);
        self.p99s
            .extend(Samples::microseconds(&many.times).percentile(99.0));
        let alone = client::run(&self.target, tls, 1, TIME_ALONE)?;
        self.p50s
            .extend(Samples::microseconds(&alone.times).median());
        self.gbps.push(client::fetch(&self.target, tls, BODY)?);
        Ok(())
    }
}

fn summarize(ways: Vec<Way>, report: &mut Report) {
    let mut direct = None;
    for way in ways {
        let median = |values: Vec<f64>| values.into_iter().collect::<Samples>();
        let (rates, p50s, p99s) = (median(way.rates), median(way.p50s), median(way.p99s));
        let name = way.name;
        report.set_median(&format!("egress.{name}_rps"), &rates);
        if !way.between.is_empty() {
            report.set_median(&format!("egress.{name}_cpu_us"), &median(way.cpu));
        }
        report.set_median(&format!("egress.{name}_p50_us"), &p50s);
        report.set_median(&format!("egress.{name}_32_p99_us"), &p99s);
        report.set_median(&format!("egress.{name}_body_gbps"), &median(way.gbps));
        match (direct, p50s.median()) {
            (None, first) => direct = first,
            (Some(direct), Some(p50)) => {
                report.set(&format!("egress.{name}_added_p50_us"), p50 - direct);
            }
            (Some(_), None) => {}
        }
    }
}

/// A host behind a router that only forwards.
fn plain_network() -> anyhow::Result<Namespace> {
    let router = Router::create("egress-plain")?;
    let host = netns::create("egress-direct")?;
    router.attach("port", &host, PLAIN_HOST)?;
    let ip = |arguments: String| run_ok(Command::new("ip").args(arguments.split_whitespace()));
    let inside = |arguments: &str| ip(format!("-n {} {arguments}", router.namespace.name));
    ip("link add plain type veth peer name uplink netns egress-plain".to_owned())?;
    ip("link set plain address 02:00:00:00:00:01 up".to_owned())?;
    ip("addr add fe80::a/64 dev plain nodad".to_owned())?;
    inside("link set uplink up")?;
    inside("addr add fe80::b/64 dev uplink nodad")?;
    inside(&format!("addr add {PLAIN_ROUTER}/128 dev lo nodad"))?;
    inside("-6 route add default via fe80::a dev uplink")?;
    ip(format!("-6 route add {PLAIN_PREFIX} via fe80::b dev plain"))?;
    ip(format!(
        "-n internet -6 route add {PLAIN_PREFIX} via 3ffe:b00:0:ff::2"
    ))?;
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
    Ok(host)
}

fn direct(host: &Namespace) -> anyhow::Result<Way> {
    let address = address_of(OPEN_SITE).context("the site has no address")?;
    let target = Target {
        namespace: host.clone(),
        host: OPEN_SITE,
        address: SocketAddr::from((address, origin::PORT)),
        port: origin::PORT,
        connect: false,
        path: origin::OPEN,
    };
    Ok(Way::new("direct", target, Vec::new()))
}

/// A sandbox that reaches one site unopened, and another with a secret that it never holds.
fn ours(world: &mut World, roots: &mut Vec<String>) -> anyhow::Result<[Way; 2]> {
    let agent = world.agent()?;
    agent.set_secret("TOKEN", origin::SECRET)?;
    agent.apply(POLICY)?;
    roots.push(agent.authority()?);
    let status = agent.status()?;
    // The agent as well: it is told of every request.
    let processes: Vec<u32> = status.proxy.pid.into_iter().chain([status.pid]).collect();
    let sandbox = netns::create("egress-sandbox")?;
    agent.create(&sandbox, "client")?;
    let way = |name, host: &'static str, path| {
        // Asking Causeway's resolver is what a client does; the proxy knows the name by it.
        let address = netns::inside(&sandbox, || {
            let mut found = (host, origin::PORT).to_socket_addrs()?;
            found
                .next()
                .with_context(|| format!("{host} has no address"))
        })?;
        let namespace = sandbox.clone();
        let port = origin::PORT;
        let target = Target {
            namespace,
            host,
            address,
            port,
            connect: false,
            path,
        };
        anyhow::Ok(Way::new(name, target, processes.clone()))
    };
    Ok([
        way("passthrough", OPEN_SITE, origin::OPEN)?,
        way("inject", GUARDED_SITE, origin::GUARDED)?,
    ])
}
