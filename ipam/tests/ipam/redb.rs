//! The store on disk.

use std::fs;
use std::path::Path;

use causeway_ipam::{
    BlockKey, Ipam, OpenError, Plan, PlanSettings, RedbStore, RestoreError, Service, ServiceError,
    Store, StoreError, redb_store,
};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tempfile::TempDir;

use crate::support::{ANY, at, everything, owner, plan, plan_with_prefixes, settings, with_prefix};

const NOTES: TableDefinition<'_, &str, &str> = TableDefinition::new("notes");
const META: TableDefinition<'_, &str, u128> = TableDefinition::new("ipam_meta");
const LEASES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("ipam_leases");

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(path: &Path) -> Result<Service<RedbStore>, OpenError> {
    let plan = plan_with_prefixes("2001:db8::/64", "2001:db8:1::/48", 64);
    Service::open(plan, RedbStore::open(path)?)
}

/// A store with three leases.
fn filled(path: &Path) {
    let mut service = open(path).unwrap();
    let bound = service
        .allocate(&owner("a"), with_prefix(64), at(1))
        .unwrap();
    service.bind(&bound.owner, bound.generation).unwrap();
    service.allocate(&owner("b"), ANY, at(2)).unwrap();
    service.release(&owner("b"), None, at(3)).unwrap();
    service.allocate(&owner("c"), ANY, at(4)).unwrap();
}

#[test]
fn leases_outlive_the_process() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let before = RedbStore::open(&path).unwrap().load().unwrap();
    let service = open(&path).unwrap();
    let leases = everything(service.ipam());
    assert_eq!(leases.len(), 3);
    assert_eq!(leases, before.leases.into_values().collect::<Vec<_>>());
    assert_eq!(service.ipam().generation().0, 3);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_half_made_file_is_made_again() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    fs::write(folder.path().join("leases.redb.new"), "half").unwrap();
    filled(&path);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn leases_and_the_callers_records_are_one_transaction() {
    let folder = folder();
    let path = folder.path().join("agent.redb");
    let database = redb_store::open_database(&path).unwrap();
    let load = || redb_store::load(&database.begin_read().unwrap()).unwrap();
    let mut ipam = Ipam::restore(plan("2001:db8::/64"), &load()).unwrap();

    // Abandoned: neither the lease nor the note is there.
    let mut transaction = ipam.begin();
    let lost = transaction.allocate(&owner("a"), ANY, at(0)).unwrap();
    let write = database.begin_write().unwrap();
    redb_store::stage(&write, transaction.changes()).unwrap();
    write.open_table(NOTES).unwrap().insert("a", "x").unwrap();
    write.abort().unwrap();
    drop(transaction);
    assert_eq!(ipam.lease_of(&owner("a")), None);
    assert_eq!(load(), causeway_ipam::Snapshot::default());

    // Kept: two leases and a note, with one commit.
    let mut transaction = ipam.begin();
    let kept = transaction.allocate(&owner("a"), ANY, at(0)).unwrap();
    transaction.allocate(&owner("b"), ANY, at(0)).unwrap();
    let write = database.begin_write().unwrap();
    redb_store::stage(&write, transaction.changes()).unwrap();
    write.open_table(NOTES).unwrap().insert("a", "x").unwrap();
    write.commit().unwrap();
    transaction.apply();
    assert_eq!(kept, lost, "what was abandoned was handed out to nobody");
    assert_eq!(ipam.lease_of(&owner("a")), Some(&kept));
    assert_eq!(load().leases.len(), 2);
    let read = database.begin_read().unwrap();
    let notes = read.open_table(NOTES).unwrap();
    assert_eq!(notes.get("a").unwrap().unwrap().value(), "x");
}

#[test]
fn a_newer_format_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let write_format = |format: u128| {
        let database = Database::open(&path).unwrap();
        let write = database.begin_write().unwrap();
        write
            .open_table(META)
            .unwrap()
            .insert("format", format)
            .unwrap();
        write.commit().unwrap();
    };
    write_format(2);
    let error = open(&path).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Store(StoreError::NewerFormat { found: 2 })
        ),
        "{error:?}"
    );
    write_format(1);
    assert_eq!(everything(open(&path).unwrap().ipam()).len(), 3);
}

