//! A real process that is killed while it hands out addresses.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use causeway_ipam::{RedbStore, Service};

use crate::support::{ANY, at, everything, owner, plan};

const STORE: &str = "CAUSEWAY_IPAM_KILL_STORE";
const ROUND: &str = "CAUSEWAY_IPAM_KILL_ROUND";

/// The child: allocates until it is killed, and tells each lease once it has it.
fn allocate_for_ever(store: &str) {
    let store = RedbStore::open(Path::new(store)).unwrap();
    let mut service = Service::open(plan("2001:db8::/64"), store).unwrap();
    let round = std::env::var(ROUND).unwrap();
    let mut out = std::io::stdout().lock();
    for number in 0_u64.. {
        let lease = service
            .allocate(&owner(format_args!("{round}.{number}")), ANY, at(0))
            .unwrap();
        writeln!(out, "LEASE {} {}", lease.owner, lease.address).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_and_doubles_no_lease() {
    if let Ok(store) = std::env::var(STORE) {
        return allocate_for_ever(&store);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.redb");
    let mut told = BTreeMap::new();
    for round in 0..8_usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "kill::a_killed_process_loses_and_doubles_no_lease",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(STORE, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        // Killed after a different number of leases each time; what was told until the pipe
        // closes counts as well.
        while let Some(Ok(line)) = lines.next() {
            let Some((_, lease)) = line.split_once("LEASE ") else {
                continue;
            };
            let (owner, address) = lease.split_once(' ').unwrap();
            let before = told.insert(address.to_owned(), owner.to_owned());
            assert_eq!(before, None, "{address} was handed out twice");
            seen += 1;
            if seen == 20 + 37 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= 20 + 37 * round, "the child ended by itself");
        let store = RedbStore::open(&path).unwrap();
        let service = Service::open(plan("2001:db8::/64"), store).unwrap();
        let leases: BTreeMap<String, String> = everything(service.ipam())
            .iter()
            .map(|lease| (lease.address.to_string(), lease.owner.to_string()))
            .collect();
        for (address, owner) in &told {
            assert_eq!(leases.get(address), Some(owner), "{address} is lost");
        }
        assert!(leases.len() <= told.len() + round + 1);
    }
}
