//! Allocation: in memory at several fills, and durably on the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use causeway_ipam::{
    BlockKey, Ipam, Owner, Plan, PlanSettings, RedbStore, Request, Service, Snapshot, UnixMillis,
};

use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

/// Allocations in one round, and rounds.
const BATCH: u32 = 100;
const ROUNDS: u32 = 5;
/// Addresses of the small block, a /112.
const SMALL: usize = 1 << 16;
/// How full the small block is, in percent.
const FILLS: [usize; 3] = [0, 50, 99];
/// Leases in the /64 beforehand.
const IN_LARGE: usize = 10_000;
const DURABLE: usize = 500;
const DURABLE_PATIENCE: Duration = Duration::from_secs(5);
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// `ipam.*`.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    in_memory(report)?;
    let path = world.folder().join("ipam.redb");
    durable(&path, report)
}

fn in_memory(report: &mut Report) -> anyhow::Result<()> {
    let large = book("3ffe:ca05:1:1::/64")?;
    let mut books = vec![(
        "ipam.allocate_ns".to_owned(),
        filled(large, IN_LARGE)?,
        Vec::new(),
    )];
    for fill in FILLS {
        let name = format!("ipam.allocate_ns_fill_{fill}");
        let book = book("3ffe:ca05:1:2::/112")?;
        books.push((name, filled(book, SMALL * fill / 100)?, Vec::new()));
    }
    for round in 0..ROUNDS {
        for (name, book, times) in &mut books {
            let owners = (0..BATCH)
                .map(|index| Owner::new(&format!("round-{round}-{index}")))
                .collect::<Result<Vec<_>, _>>()?;
            let start = Instant::now();
            for owner in &owners {
                allocate(book, owner).with_context(|| name.clone())?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
        }
    }
    for (name, _, times) in books {
        report.set_median(&name, &times.into_iter().collect::<Samples>());
    }
    Ok(())
}

fn durable(path: &Path, report: &mut Report) -> anyhow::Result<()> {
    let mut service = Service::open(plan("3ffe:ca05:1:1::/64")?, RedbStore::open(path)?)?;
    let start = Instant::now();
    let mut done = 0_u32;
    for index in 0..DURABLE {
        let owner = Owner::new(&format!("durable-{index}"))?;
        service.allocate(&owner, Request::default(), NOW)?;
        done += 1;
        if start.elapsed() > DURABLE_PATIENCE {
            break;
        }
    }
    report.set(
        "ipam.durable_per_s",
        f64::from(done) / start.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn plan(block: &str) -> anyhow::Result<Plan> {
    Ok(Plan::new(PlanSettings {
        operator_prefix: "3ffe:ca05:1::/48".parse()?,
        node_block: block.parse()?,
        prefix_pools: Vec::new(),
        exclusions: Vec::new(),
        quarantine: Duration::from_secs(300),
        key: BlockKey::new([7; 16]),
    })?)
}

fn book(block: &str) -> anyhow::Result<Ipam> {
    Ok(Ipam::restore(plan(block)?, &Snapshot::default())?)
}

fn filled(mut book: Ipam, leases: usize) -> anyhow::Result<Ipam> {
    for index in 0..leases {
        allocate(&mut book, &Owner::new(&format!("filler-{index}"))?)?;
    }
    Ok(book)
}

fn allocate(book: &mut Ipam, owner: &Owner) -> anyhow::Result<()> {
    let mut transaction = book.begin();
    transaction.allocate(owner, Request::default(), NOW)?;
    transaction.apply();
    Ok(())
}
