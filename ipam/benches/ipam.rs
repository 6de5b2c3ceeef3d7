//! What an allocation costs: in memory at several fills, and durable, one at a time and as
//! many as fit one commit. Prints one flat JSON object of name to number.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::time::{Duration, Instant};

use causeway_ipam::{
    BlockKey, Ipam, Owner, Plan, PlanSettings, RedbStore, Request, Service, Snapshot, UnixMillis,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const NOW: UnixMillis = UnixMillis(0);
const SAMPLES: u32 = 2_000;

fn main() -> Outcome<()> {
    let mut report = BTreeMap::new();
    for (name, block, held) in [
        ("ipam.allocate_ns", "2001:db8::/64", 0),
        ("ipam.allocate_ns_at_10000", "2001:db8::/64", 10_000),
        ("ipam.allocate_ns_at_1000000", "2001:db8::/64", 1_000_000),
        ("ipam.allocate_ns_95_percent_full", "2001:db8::/112", 62_000),
    ] {
        report.insert(name, in_memory(block, held)?);
    }
    report.insert("ipam.durable_per_s", durable(1)?);
    report.insert("ipam.durable_per_s_in_batches_of_100", durable(100)?);
    writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string_pretty(&report)?
    )?;
    Ok(())
}

fn plan(block: &str) -> Outcome<Plan> {
    Ok(Plan::new(PlanSettings {
        operator_prefix: "2001:db8::/32".parse()?,
        node_block: block.parse()?,
        prefix_pools: Vec::new(),
        exclusions: Vec::new(),
        quarantine: Duration::from_secs(900),
        key: BlockKey::new([7; 16]),
    })?)
}

fn owner(number: u32) -> Outcome<Owner> {
    Ok(Owner::new(&format!("{number:012x}"))?)
}

/// Median nanoseconds of one allocation when `held` addresses are held.
fn in_memory(block: &str, held: u32) -> Outcome<u64> {
    let mut ipam = Ipam::restore(plan(block)?, &Snapshot::default())?;
    let mut allocate = |number| -> Outcome<Duration> {
        let owner = owner(number)?;
        let begin = Instant::now();
        let mut transaction = ipam.begin();
        transaction.allocate(&owner, Request::default(), NOW)?;
        transaction.apply();
        Ok(begin.elapsed())
    };
    for number in 0..held {
        allocate(number)?;
    }
    let mut times = (held..held + SAMPLES)
        .map(allocate)
        .collect::<Outcome<Vec<Duration>>>()?;
    times.sort_unstable();
    Ok(u64::try_from(times[times.len() / 2].as_nanos())?)
}

/// Durable allocations each second, `batch` of them in one commit.
fn durable(batch: u32) -> Outcome<u64> {
    let folder = tempfile::tempdir()?;
    let store = RedbStore::open(&folder.path().join("leases.redb"))?;
    let mut service = Service::open(plan("2001:db8::/64")?, store)?;
    let begin = Instant::now();
    let mut number = 0;
    while number < SAMPLES {
        let owners = (number..number + batch)
            .map(owner)
            .collect::<Outcome<Vec<Owner>>>()?;
        service.change(|transaction| {
            owners.iter().try_for_each(|owner| {
                transaction
                    .allocate(owner, Request::default(), NOW)
                    .map(drop)
            })
        })?;
        number += batch;
    }
    let per_second = f64::from(number) / begin.elapsed().as_secs_f64();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and far below 2^53"
    )]
    Ok(per_second as u64)
}
