use proptest::prelude::*;

use super::*;

const SANDBOX: SandboxUid = SandboxUid::from_random(1);
const OTHER: SandboxUid = SandboxUid::from_random(2);
const MINUTE: Duration = Duration::from_secs(60);

fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn small() -> Pins {
    let limit = |n| NonZeroUsize::new(n).unwrap();
    Pins::new(PinLimits {
        sandboxes: limit(2),
        addresses: limit(3),
        names: limit(2),
        hold: 10 * MINUTE,
        longest: 60 * MINUTE,
    })
}

#[test]
fn a_pin_belongs_to_one_sandbox_and_one_address() {
    let (pins, now) = (small(), Instant::now());
    let cdn = address("2001:db8::1");
    pins.insert(SANDBOX, cdn, &name("a.example"), MINUTE, now);
    let found = pins.lookup(SANDBOX, cdn, now).unwrap();
    assert!(found.carries(&name("a.example")));
    assert_eq!(found.upstream, IpAddr::V6(cdn));
    assert_eq!(pins.lookup(OTHER, cdn, now), None);
    assert_eq!(pins.lookup(SANDBOX, address("2001:db8::2"), now), None);
    pins.forget_sandbox(SANDBOX);
    assert_eq!(pins.lookup(SANDBOX, cdn, now), None);
}

#[test]
fn one_address_carries_several_names_and_the_latest_stay() {
    let (pins, now) = (small(), Instant::now());
    let cdn = address("2001:db8::1");
    for text in ["a.example", "b.example", "a.example", "c.example"] {
        pins.insert(SANDBOX, cdn, &name(text), MINUTE, now);
    }
    let found = pins.lookup(SANDBOX, cdn, now).unwrap();
    assert_eq!(found.names, [name("c.example"), name("a.example")]);
}

#[test]
fn the_least_used_address_goes_first() {
    let (pins, now) = (small(), Instant::now());
    let insert = |n: u16| {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n);
        pins.insert(SANDBOX, address, &name("a.example"), MINUTE, now);
        address
    };
    let (first, second, _third) = (insert(1), insert(2), insert(3));
    assert!(pins.lookup(SANDBOX, first, now).is_some());
    insert(4);
    assert!(pins.lookup(SANDBOX, first, now).is_some());
    assert!(pins.lookup(SANDBOX, second, now).is_none());
}

#[test]
fn a_pin_outlives_its_answer_while_it_is_used_but_not_for_ever() {
    let (pins, start) = (small(), Instant::now());
    let at = address("2001:db8::1");
    pins.insert(SANDBOX, at, &name("a.example"), MINUTE, start);
    let alive = |minutes| pins.lookup(SANDBOX, at, start + minutes * MINUTE).is_some();
    for minutes in [5, 14, 23, 32, 41, 50, 59] {
        assert!(alive(minutes), "{minutes}");
    }
    assert!(!alive(62), "61 minutes is the longest");

    pins.insert(SANDBOX, at, &name("a.example"), MINUTE, start);
    assert!(!alive(11), "unused, it is gone after its time and the hold");
}

#[test]
fn translated_addresses_stand_for_ipv4() {
    let (pins, now) = (small(), Instant::now());
    let v4 = Ipv4Addr::new(192, 0, 2, 33);
    let answer = synthesise(v4);
    assert_eq!(answer, address("fd63:6175:7365:64::192.0.2.33"));
    pins.insert(SANDBOX, answer, &name("v4.example"), MINUTE, now);
    let found = pins.lookup(SANDBOX, answer, now).unwrap();
    assert_eq!(found.upstream, IpAddr::V4(v4));
}

proptest! {
    #[test]
    fn translation_goes_both_ways(bits: u32) {
        let v4 = Ipv4Addr::from_bits(bits);
        prop_assert_eq!(upstream(synthesise(v4)), IpAddr::V4(v4));
    }

    /// Against a model without bounds: what is found was inserted for that very sandbox and
    /// address, and its time is not over.
    #[test]
    fn nothing_is_found_that_was_not_inserted(
        steps in prop::collection::vec((0u64..3, 0u16..5, 0u8..4, 0u32..90, any::<bool>()), 1..60),
    ) {
        let (pins, start) = (small(), Instant::now());
        let (mut now, mut model) = (start, std::collections::HashMap::new());
        for (sandbox, host, label, minutes, insert) in steps {
            now += minutes * MINUTE / 4;
            let uid = SandboxUid::from_random(sandbox);
            let at = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host);
            if insert {
                let name = name(&format!("n{label}.example"));
                pins.insert(uid, at, &name, MINUTE, now);
                model.insert((uid, at, name), now);
                continue;
            }
            if let Some(found) = pins.lookup(uid, at, now) {
                prop_assert!(!found.names.is_empty() && found.names.len() <= 2);
                for name in found.names {
                    let inserted = model.get(&(uid, at, name)).copied();
                    prop_assert!(inserted.is_some_and(|then| now < then + 61 * MINUTE));
                }
            }
        }
    }

    /// What was inserted last is always found until the hold is over.
    #[test]
    fn the_latest_answer_is_found(host: u16, minutes in 0u32..11) {
        let (pins, now) = (small(), Instant::now());
        let at = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host);
        for other in 0..9 {
            let full = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, other);
            pins.insert(SANDBOX, full, &name("b.example"), MINUTE, now);
        }
        pins.insert(SANDBOX, at, &name("a.example"), MINUTE, now);
        let later = now + minutes * MINUTE;
        prop_assert!(pins.lookup(SANDBOX, at, later).is_some_and(|p| p.carries(&name("a.example"))));
    }
}
