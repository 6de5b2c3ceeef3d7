//! Counters of a running VPP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vpp_config::messages::interface::CreateLoopbackInstance;
use vpp_config::stats::{Stats, Value};

use crate::instance::start;

#[tokio::test]
async fn counters_of_each_kind_are_read() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let made = client.call(&CreateLoopbackInstance::default()).await;
    let index = made.unwrap().sw_if_index.0 as usize;
    let stats = Stats::open(vpp.startup.stats_socket()).await.unwrap();
    assert_eq!(stats.interface_names().unwrap()[index], "loop0");

    let get = |name: &str| stats.get(name).unwrap().unwrap_or_else(|| panic!("{name}"));
    assert!(matches!(get("/sys/boottime"), Value::Scalar(1..)));
    assert!(matches!(get("/if/drops"), Value::Simple(_)));
    assert!(matches!(get("/if/rx"), Value::Combined(_)));
    assert!(matches!(get("/interfaces/loop0/rx"), Value::Combined(_)));
    let heap = get("/mem/main heap");
    let sizes = vpp.startup.sizes();
    assert_eq!(heap.total(0), sizes.heap, "as the configuration has it");
    assert!(heap.total(1) < heap.total(0));
    let free = get("/buffer-pools/default-numa-0/available").total(0);
    assert!(
        free * 10 >= sizes.buffers * 9,
        "{free} of {}",
        sizes.buffers
    );
    assert_eq!(stats.get("/no/such").unwrap(), None);
    let all = stats.read(|_| true).unwrap();
    assert_eq!(all.len(), stats.names().unwrap().len());
    assert!(
        !all.iter()
            .any(|(_, value)| matches!(value, Value::Other { kind } if *kind != 8))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_are_read_while_interfaces_come() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let stats = Stats::open(vpp.startup.stats_socket()).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let reading = {
        let done = done.clone();
        tokio::task::spawn_blocking(move || {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                stats.read(|name| name.starts_with("/if/")).unwrap();
                stats.get("/if/rx").unwrap();
                rounds += 1;
            }
            (rounds, stats)
        })
    };
    for _ in 0..200 {
        let made = client.call(&CreateLoopbackInstance::default()).await;
        made.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    let (rounds, stats) = reading.await.unwrap();
    assert!(rounds > 0);
    let names = stats.interface_names().unwrap();
    assert_eq!(
        names.iter().filter(|name| name.starts_with("loop")).count(),
        200
    );
}
