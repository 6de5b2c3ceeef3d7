//! Attaching and detaching again and again leaves nothing behind.

use std::fs;
use std::time::Duration;

use causeway_dataplane::{Attachment, SandboxSpec};
use vpp_config::Stats;

use super::*;

/// How often each attachment is made and taken away while it is watched.
const CYCLES: u16 = 200;
/// How often before that: VPP keeps vectors as long as they ever were, and what it frees late it
/// frees by then.
const WARM_UP: u16 = 30;
/// VPP 26.06 itself keeps, as its memory trace shows, for each interface the names of its nodes in
/// the event log (40 bytes) and of a packet socket two vectors (48), for each memif socket two
/// tables of its keys (more than 100); and its log, until that is full, has several lines of each
/// cycle. That makes 240 to 600 bytes. A structure of ours that stays would be more than this.
const HEAP_EACH: u64 = 1024;
/// The stats segment keeps names and columns of interfaces that went, and uses them again.
const STATS_EACH: u64 = 64;

/// What VPP and this process hold.
#[derive(Debug)]
struct Held {
    heap: u64,
    stats: u64,
    buffers: u64,
    descriptors: usize,
    own_descriptors: usize,
    mappings: usize,
    objects: Vec<(&'static str, usize)>,
}

impl Held {
    async fn now() -> Self {
        let stats = Stats::open("/run/vpp/stats.sock").await.unwrap();
        // Gauges are written now and then.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let get = |name: &str| stats.get(name).unwrap().unwrap();
        let pid = pid();
        let count = |path: String| fs::read_dir(path).unwrap().count();
        Self {
            heap: get("/mem/main heap").total(1),
            stats: get("/mem/stat segment").total(1),
            buffers: get("/buffer-pools/default-numa-0/used").total(0),
            descriptors: count(format!("/proc/{pid}/fd")),
            own_descriptors: count("/proc/self/fd".to_owned()),
            mappings: fs::read_to_string(format!("/proc/{pid}/maps"))
                .unwrap()
                .lines()
                .count(),
            objects: seen(),
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
fn print(what: &str, before: &Held, after: &Held) {
    println!("{what}\n  before {before:?}\n  after  {after:?}");
}

/// Attaches and detaches; in between `used` says whether the attachment is of use.
async fn cycles(spec: SandboxSpec, used: impl Fn(&SandboxSpec)) {
    let plane = dataplane().await;
    run("ip netns add s1; ip netns add s2");
    plane.attach(super::spec(2, &["front"])).await.unwrap();
    let cycle = async |count| {
        for _ in 0..count {
            plane.attach(spec.clone()).await.unwrap();
            used(&spec);
            plane.detach(spec.uid).await.unwrap();
        }
    };
    cycle(WARM_UP).await;
    let before = Held::now().await;
    cycle(CYCLES).await;
    let after = Held::now().await;
    print(&format!("{:?}", spec.attachment), &before, &after);
    assert_eq!(after.objects, before.objects);
    assert_eq!(after.descriptors, before.descriptors);
    assert_eq!(after.own_descriptors, before.own_descriptors);
    // The other sandbox's interfaces may hold a few at any time.
    assert!(after.buffers <= before.buffers + 16);
    let grown = after.heap.saturating_sub(before.heap);
    assert!(
        grown <= u64::from(CYCLES) * HEAP_EACH,
        "the heap grew by {grown}"
    );
    let grown = after.stats.saturating_sub(before.stats);
    assert!(
        grown <= u64::from(CYCLES) * STATS_EACH,
        "the stats segment grew by {grown}"
    );
    assert!(after.mappings <= before.mappings + 16);
}

#[test]
fn attachments_of_namespaces_come_and_go() {
    isolated(
        concat!(module_path!(), "::attachments_of_namespaces_come_and_go"),
        async || {
            cycles(spec(1, &["front"]), |_| {}).await;
        },
    );
}

#[test]
fn vhost_user_sockets_come_and_go() {
    isolated(
        concat!(module_path!(), "::vhost_user_sockets_come_and_go"),
        async || {
            forwarder::share_memory();
            let mut spec = spec(1, &["front"]);
            let socket = std::path::PathBuf::from("/run/s1.sock");
            spec.attachment = Attachment::VhostUser {
                socket: socket.clone(),
            };
            cycles(spec, |_| assert!(socket.exists())).await;
        },
    );
}

#[test]
fn memif_sockets_come_and_go() {
    isolated(
        concat!(module_path!(), "::memif_sockets_come_and_go"),
        async || {
            forwarder::share_memory();
            let mut spec = spec(1, &["front"]);
            let socket = std::path::PathBuf::from("/run/s1.sock");
            spec.attachment = Attachment::Memif {
                socket: socket.clone(),
            };
            cycles(spec, |_| assert!(socket.exists())).await;
        },
    );
}
