//! Random histories against a model that looks at every address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use causeway_ipam::{
    AllocateError, Collected, Ipam, Lease, LeaseState, Listing, MemoryStore, Plan, PlanSettings,
    PrefixPool, Request, Service, ServiceError,
};
use causeway_types::Generation;
use ipnet::Ipv6Net;
use proptest::prelude::*;

use crate::support::{QUARANTINE, at, everything, net, owner, settings};

const OWNERS: u8 = 40;
const PREFIX_LENGTH: u8 = 126;

#[derive(Debug, Clone)]
enum Step {
    Allocate {
        owner: u8,
        /// An address by its last byte; some lie outside of the block.
        fixed: Option<u8>,
        prefix: bool,
    },
    Bind(u8),
    Release(u8),
    Wait(u64),
    Sweep(usize),
    Collect {
        alive: BTreeSet<u8>,
        /// How many generations ago the listing began.
        age: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..OWNERS, prop::option::weighted(0.2, 0..40_u8), prop::bool::weighted(0.2))
            .prop_map(|(owner, fixed, prefix)| Step::Allocate { owner, fixed, prefix }),
        2 => (0..OWNERS).prop_map(Step::Bind),
        3 => (0..OWNERS).prop_map(Step::Release),
        1 => (0..150_u64).prop_map(Step::Wait),
        1 => (0..8_usize).prop_map(Step::Sweep),
        1 => (prop::collection::btree_set(0..OWNERS, 1..40), 0..4_u64)
            .prop_map(|(alive, age)| Step::Collect { alive, age }),
    ]
}

/// 32 addresses, of which the first and two more are kept back, and 8 prefixes.
fn plan() -> Plan {
    Plan::new(PlanSettings {
        exclusions: vec![net("2001:db8::8/127")],
        prefix_pools: vec![PrefixPool {
            block: net("2001:db8::100/123"),
            length: PREFIX_LENGTH,
        }],
        ..settings("2001:db8::/123")
    })
    .unwrap()
}

fn every_address() -> impl Iterator<Item = Ipv6Addr> {
    net("2001:db8::/123")
        .hosts()
        .filter(|address| ![0, 8, 9].contains(&address.octets()[15]))
}

fn every_prefix() -> impl Iterator<Item = Ipv6Net> {
    net("2001:db8::100/123").subnets(PREFIX_LENGTH).unwrap()
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    leases: Vec<Lease>,
    suspects: BTreeMap<String, Generation>,
    /// What was handed out in this pass, in the order of the pool.
    handed_out: BTreeSet<Ipv6Addr>,
}

impl Model {
    /// Whether the lease keeps its address from others now.
    fn blocks(&self, lease: &Lease) -> bool {
        match lease.state {
            LeaseState::Quarantined { until } => until > at(self.now),
            _ => true,
        }
    }

    fn held(&mut self, number: u8) -> Option<&mut Lease> {
        let owner = owner(number);
        self.leases
            .iter_mut()
            .find(|lease| lease.owner == owner && lease.state.is_held())
    }

    fn free_addresses(&self) -> BTreeSet<Ipv6Addr> {
        every_address()
            .filter(|address| {
                let mut leases = self.leases.iter();
                !leases.any(|lease| lease.address == *address && self.blocks(lease))
            })
            .collect()
    }

    fn free_prefixes(&self) -> BTreeSet<Ipv6Net> {
        every_prefix()
            .filter(|prefix| {
                let mut leases = self.leases.iter();
                !leases.any(|lease| lease.prefix == Some(*prefix) && self.blocks(lease))
            })
            .collect()
    }

    /// A lease that blocks nothing may or may not be there still.
    fn forget_over(&mut self) {
        let now = at(self.now);
        self.leases.retain(
            |lease| !matches!(lease.state, LeaseState::Quarantined { until } if until <= now),
        );
    }

