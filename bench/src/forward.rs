//! Forwarding between two sandboxes, beside the same links without anything but routes.

use std::net::Ipv6Addr;

use causeway::lab::Namespace;

use crate::floor::Router;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;
use crate::{iperf, netns};

const ROUNDS: usize = 9;
const FLOOR_PREFIX: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 2, 0, 0, 0, 0, 0);

/// Two sandboxes that reach each other.
struct Pair {
    names: [&'static str; 2],
    from: Namespace,
    to: Namespace,
    address: Ipv6Addr,
    gbps: Vec<f64>,
    pps: Vec<f64>,
}

/// `forward.*`.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let router = Router::create("forward-floor")?;
    let mut pairs = [ours(world)?, floor(&router)?];
    for _ in 0..ROUNDS {
        for pair in &mut pairs {
            pair.gbps
                .push(iperf::tcp_gbps(&pair.from, &pair.to, pair.address)?);
        }
        for pair in &mut pairs {
            pair.pps
                .push(iperf::udp_pps(&pair.from, &pair.to, pair.address)?);
        }
    }
    for pair in pairs {
        let [gbps, pps] = pair.names;
        report.set_median(gbps, &pair.gbps.into_iter().collect::<Samples>());
        report.set_median(pps, &pair.pps.into_iter().collect::<Samples>());
    }
    Ok(())
}

fn ours(world: &mut World) -> anyhow::Result<Pair> {
    let namespaces = netns::create_many("forward-kernel", 2)?;
    let mut sandboxes = Vec::new();
    for namespace in &namespaces {
        sandboxes.push(world.dataplane()?.attach(namespace)?);
    }
    pair(
        ["forward.kernel_gbps", "forward.kernel_64b_pps"],
        namespaces,
        &sandboxes,
    )
}

fn floor(router: &Router) -> anyhow::Result<Pair> {
    let namespaces = netns::create_many("forward-floor", 2)?;
    let mut addresses = Vec::new();
    for (index, namespace) in namespaces.iter().enumerate() {
        let address = netns::host(FLOOR_PREFIX, index + 1)?;
        router.attach(&format!("port{index}"), namespace, address)?;
        addresses.push(address);
    }
    pair(
        ["forward.veth_floor_gbps", "forward.veth_floor_64b_pps"],
        namespaces,
        &addresses,
    )
}

fn pair(
    names: [&'static str; 2],
    namespaces: Vec<Namespace>,
    addresses: &[Ipv6Addr],
) -> anyhow::Result<Pair> {
    let [from, to] = <[Namespace; 2]>::try_from(namespaces)
        .map_err(|_other| anyhow::anyhow!("two namespaces are needed"))?;
    let address = *addresses.last().unwrap_or(&Ipv6Addr::LOCALHOST);
    Ok(Pair {
        names,
        from,
        to,
        address,
        gbps: Vec::new(),
        pps: Vec::new(),
    })
}
