//! Faults that other address managers had, each as a test of this one.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use causeway_ipam::{
    AllocateError, BindError, EmptyListing, Lease, LeaseState, Listing, MemoryStore, Plan,
    PlanSettings, Service, ServiceError,
};
use causeway_types::Generation;

use crate::support::{
    ANY, address, at, everything, fixed, net, owner, plan_with_prefixes, service, settings,
    with_prefix,
};

fn refusal(result: Result<Lease, ServiceError<AllocateError>>) -> AllocateError {
    match result {
        Err(ServiceError::Refused(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_crash_between_reserve_and_attach_loses_no_capacity() {
    let mut service = service("2001:db8::/124");
    // Fifteen reservations whose owners never came to be, and nobody binds them.
    for number in 0..15 {
        service.allocate(&owner(number), ANY, at(0)).unwrap();
    }
    assert!(matches!(
        refusal(service.allocate(&owner("late"), ANY, at(0))),
        AllocateError::Exhausted { .. }
    ));
    let mut again = Service::open(
        crate::support::plan("2001:db8::/124"),
        service.store().clone(),
    )
    .unwrap();
    for _ in 0..2 {
        let listing = Listing::new(again.ipam().generation(), [owner("other")]).unwrap();
        again.collect_garbage(listing, at(0)).unwrap();
    }
    for number in 100..115 {
        again.allocate(&owner(number), ANY, at(100)).unwrap();
    }
}

#[test]
fn releasing_twice_or_what_was_never_held_does_no_harm() {
    let mut service = service("2001:db8::/64");
    assert_eq!(service.release(&owner("a"), None, at(0)).unwrap(), None);
    service.allocate(&owner("a"), ANY, at(0)).unwrap();
    assert!(service.release(&owner("a"), None, at(0)).unwrap().is_some());
    assert_eq!(service.release(&owner("a"), None, at(0)).unwrap(), None);
}

#[test]
fn ten_thousand_short_lives_use_up_nothing() {
    let mut service = service("2001:db8::/120");
    let free = |service: &Service<MemoryStore>, now| service.ipam().usage(at(now))[0].free;
    assert_eq!(free(&service, 0), 255);
    let mut now = 0;
    for number in 0..10_000 {
        let owner = owner(number);
        service.allocate(&owner, ANY, at(now)).unwrap();
        service.release(&owner, None, at(now)).unwrap();
        now += 1;
    }
    assert_eq!(free(&service, now + 100), 255);
    // What is over does not pile up either.
    assert!(everything(service.ipam()).len() <= 110);
}

#[test]
fn a_request_that_fails_halfway_keeps_nothing() {
    let plan = plan_with_prefixes("2001:db8::/120", "2001:db8:1::/64", 64);
    let mut service = Service::open(plan, MemoryStore::default()).unwrap();
    service
        .allocate(&owner("first"), with_prefix(64), at(0))
        .unwrap();
    let usage = service.ipam().usage(at(0));
    for _ in 0..1000 {
        let error = refusal(service.allocate(&owner("second"), with_prefix(64), at(0)));
        assert_eq!(
            error.to_string(),
            "the pool 2001:db8:1::/64 in /64s has nothing left for second: \
             1 held, 0 in quarantine"
        );
    }
    assert_eq!(service.ipam().usage(at(0)), usage);
    assert_eq!(everything(service.ipam()).len(), 1);
}

#[test]
fn a_refusal_among_others_leaves_no_trace() {
    let plan = plan_with_prefixes("2001:db8::/120", "2001:db8:1::/64", 64);
    let mut service = Service::open(plan, MemoryStore::default()).unwrap();
    let mut fresh = Service::open(service.ipam().plan().clone(), MemoryStore::default()).unwrap();
    let first = with_prefix(64);
    service
        .change(|transaction| {
            transaction.allocate(&owner("first"), first, at(0))?;
            let before = transaction.changes().to_vec();
            let refused = transaction.allocate(&owner("second"), first, at(0));
            assert!(refused.is_err());
            assert_eq!(transaction.changes(), before);
            transaction.allocate(&owner("third"), ANY, at(0))
        })
        .unwrap();
    // The same as if nobody had asked in between.
    fresh.allocate(&owner("first"), first, at(0)).unwrap();
    fresh.allocate(&owner("third"), ANY, at(0)).unwrap();
    assert_eq!(everything(service.ipam()), everything(fresh.ipam()));
    assert_eq!(service.ipam().usage(at(0)), fresh.ipam().usage(at(0)));
}

#[test]
fn collection_leaves_a_recreated_owner_alone() {
    let mut service = service("2001:db8::/64");
    let first = service.allocate(&owner("a"), ANY, at(0)).unwrap();
    let missing = |began| Listing::new(began, [owner("other")]).unwrap();
    let began = service.ipam().generation();
    service.collect_garbage(missing(began), at(0)).unwrap();
    service.release(&owner("a"), None, at(1)).unwrap();
    let second = service.allocate(&owner("a"), ANY, at(1)).unwrap();
    assert_ne!(first.address, second.address);
    // The second listing began before, or after: either way the new lease was not suspected.
    for began in [began, service.ipam().generation()] {
        let collected = service.collect_garbage(missing(began), at(1)).unwrap();
        assert_eq!(collected.released, []);
    }
    // A late message about the first one does not free the second.
    let late = service
        .release(&owner("a"), Some(first.generation), at(1))
        .unwrap();
    assert_eq!(late, None);
    assert_eq!(service.ipam().lease_of(&owner("a")), Some(&second));
    // A control: two listings that begin after it was made do free it.
    let began = service.ipam().generation();
    let collected = service.collect_garbage(missing(began), at(1)).unwrap();
    assert_eq!(collected.released.len(), 1);
}

#[test]
fn collection_leaves_what_was_allocated_after_the_listing_began() {
    let mut service = service("2001:db8::/64");
    service.allocate(&owner("old"), ANY, at(0)).unwrap();
    let began = service.ipam().generation();
    service.allocate(&owner("new"), ANY, at(0)).unwrap();
    for round in 0..2 {
        let listing = Listing::new(began, [owner("other")]).unwrap();
        let collected = service.collect_garbage(listing, at(0)).unwrap();
        assert_eq!(collected.released.len(), round);
    }
    assert!(service.ipam().lease_of(&owner("new")).is_some());
    assert!(service.ipam().lease_of(&owner("old")).is_none());
}

#[test]
fn an_owner_that_is_listed_again_starts_anew() {
    let mut service = service("2001:db8::/64");
    service.allocate(&owner("a"), ANY, at(0)).unwrap();
    let began = service.ipam().generation();
    for listed in ["other", "a", "other"] {
        let listing = Listing::new(began, [owner(listed)]).unwrap();
        let collected = service.collect_garbage(listing, at(0)).unwrap();
        assert_eq!(collected.released, [], "{listed}");
    }
    let listing = Listing::new(began, [owner("other")]).unwrap();
    let collected = service.collect_garbage(listing, at(0)).unwrap();
    assert_eq!(collected.released.len(), 1);
}

#[test]
fn owners_that_went_while_nobody_looked_are_found() {
    let mut service = service("2001:db8::/64");
    for number in 0..200 {
        service.allocate(&owner(number), ANY, at(0)).unwrap();
    }
    let mut service = Service::open(
        crate::support::plan("2001:db8::/64"),
        service.store().clone(),
    )
    .unwrap();
    for _ in 0..2 {
        let began = service.ipam().generation();
        let listing = Listing::new(began, (0..100).map(owner)).unwrap();
        service.collect_garbage(listing, at(0)).unwrap();
    }
    let usage = &service.ipam().usage(at(0))[0];
    assert_eq!((usage.reserved, usage.quarantined), (100, 100));
}

#[test]
fn an_empty_listing_is_no_listing() {
    let mut service = service("2001:db8::/64");
    service.allocate(&owner("a"), ANY, at(0)).unwrap();
    let began = service.ipam().generation();
    assert_eq!(Listing::new(began, []).unwrap_err(), EmptyListing);
    // A control: whoever knows better says so, twice.
    for round in 0..2 {
        let collected = service
            .collect_garbage(Listing::nobody(began), at(0))
            .unwrap();
        assert_eq!(collected.released.len(), round);
    }
}

#[test]
fn a_cancelled_lease_leaves_no_trace_and_a_released_one_rests() {
    let mut service = service("2001:db8::1/128");
    let lease = service.allocate(&owner("a"), ANY, at(0)).unwrap();
    let cancelled =
        service.change(|transaction| Ok::<_, Infallible>(transaction.cancel(&owner("a"))));
    assert_eq!(
        cancelled.unwrap().map(|lease| lease.address),
        Some(lease.address)
    );
    assert!(service.ipam().lease_at(lease.address).is_none());
    // At once, where a released one has to rest first.
    service.allocate(&owner("b"), ANY, at(0)).unwrap();
    service.release(&owner("b"), None, at(0)).unwrap();
    assert!(service.allocate(&owner("c"), ANY, at(0)).is_err());
    let nobody = service.change(|transaction| Ok::<_, Infallible>(transaction.cancel(&owner("z"))));
    assert_eq!(nobody.unwrap(), None);
}

#[test]
fn one_address_is_not_reused_in_its_quarantine() {
    let mut service = service("2001:db8::1/128");
    let lease = service.allocate(&owner("a"), ANY, at(0)).unwrap();
    service.release(&owner("a"), None, at(50)).unwrap();
    for now in [50, 149] {
        let error = refusal(service.allocate(&owner("b"), ANY, at(now)));
        let AllocateError::Exhausted { next_free, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(next_free, Some(at(150)));
        let error = refusal(service.allocate(&owner("b"), fixed("2001:db8::1"), at(now)));
        let AllocateError::Quarantined { until, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(until, at(150));
        // Not even by whoever held it last.
        assert!(service.allocate(&owner("a"), ANY, at(now)).is_err());
    }
    for (name, request, now) in [("b", ANY, 150), ("c", fixed("2001:db8::1"), 250)] {
        let again = service.allocate(&owner(name), request, at(now)).unwrap();
        assert_eq!(again.address, lease.address);
        assert!(again.generation > lease.generation);
        service.release(&owner(name), None, at(now)).unwrap();
    }
}

#[test]
fn a_clock_that_goes_back_ends_no_quarantine() {
    let mut service = service("2001:db8::1/128");
    service.allocate(&owner("a"), ANY, at(1000)).unwrap();
    service.release(&owner("a"), None, at(1000)).unwrap();
    assert!(service.allocate(&owner("b"), ANY, at(0)).is_err());
    assert!(service.allocate(&owner("b"), ANY, at(1100)).is_ok());
}

/// Median time of an allocation, without a store.
fn median(service: &mut Service<MemoryStore>, name: &str) -> Duration {
    let mut times: Vec<Duration> = (0..101)
        .map(|number| {
            let owner = owner(format_args!("{name}.{number}"));
            let begin = Instant::now();
            service.allocate(&owner, ANY, at(0)).unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[50]
}

#[test]
fn large_pools_are_not_walked() {
    for block in ["2001:db8::/64", "2001:db8::/48", "2001:db8::/33"] {
        let median = median(&mut service(block), "x");
        assert!(median < Duration::from_millis(1), "{block}: {median:?}");
    }
}

#[test]
fn a_pool_that_is_nearly_full_is_no_slower() {
    // 16,384 addresses, used up once, and then 16,000 of them held while the rest comes and goes.
    let mut service = service("2001:db8::/114");
    for number in 0..16_000 {
        service.allocate(&owner(number), ANY, at(0)).unwrap();
    }
    for now in 0..2000 {
        let passer_by = owner("passer-by");
        service.allocate(&passer_by, ANY, at(now)).unwrap();
        service.release(&passer_by, None, at(now)).unwrap();
    }
    service.sweep(at(10_000), 1000).unwrap();
    let usage = service.ipam().usage(at(10_000));
    assert!(usage[0].pass > 0, "{usage:?}");
    let median = median(&mut service, "x");
    assert!(median < Duration::from_millis(1), "{median:?}");
}

#[test]
fn ten_thousand_statics_in_a_row_do_not_stand_in_the_way() {
    let mut service = service("2001:db8::/112");
    for number in 1..=10_000_u32 {
        let text = format!("2001:db8::{number:x}");
        service
            .allocate(&owner(format_args!("s{number}")), fixed(&text), at(0))
            .unwrap();
    }
    // All that is left comes, each once, and never a static.
    let free = service.ipam().usage(at(0))[0].free;
    assert_eq!(free, 65_536 - 1 - 128 - 10_000);
    let mut seen = BTreeSet::new();
    for number in 0..free {
        let lease = service.allocate(&owner(number), ANY, at(0)).unwrap();
        assert!(lease.address > address("2001:db8::2710"));
        assert!(seen.insert(lease.address));
    }
    assert!(matches!(
        refusal(service.allocate(&owner("late"), ANY, at(0))),
        AllocateError::Exhausted { .. }
    ));
}

#[test]
fn statics_say_why_not() {
    let plan = Plan::new(PlanSettings {
        exclusions: vec![net("2001:db8::ff00/120")],
        ..settings("2001:db8::/64")
    })
    .unwrap();
    let mut service = Service::open(plan, MemoryStore::default()).unwrap();
    let lease = service
        .allocate(&owner("a"), fixed("2001:db8::5"), at(0))
        .unwrap();
    assert_eq!(lease.address, address("2001:db8::5"));
    let mut message = |request| refusal(service.allocate(&owner("b"), request, at(0))).to_string();
    assert_eq!(
        message(fixed("2001:db8::5")),
        "b asks for 2001:db8::5 in 2001:db8::/64, which another owner holds"
    );
    assert_eq!(
        message(fixed("2001:db8:1::5")),
        "b asks for 2001:db8:1::5, which is not in this node's block 2001:db8::/64"
    );
    assert_eq!(
        message(fixed("2001:db8::ff05")),
        "b asks for 2001:db8::ff05, which is not handed out: \
         2001:db8::ff00/120 is excluded from 2001:db8::/64"
    );
    assert_eq!(
        message(with_prefix(80)),
        "no pool has prefixes of /80 for b"
    );
}

#[test]
fn an_owner_gets_its_own_again_and_nothing_else() {
    let mut service = service("2001:db8::/64");
    let lease = service.allocate(&owner("a"), ANY, at(0)).unwrap();
    service.bind(&owner("a"), lease.generation).unwrap();
    let again = service.allocate(&owner("a"), ANY, at(9)).unwrap();
    assert_eq!(again.state, LeaseState::Bound);
    assert_eq!((again.address, again.created), (lease.address, at(0)));
    let error = refusal(service.allocate(&owner("a"), fixed("2001:db8::5"), at(9)));
    assert!(matches!(error, AllocateError::OwnerHolds { .. }), "{error}");
}

#[test]
fn only_the_lease_that_is_meant_is_bound() {
    let mut service = service("2001:db8::/64");
    let lease = service.allocate(&owner("a"), ANY, at(0)).unwrap();
    let refusal = |result: Result<Lease, ServiceError<BindError>>| match result {
        Err(ServiceError::Refused(error)) => error,
        other => panic!("{other:?}"),
    };
    let other = refusal(service.bind(&owner("a"), Generation(99)));
    assert!(matches!(other, BindError::Replaced { .. }), "{other}");
    let nobody = refusal(service.bind(&owner("b"), lease.generation));
    assert!(matches!(nobody, BindError::NotHeld { .. }), "{nobody}");
    assert!(service.bind(&owner("a"), lease.generation).is_ok());
}