    fn quarantine(&mut self, number: u8) {
        let until = at(self.now).saturating_add(QUARANTINE);
        if let Some(lease) = self.held(number) {
            lease.state = LeaseState::Quarantined { until };
        }
    }
}

fn pass(ipam: &Ipam) -> u64 {
    ipam.usage(at(0))[0].pass
}

fn allocate(
    model: &mut Model,
    service: &mut Service<MemoryStore>,
    number: u8,
    fixed: Option<u8>,
    prefix: bool,
) {
    let request = Request {
        address: fixed.map(|last| {
            Ipv6Addr::from_bits(net("2001:db8::/64").network().to_bits() + u128::from(last))
        }),
        prefix_length: prefix.then_some(PREFIX_LENGTH),
    };
    let pass_before = pass(service.ipam());
    let last_generation = service.ipam().generation();
    let result = service.allocate(&owner(number), request, at(model.now));
    let pass_after = pass(service.ipam());
    if let Some(held) = model.held(number) {
        let same = request.address.is_none_or(|asked| asked == held.address)
            && held.prefix.is_some() == prefix;
        match result {
            Ok(lease) => {
                assert!(same);
                assert_eq!(lease, *held);
            }
            Err(ServiceError::Refused(AllocateError::OwnerHolds { address, .. })) => {
                assert!(!same);
                assert_eq!(address, held.address);
            }
            Err(other) => panic!("{other}"),
        }
        return;
    }
    let addresses = model.free_addresses();
    let prefixes = model.free_prefixes();
    let possible = request
        .address
        .map_or(!addresses.is_empty(), |asked| addresses.contains(&asked))
        && (!prefix || !prefixes.is_empty());
    let lease = match result {
        Ok(lease) => lease,
        Err(error) => {
            assert!(
                !possible,
                "{error}: {addresses:?} and {prefixes:?} are free"
            );
            assert!(error.to_string().contains("2001:db8::"), "{error}");
            return;
        }
    };
    assert!(possible);
    assert!(addresses.contains(&lease.address));
    assert_eq!(lease.prefix.is_some(), prefix);
    assert!(lease.prefix.is_none_or(|prefix| prefixes.contains(&prefix)));
    assert_eq!(lease.state, LeaseState::Reserved);
    assert_eq!(lease.created, at(model.now));
    assert_eq!(lease.generation, last_generation.next());
    if request.address.is_none() {
        if pass_after > pass_before {
            model.handed_out.clear();
        } else {
            assert!(model.handed_out.insert(lease.address), "reused too early");
        }
    }
    model.leases.retain(|old| old.address != lease.address);
    model.leases.push(lease);
}

fn collect(model: &mut Model, service: &mut Service<MemoryStore>, alive: &BTreeSet<u8>, age: u64) {
    let began = Generation(service.ipam().generation().0.saturating_sub(age));
    let listing = Listing::new(began, alive.iter().map(owner)).unwrap();
    let Collected {
        released,
        suspected,
    } = service.collect_garbage(listing, at(model.now)).unwrap();
    let mut expected = BTreeSet::new();
    let mut suspects = BTreeMap::new();
    for number in (0..OWNERS).filter(|number| !alive.contains(number)) {
        let Some(lease) = model.held(number).cloned() else {
            continue;
        };
        if lease.generation > began {
            continue;
        }
        if model.suspects.get(lease.owner.as_str()) == Some(&lease.generation) {
            model.quarantine(number);
            expected.insert(lease.address);
        } else {
            suspects.insert(lease.owner.to_string(), lease.generation);
        }
    }
    let released: BTreeSet<Ipv6Addr> = released.iter().map(|lease| lease.address).collect();
    assert_eq!(released, expected);
    assert_eq!(suspected, suspects.len());
    model.suspects = suspects;
}