#[test]
fn a_damaged_record_is_named_and_kept() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let key = {
        let database = Database::open(&path).unwrap();
        let write = database.begin_write().unwrap();
        let key = {
            let mut leases = write.open_table(LEASES).unwrap();
            let key = leases.first().unwrap().unwrap().0.value();
            leases.insert(key, b"{}".as_slice()).unwrap();
            key
        };
        write.commit().unwrap();
        key
    };
    let error = open(&path).unwrap_err();
    let OpenError::Store(StoreError::BadRecord { table, key: at, .. }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(*table, "ipam_leases");
    assert_eq!(*at, std::net::Ipv6Addr::from_bits(key).to_string());
}

#[test]
fn what_is_no_store_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let good = fs::read(&path).unwrap();
    let mut header_damaged = good.clone();
    header_damaged[..64].fill(0xff);
    let cases = [
        ("empty", Vec::new()),
        ("text", b"not a store at all".repeat(1000)),
        ("cut short", good[..good.len() / 3].to_vec()),
        ("header", header_damaged),
    ];
    for (name, bytes) in cases {
        fs::write(&path, &bytes).unwrap();
        let error = open(&path).unwrap_err();
        assert!(
            matches!(error, OpenError::Store(StoreError::Damaged { .. })),
            "{name}: {error:?}"
        );
        assert!(
            fs::read(&path).unwrap() == bytes,
            "{name}: the file changed"
        );
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(everything(open(&path).unwrap().ipam()).len(), 3);
}

#[test]
fn flipped_bits_are_found_or_harmless() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let good = fs::read(&path).unwrap();
    let expected = everything(open(&path).unwrap().ipam());
    for place in (0..good.len()).step_by(good.len() / 60) {
        let mut bytes = good.clone();
        bytes[place] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        // Either it says so, or every lease is there.
        if let Ok(service) = open(&path) {
            assert_eq!(everything(service.ipam()), expected, "at {place}");
        }
    }
}

#[test]
fn a_second_process_is_refused() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    let first = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(
        matches!(error, OpenError::Store(StoreError::InUse { .. })),
        "{error:?}"
    );
    drop(first);
    assert!(open(&path).is_ok());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = folder();
    let path = folder.path().join("missing").join("leases.redb");
    let error = open(&path).unwrap_err();
    let OpenError::Store(error @ StoreError::Open { .. }) = error else {
        panic!("{error:?}");
    };
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn another_key_is_refused() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let other = Plan::new(PlanSettings {
        key: BlockKey::new([43; 16]),
        ..settings("2001:db8::/64")
    })
    .unwrap();
    let result = Service::open(other, RedbStore::open(&path).unwrap());
    assert!(
        matches!(result, Err(OpenError::Restore(RestoreError::OtherKey))),
        "{result:?}"
    );
    assert!(open(&path).is_ok());
}

#[test]
fn leases_survive_a_change_of_plan_that_they_fit() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    // Another block: the leases of the old one stay until they are given back.
    let moved = || Service::open(plan("2001:db8:2::/64"), RedbStore::open(&path).unwrap());
    let mut service = moved().unwrap();
    assert_eq!(everything(service.ipam()).len(), 3);
    let new = service.allocate(&owner("d"), ANY, at(5)).unwrap();
    assert_eq!(new.address.segments()[2], 2);
    assert!(service.release(&owner("a"), None, at(6)).unwrap().is_some());
    assert_eq!(service.sweep(at(1000), 10).unwrap(), 2);
    drop(service);
    assert_eq!(everything(moved().unwrap().ipam()).len(), 2);
}

#[test]
fn a_plan_that_cuts_through_leases_is_refused() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    filled(&path);
    let refused = |plan| {
        let result = Service::open(plan, RedbStore::open(&path).unwrap());
        assert!(
            matches!(
                result,
                Err(OpenError::Restore(RestoreError::PlanConflict { .. }))
            ),
            "{result:?}"
        );
    };
    // Longer prefixes from where shorter ones are held, and addresses where prefixes are.
    refused(plan_with_prefixes("2001:db8::/64", "2001:db8:1::/48", 80));
    refused(plan("2001:db8:1::/48"));
    refused(plan_with_prefixes("2001:db8:2::/64", "2001:db8::/64", 80));
    assert!(open(&path).is_ok());
}

#[test]
fn a_refused_change_writes_nothing() {
    let folder = folder();
    let path = folder.path().join("leases.redb");
    let mut service = open(&path).unwrap();
    let result = service.allocate(&owner("a"), with_prefix(80), at(0));
    assert!(matches!(result, Err(ServiceError::Refused(_))));
    assert_eq!(
        service.store().load().unwrap(),
        causeway_ipam::Snapshot::default()
    );
}
