//! A store that fails, and a process that dies, at every step in turn.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::rc::Rc;

use causeway_ipam::{
    Change, Lease, LeaseState, MemoryStore, OpenError, Service, ServiceError, Snapshot, Store,
    StoreError,
};

use crate::support::{ANY, at, everything, owner, plan, plan_with_prefixes, with_prefix};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing of the commit is kept.
    Lost,
    /// All of it is kept, and the caller hears of an error.
    Kept,
}

#[derive(Debug, Default)]
struct Disk {
    store: MemoryStore,
    commits: usize,
    fault: Option<(usize, Fault)>,
    unreadable: bool,
}

/// A store that others can look into, and that fails once when it is told to.
#[derive(Debug, Clone, Default)]
struct FaultyStore(Rc<RefCell<Disk>>);

#[derive(Debug, thiserror::Error)]
#[error("the disk is gone")]
struct DiskGone;

fn gone() -> StoreError {
    StoreError::Other(Box::new(DiskGone))
}

impl Store for FaultyStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        let disk = self.0.borrow();
        if disk.unreadable {
            return Err(gone());
        }
        disk.store.load()
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut disk = self.0.borrow_mut();
        disk.commits += 1;
        match disk.fault {
            Some((when, Fault::Lost)) if when == disk.commits => Err(gone()),
            Some((when, Fault::Kept)) if when == disk.commits => {
                disk.store.commit(changes)?;
                Err(gone())
            }
            _ => disk.store.commit(changes),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Allocate(u32),
    Bind(u32),
    Release(u32),
}

/// Fills a small pool, empties parts of it and fills it again.
fn history() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..4 {
        for number in 0..8 {
            steps.push(Step::Allocate(round * 10 + number));
            steps.push(Step::Bind(round * 10 + number));
        }
        for number in 0..6 {
            steps.push(Step::Release(round * 10 + number));
        }
    }
    steps
}

/// What callers were told, and so may rely on.
#[derive(Debug, Default)]
struct Told {
    holds: BTreeMap<u32, Lease>,
    resting: BTreeSet<Ipv6Addr>,
}

impl Told {
    fn check(&self, leases: &[Lease]) {
        let addresses: BTreeSet<_> = leases.iter().map(|lease| lease.address).collect();
        assert_eq!(addresses.len(), leases.len());
        let prefixes: BTreeSet<_> = leases.iter().filter_map(|lease| lease.prefix).collect();
        assert_eq!(prefixes.len(), leases.len());
        for (number, told) in &self.holds {
            let found = leases.iter().find(|lease| lease.address == told.address);
            let found = found.unwrap_or_else(|| panic!("the lease {told:?} is lost"));
            assert_eq!(found.owner, owner(number));
            assert_eq!(found.generation, told.generation);
            assert!(found.state.is_held());
        }
        for address in &self.resting {
            let found = leases.iter().find(|lease| lease.address == *address);
            let state = found.map(|lease| lease.state);
            assert!(
                matches!(state, Some(LeaseState::Quarantined { .. })),
                "{address} left its quarantine: {state:?}"
            );
        }
    }
}

fn open(store: &FaultyStore) -> Service<FaultyStore> {
    let plan = plan_with_prefixes("2001:db8::/122", "2001:db8:1::/90", 96);
    Service::open(plan, store.clone()).unwrap()
}

/// One step. False when the store failed.
fn run(service: &mut Service<FaultyStore>, told: &mut Told, step: Step) -> bool {
    match step {
        Step::Allocate(number) => match service.allocate(&owner(number), with_prefix(96), at(0)) {
            Ok(lease) => {
                assert!(!told.resting.contains(&lease.address));
                let mut others = told.holds.iter().filter(|(other, _)| **other != number);
                assert!(others.all(|(_, other)| other.address != lease.address));
                told.holds.insert(number, lease);
                true
            }
            Err(ServiceError::Store(_)) => false,
            Err(error) => panic!("{error}"),
        },
        Step::Bind(number) => {
            let generation = told.holds[&number].generation;
            match service.bind(&owner(number), generation) {
                Ok(_) => true,
                Err(ServiceError::Store(_)) => false,
                Err(error) => panic!("{error}"),
            }
        }
        Step::Release(number) => match service.release(&owner(number), None, at(0)) {
            Ok(_) => {
                let lease = told.holds.remove(&number).unwrap();
                told.resting.insert(lease.address);
                true
            }
            Err(ServiceError::Store(_)) => {
                // It may have been kept, so that nothing can be said until it is asked again.
                false
            }
            Err(error) => panic!("{error}"),
        },
    }
}

fn with_a_fault(fault: Fault, when: usize, dies: bool) {
    let store = FaultyStore::default();
    store.0.borrow_mut().fault = Some((when, fault));
    let mut service = open(&store);
    let mut told = Told::default();
    let mut failures = 0;
    for step in history() {
        while !run(&mut service, &mut told, step) {
            failures += 1;
            if dies {
                service = open(&store);
            }
        }
        told.check(&everything(service.ipam()));
    }
    assert_eq!(failures, 1);
    let again = open(&store);
    assert_eq!(everything(again.ipam()), everything(service.ipam()));
}

#[test]
fn a_failed_commit_loses_and_doubles_no_lease() {
    for when in 1..=history().len() {
        for fault in [Fault::Lost, Fault::Kept] {
            with_a_fault(fault, when, false);
        }
    }
}

#[test]
fn death_at_any_step_loses_and_doubles_no_lease() {
    for when in 1..=history().len() {
        for fault in [Fault::Lost, Fault::Kept] {
            with_a_fault(fault, when, true);
        }
    }
}

#[test]
fn without_its_store_nothing_is_handed_out() {
    let store = FaultyStore::default();
    open(&store)
        .allocate(&owner("a"), ANY, at(0))
        .expect("a control: a readable store works");
    store.0.borrow_mut().unreadable = true;
    let plan = plan_with_prefixes("2001:db8::/122", "2001:db8:1::/90", 96);
    let result = Service::open(plan, store.clone());
    assert!(matches!(result, Err(OpenError::Store(_))), "{result:?}");
}

#[test]
fn after_a_failure_the_store_must_be_readable_first() {
    let store = FaultyStore::default();
    let mut service = Service::open(plan("2001:db8::/64"), store.clone()).unwrap();
    store.0.borrow_mut().fault = Some((1, Fault::Kept));
    store.0.borrow_mut().unreadable = true;
    let first = service.allocate(&owner("a"), ANY, at(0));
    assert!(matches!(first, Err(ServiceError::Store(_))), "{first:?}");
    let second = service.allocate(&owner("a"), ANY, at(0));
    assert!(matches!(second, Err(ServiceError::Reopen(_))), "{second:?}");
    store.0.borrow_mut().unreadable = false;
    service.allocate(&owner("a"), ANY, at(0)).unwrap();
    assert_eq!(everything(service.ipam()).len(), 1);
}
