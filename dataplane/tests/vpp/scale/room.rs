//! What a sandbox takes of what VPP has once and for all, and that none is taken in for whom
//! there is no room.

use causeway_dataplane::vpp::admission::Resource;
use vpp_config::Stats;

use super::*;

/// Sandboxes that are weighed, in pairs that reach each other directly.
const WEIGHED: u16 = 32;
/// How long VPP may take to write down what is left.
const WRITTEN: Duration = Duration::from_millis(1500);

async fn gauge(name: &str) -> u64 {
    let stats = Stats::open("/run/vpp/stats.sock").await.unwrap();
    tokio::time::sleep(WRITTEN).await;
    stats.get(name).unwrap().unwrap().total(0)
}

async fn left() -> [u64; 3] {
    [
        gauge("/mem/main heap/free").await,
        gauge("/mem/stat segment/free").await,
        gauge("/buffer-pools/default-numa-0/available").await,
    ]
}

fn in_pairs(numbers: std::ops::RangeInclusive<u16>) -> Vec<SandboxSpec> {
    let specs: Vec<_> = numbers
        .map(|n| spec(n, &[format!("net{}", n / 2).as_str()]))
        .collect();
    for spec in &specs {
        run(&format!("ip netns add {}", spec.id.name));
    }
    specs
}

#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
fn print(each: u64, what: &str, share: u64) {
    println!("each sandbox takes {each} {what} of {share}");
}

#[test]
fn a_sandbox_takes_no_more_than_is_set_aside_for_it() {
    isolated(
        concat!(
            module_path!(),
            "::a_sandbox_takes_no_more_than_is_set_aside_for_it"
        ),
        async || {
            let plane = dataplane().await;
            // What there is one of for all is there already.
            attach_all(&plane, &in_pairs(1..=4)).await;
            let before = left().await;
            attach_all(&plane, &in_pairs(6..=5 + WEIGHED)).await;
            let after = left().await;
            for (at, (what, share)) in [
                ("bytes of the heap", Resource::Heap.sandbox(1)),
                ("bytes of the stats segment", Resource::Counters.sandbox(1)),
                ("buffers", Resource::Buffers.sandbox(1)),
            ]
            .into_iter()
            .enumerate()
            {
                let each = before[at].saturating_sub(after[at]) / u64::from(WEIGHED);
                print(each, what, share);
                assert!(each <= share, "{each} {what} of {share}");
            }
        },
    );
}

/// Leaves room for a dozen sandboxes.
fn fill_heap() {
    let wanted = Resource::Heap.margin() + 12 * Resource::Heap.sandbox(1);
    for network in 0..200 {
        let text = ctl("show memory main-heap");
        let (_, free) = text.split_once("free: ").unwrap();
        let (whole, rest) = free.split_once('.').unwrap();
        assert_eq!(&rest[2..3], "M", "{text}");
        if whole.parse::<u64>().unwrap() << 20 < wanted {
            return;
        }
        ctl(&format!(
            "ip route add fd00:{network:x}::/128 count 500 via drop"
        ));
    }
    panic!("the heap does not fill up");
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        said = format!("{said}: {error}");
        next = error.source();
    }
    said
}

/// One sandbox after the other comes until VPP has no room left: those that came are as they
/// were, and when they go there is room again.
async fn until_refused(plane: &Dataplane, short_of: &str, fill: impl FnOnce()) {
    let specs = in_pairs(2..=101);
    let (first, others) = specs.split_at(2);
    attach_all(plane, first).await;
    fill();
    let mut there = 0;
    let refused = loop {
        match plane.attach(others[there].clone()).await {
            Ok(_) => there += 1,
            Err(error) => break error,
        }
        assert!(there < others.len() - 1, "all were admitted");
    };
    let said = chain(&refused);
    assert!(said.contains(short_of), "{said}");
    assert!(said.contains("causeway vpp config"), "{said}");
    let name = |spec: &SandboxSpec| spec.id.name.to_string();
    let pairs: Vec<_> = specs[..2 + there]
        .chunks_exact(2)
        .map(|pair| (name(&pair[0]), pair[1].address))
        .collect();
    assert!(pairs.len() > 1, "only {there} were admitted");
    all_reached(&pairs).await;
    for spec in &others[..there] {
        plane.detach(spec.uid).await.unwrap();
    }
    tokio::time::sleep(WRITTEN).await;
    plane.attach(others[there].clone()).await.unwrap();
    all_reached(&pairs[..1]).await;
}

#[test]
fn without_room_in_the_heap_a_sandbox_is_refused_and_the_others_stay() {
    isolated(
        concat!(
            module_path!(),
            "::without_room_in_the_heap_a_sandbox_is_refused_and_the_others_stay"
        ),
        async || {
            make_room(Room::LITTLE_HEAP);
            until_refused(&dataplane().await, "heap", fill_heap).await;
        },
    );
}

#[test]
fn the_first_sandbox_needs_room_for_what_all_have_in_common() {
    isolated(
        concat!(
            module_path!(),
            "::the_first_sandbox_needs_room_for_what_all_have_in_common"
        ),
        async || {
            make_room(Room::LITTLE_HEAP);
            // One piece of 28 MB.
            ctl("event-logger resize 1000000");
            let plane = dataplane().await;
            tokio::time::sleep(WRITTEN).await;
            let specs = in_pairs(2..=3);
            let refused = plane.attach(specs[0].clone()).await.unwrap_err();
            let said = chain(&refused);
            assert!(said.contains("heap"), "{said}");
            ctl("event-logger resize 1000");
            tokio::time::sleep(WRITTEN).await;
            attach_all(&plane, &specs).await;
        },
    );
}

#[test]
fn without_room_for_counters_a_sandbox_is_refused_and_the_others_stay() {
    isolated(
        concat!(
            module_path!(),
            "::without_room_for_counters_a_sandbox_is_refused_and_the_others_stay"
        ),
        async || {
            make_room(Room::FEW_COUNTERS);
            until_refused(&dataplane().await, "counters", || {}).await;
        },
    );
}