fn run(model: &mut Model, service: &mut Service<MemoryStore>, step: &Step) {
    match step {
        Step::Allocate {
            owner,
            fixed,
            prefix,
        } => allocate(model, service, *owner, *fixed, *prefix),
        Step::Bind(number) => {
            let generation = service
                .ipam()
                .lease_of(&owner(number))
                .map_or(Generation(0), |lease| lease.generation);
            let result = service.bind(&owner(number), generation);
            assert_eq!(result.is_ok(), model.held(*number).is_some());
            if let Some(lease) = model.held(*number) {
                lease.state = LeaseState::Bound;
            }
        }
        Step::Release(number) => {
            let released = service
                .release(&owner(number), None, at(model.now))
                .unwrap();
            assert_eq!(released.is_some(), model.held(*number).is_some());
            model.quarantine(*number);
        }
        Step::Wait(millis) => model.now += millis,
        Step::Sweep(limit) => {
            let swept = service.sweep(at(model.now), *limit).unwrap();
            assert!(swept <= *limit);
        }
        Step::Collect { alive, age } => collect(model, service, alive, *age),
    }
}

/// The gauges and the list say what counting says.
fn compare(model: &mut Model, ipam: &Ipam) {
    model.forget_over();
    let now = at(model.now);
    let mut expected = model.leases.clone();
    expected.sort_by_key(|lease| lease.address);
    let mut found = everything(ipam);
    found.retain(|lease| model.blocks(lease));
    assert_eq!(found, expected);
    let usage = ipam.usage(now);
    let count = |wanted: fn(&Lease) -> bool| expected.iter().filter(|l| wanted(l)).count() as u64;
    let [addresses, prefixes] = usage.as_slice() else {
        panic!("two pools: {usage:?}");
    };
    assert_eq!(
        addresses.reserved,
        count(|l| l.state == LeaseState::Reserved)
    );
    assert_eq!(addresses.bound, count(|l| l.state == LeaseState::Bound));
    assert_eq!(addresses.quarantined, count(|l| !l.state.is_held()));
    assert_eq!(addresses.free, model.free_addresses().len() as u128);
    assert_eq!(addresses.capacity, every_address().count() as u128);
    let held = count(|l| l.prefix.is_some() && l.state.is_held());
    assert_eq!(prefixes.reserved + prefixes.bound, held);
    assert_eq!(prefixes.free, model.free_prefixes().len() as u128);
    assert_eq!(prefixes.capacity, every_prefix().count() as u128);
}

#[derive(Debug, thiserror::Error)]
#[error("a probe")]
struct Probe(Result<Lease, AllocateError>);

/// What an allocation would give, taken back at once.
fn probe(service: &mut Service<MemoryStore>, now: u64) -> Result<Lease, AllocateError> {
    let request = Request {
        address: None,
        prefix_length: Some(PREFIX_LENGTH),
    };
    let result: Result<(), _> = service.change(|transaction| {
        Err(Probe(transaction.allocate(
            &owner("probe"),
            request,
            at(now),
        )))
    });
    match result {
        Err(ServiceError::Refused(Probe(result))) => result,
        other => panic!("{other:?}"),
    }
}

/// A second address book from the same store is in the same state.
fn restart(model: &Model, service: &mut Service<MemoryStore>, store: &MemoryStore) {
    let mut again = Service::open(plan(), store.clone()).unwrap();
    let now = at(model.now);
    assert_eq!(everything(again.ipam()), everything(service.ipam()));
    assert_eq!(again.ipam().usage(now), service.ipam().usage(now));
    assert_eq!(again.ipam().generation(), service.ipam().generation());
    assert_eq!(probe(&mut again, model.now), probe(service, model.now));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_histories_match_a_model(steps in prop::collection::vec(step(), 1..150)) {
        let mut service = Service::open(plan(), MemoryStore::default()).unwrap();
        let mut model = Model::default();
        for step in &steps {
            run(&mut model, &mut service, step);
            compare(&mut model, service.ipam());
            let store = service.store().clone();
            restart(&model, &mut service, &store);
        }
    }
}
