//! A VPP that the backend keeps running.

use std::path::Path;
use std::time::{Duration, Instant};

use causeway_dataplane::vpp::Program;
use causeway_dataplane::{Dataplane, DesiredState};
use vpp_config::connection::PeerProcess;

use super::common::*;
use super::{PATIENCE, await_ping, forwarder};
use crate::instance::{self, Room};

/// How long VPP may be silent here.
const WATCHDOG: Duration = Duration::from_secs(4);

fn supervise() {
    let installed = instance::find().unwrap();
    let folder = Path::new("/run/vpp");
    std::fs::create_dir_all(folder).unwrap();
    *forwarder::WATCHES.lock().unwrap() = WATCHDOG;
    *forwarder::PROGRAM.lock().unwrap() = Some(Program {
        startup: instance::configure(&installed, folder, Room::FEW),
        program: installed.program,
        socket: folder.join("api.sock"),
        log: folder.join("log"),
    });
}

async fn pid() -> Option<i32> {
    let peer = PeerProcess::listening(Path::new("/run/vpp/api.sock")).await;
    peer.map(|process| process.pid)
}

/// Waits for another VPP, and gives it everything back.
async fn recover(plane: &Dataplane, wanted: &DesiredState, former: i32) -> i32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "VPP is not replaced");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Some(pid) = pid().await.filter(|pid| *pid != former) else {
            continue;
        };
        if plane
            .reconcile(wanted)
            .await
            .is_ok_and(|done| done.problems.is_empty())
        {
            return pid;
        }
    }
}

#[test]
fn a_vpp_that_ends_or_hangs_is_replaced_and_a_busy_one_is_not() {
    isolated(
        concat!(
            module_path!(),
            "::a_vpp_that_ends_or_hangs_is_replaced_and_a_busy_one_is_not"
        ),
        async || {
            supervise();
            let plane = dataplane().await;
            let specs: Vec<_> = (1..=3).map(|n| spec(n, &["front"])).collect();
            for spec in &specs {
                run(&format!("ip netns add {}", spec.id.name));
            }
            let wanted = desired(&specs);
            assert!(plane.reconcile(&wanted).await.unwrap().problems.is_empty());
            let all = || {
                for spec in &specs[1..] {
                    await_ping("s1", spec.address);
                }
            };
            all();
            let first = pid().await.unwrap();

            // Busy, again and again, for less than the watchdog's time.
            for _ in 0..3 {
                run(&format!("kill -STOP {first}"));
                tokio::time::sleep(WATCHDOG / 2).await;
                run(&format!("kill -CONT {first}"));
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            all();
            assert_eq!(pid().await, Some(first), "it was only busy");

            run(&format!("kill -KILL {first}"));
            let second = recover(&plane, &wanted, first).await;
            all();

            run(&format!("kill -STOP {second}"));
            let begun = Instant::now();
            let third = recover(&plane, &wanted, second).await;
            assert!(begun.elapsed() >= WATCHDOG / 2, "it was judged too soon");
            all();

            // It stays when the backend goes, and is found by the next.
            drop(plane);
            all();
            let plane = dataplane().await;
            assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
            assert_eq!(pid().await, Some(third));
            // And goes with everything else.
            plane.teardown().await.unwrap();
            assert_eq!(pid().await, None);
        },
    );
}
