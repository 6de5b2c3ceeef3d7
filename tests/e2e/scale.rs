//! Fifteen hundred sandboxes on one node.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use causeway::lab::{Lab, run_ok};

use crate::support::{Sandbox, in_lab, kernel_state, network};

const SANDBOXES: usize = 1500;
const NETWORKS: usize = 10;
const THREADS: usize = 4;

#[test]
fn fifteen_hundred_attach_ping_detach_and_leave_nothing() {
    in_lab(
        "scale::fifteen_hundred_attach_ping_detach_and_leave_nothing",
        |mut lab| {
            // The quarantine of leases would outlast the test.
            lab.write_config("lease_quarantine_secs = 0")?;
            lab.start_agent()?;
            for index in 0..NETWORKS {
                network(&lab, "acme", &format!("net{index}"))?;
            }
            // One comes and goes first, so that what is made once for all is there.
            let first = Sandbox::create(&lab, "acme", "first", &["net0"], "")?;
            delete(&lab, &first)?;
            let files_before = open_files(&lab)?;
            let state_before = kernel_state()?;
            let processes_before = processes()?;

            let sandboxes = Mutex::new(Vec::new());
            in_parallel(SANDBOXES, |index| {
                let network = format!("net{}", index % NETWORKS);
                let sandbox = Sandbox::create(&lab, "acme", &format!("s{index}"), &[&network], "")?;
                sandboxes.lock().unwrap().push((index, sandbox));
                Ok(())
            })?;
            let mut sandboxes = sandboxes.into_inner().unwrap();
            sandboxes.sort_by_key(|(index, _)| *index);
            let addresses: std::collections::BTreeSet<_> = sandboxes
                .iter()
                .map(|(_, sandbox)| sandbox.address)
                .collect();
            assert_eq!(addresses.len(), SANDBOXES, "every address is one sandbox's");

            // Each pings its neighbour in the same network, and one in another network does not answer.
            in_parallel(SANDBOXES, |index| {
                let neighbour = &sandboxes[(index + NETWORKS) % SANDBOXES].1;
                anyhow::ensure!(
                    sandboxes[index].1.pings(neighbour.address)?,
                    "{index} gets no answer"
                );
                Ok(())
            })?;
            assert!(!sandboxes[0].1.pings(sandboxes[1].1.address)?);
            assert_eq!(lab.json(&["reconcile"])?["changes"], 0);

            in_parallel(SANDBOXES, |index| delete(&lab, &sandboxes[index].1))?;
            assert_eq!(
                kernel_state()?,
                state_before,
                "links, routes, neighbours, set elements"
            );
            let leases = lab.json(&["leases", "list"])?;
            let held = leases
                .as_array()
                .unwrap()
                .iter()
                .filter(|lease| lease["state"] == "bound");
            assert_eq!(held.count(), 0, "bound leases");
            assert_eq!(processes()?, processes_before, "processes");
            let files_after = open_files(&lab)?;
            assert!(
                files_after <= files_before + 5,
                "open files: {files_before} → {files_after}"
            );
            Ok(())
        },
    );
}

fn delete(lab: &Lab, sandbox: &Sandbox) -> anyhow::Result<()> {
    let arguments = [
        "sandbox",
        "delete",
        &sandbox.name,
        "--tenant",
        &sandbox.tenant,
    ];
    run_ok(&mut lab.command(&arguments))?;
    Ok(())
}

/// Calls `work` for each number below `count`, a few at a time; the first error ends it.
fn in_parallel(
    count: usize,
    work: impl Fn(usize) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            return Ok(());
                        }
                        work(index)?;
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap())
    })
}

/// Descriptors that agent and proxy hold.
fn open_files(lab: &Lab) -> anyhow::Result<usize> {
    let proxy = lab.json(&["status"])?["proxy"]["pid"]
        .as_u64()
        .unwrap_or_default();
    let count = |pid: u64| -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
    };
    Ok(count(lab.agent_pid()?.into())? + count(proxy)?)
}

/// How many processes of the product run.
fn processes() -> anyhow::Result<usize> {
    let listed = run_ok(std::process::Command::new("ps").args(["-eo", "comm"]))?;
    Ok(listed
        .lines()
        .filter(|line| line.starts_with("causeway"))
        .count())
}
