//! The packet filter against the real kernel: structure, elements, counters.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of tests fail as tests do, and say what was skipped"
)]

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use causeway_dataplane::elements::{
    Element, ElementChanges, GroupId, PortIndexes, PortRef, ServiceBlock,
};
use causeway_dataplane::kernel::nft::{Epoch, Filter, Installed, NftError, Ruleset};
use causeway_types::SandboxUid;

/// Runs `body` in a network namespace of its own, which ends with it.
fn in_namespace(body: impl FnOnce() + Send + 'static) {
    let test = causeway_testing::test_name();
    let thread = std::thread::spawn(move || {
        if let Err(errno) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            causeway_testing::skip(
                &test,
                &format!("needs the right to make network namespaces ({errno})"),
            );
            return;
        }
        body();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ruleset() -> Ruleset {
    Ruleset {
        uplink: "cw-up".to_owned(),
        proxy_mark: 0xca05_e000,
        proxy_port: 15001,
        operator_prefixes: vec!["2001:db8::/32".parse().unwrap()],
        own_prefixes: vec!["2600:1::/64".parse().unwrap()],
    }
}

fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft").args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn block(protocols: (u8, u8), ports: (u16, u16)) -> ServiceBlock {
    ServiceBlock {
        first_protocol: protocols.0,
        last_protocol: protocols.1,
        first_port: ports.0,
        last_port: ports.1,
    }
}

/// At least one element of every kind, with the edges.
fn examples() -> Vec<Element> {
    let net = |text: &str| text.parse().unwrap();
    let (a, b) = (GroupId(1), GroupId(0x8123_4567));
    let services = [
        block((6, 6), (443, 443)),
        block((17, 17), (0, u16::MAX)),
        block((58, 58), (0, u16::MAX)),
        block((18, 57), (0, u16::MAX)),
    ];
    let mut elements = vec![
        Element::Source {
            port: PortRef::Index(1),
            address: "2001:db8::1".parse().unwrap(),
        },
        Element::Source {
            port: PortRef::Index(0x0102_0304),
            address: "fe80::1:2".parse().unwrap(),
        },
        Element::Group {
            address: "2001:db8::1".parse().unwrap(),
            group: a,
        },
        Element::Group {
            address: "2001:db8::2".parse().unwrap(),
            group: b,
        },
        Element::GroupPrefix {
            prefix: net("2001:db8:1::/64"),
            group: a,
        },
        Element::GroupPrefix {
            prefix: net("2001:db8:1:1::/64"),
            group: b,
        },
        Element::Quarantine {
            prefix: net("2001:db8::1/128"),
        },
        Element::Quarantine {
            prefix: net("2001:db8::2/127"),
        },
        Element::Quarantine {
            prefix: net("ffff::/16"),
        },
        Element::Reach { from: a, to: b },
        Element::Shared { from: b, to: a },
        Element::EgressReserved {
            group: a,
            prefix: net("fd00:1::/48"),
            service: ServiceBlock::ALL,
        },
        Element::Egress {
            group: a,
            prefix: net("::/0"),
            service: ServiceBlock::ALL,
        },
        Element::EgressDeny {
            group: b,
            prefix: net("2600:2::/33"),
            service: ServiceBlock::ALL,
        },
    ];
    for service in services {
        elements.push(Element::ReachPorts {
            from: b,
            to: a,
            service,
        });
        for prefix in [net("2600:3::/32"), net("2600:4::7/128")] {
            elements.push(Element::Inbound {
                group: a,
                prefix,
                service,
            });
        }
    }
    elements
}

fn add(elements: &[Element]) -> ElementChanges {
    ElementChanges {
        add: elements.to_vec(),
        remove: Vec::new(),
    }
}

fn remove(elements: &[Element]) -> ElementChanges {
    ElementChanges {
        add: Vec::new(),
        remove: elements.to_vec(),
    }
}

#[test]
fn elements_go_in_and_come_back_and_changes_are_idempotent() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        let all = examples();
        assert!(matches!(
            filter.apply(&add(&all), &indexes),
            Err(NftError::Missing)
        ));
        filter.install(&ruleset()).unwrap();

        for _ in 0..2 {
            filter.apply(&add(&all), &indexes).unwrap();
            let there = filter.elements(&indexes).unwrap();
            assert_eq!(there.elements, all.iter().copied().collect::<BTreeSet<_>>());
            assert_eq!(there.strays, []);
        }

        // Removing some that are there among some that are not.
        let (gone, kept) = all.split_at(all.len() / 2);
        for _ in 0..2 {
            filter.apply(&remove(gone), &indexes).unwrap();
            let there = filter.elements(&indexes).unwrap();
            assert_eq!(
                there.elements,
                kept.iter().copied().collect::<BTreeSet<_>>()
            );
            assert_eq!(there.strays, []);
        }
        filter.apply(&remove(&all), &indexes).unwrap();
        assert!(filter.elements(&indexes).unwrap().elements.is_empty());
    });
}

#[test]
fn nft_shows_what_we_wrote() {
    in_namespace(|| {
        let mut filter = Filter::open().unwrap();
        filter.install(&ruleset()).unwrap();
        filter
            .apply(&add(&examples()), &PortIndexes::default())
            .unwrap();
        for (set, lines) in [
            (
                "groups",
                &["2001:db8::1 : 0x00000001", "2001:db8::2 : 0x81234567"][..],
            ),
            (
                "group_prefixes",
                &[
                    "2001:db8:1::/64 : 0x00000001",
                    "2001:db8:1:1::/64 : 0x81234567",
                ],
            ),
            (
                "groups_to",
                &["2001:db8::1 : 0:1", "2001:db8::2 : 8123:4567"],
            ),
            (
                "group_prefixes_to",
                &["2001:db8:1::/64 : 0:1", "2001:db8:1:1::/64 : 8123:4567"],
            ),
            (
                "quarantine",
                &["2001:db8::1", "2001:db8::2/127", "ffff::/16"],
            ),
            ("sources", &["1 . 2001:db8::1", "16909060 . fe80::1:2"]),
            ("reach", &["0x00000001 . 8123:4567"]),
            ("share", &["0x81234567 . 0:1"]),
            (
                "reach_ports",
                &[
                    "0x81234567 . 0:1 . tcp . 443",
                    "0x81234567 . 0:1 . udp . 0-65535",
                    "0x81234567 . 0:1 . ipv6-icmp . 0-65535",
                ],
            ),
            ("reach_portless", &["0x81234567 . 0:1 . ipv6-icmp"]),
            ("egress", &["0x00000001 . ::/0 . 0-255 . 0-65535"]),
            (
                "egress_deny_portless",
                &["0x81234567 . 2600:2::/33 . 0-255"],
            ),
            ("inbound", &["0x00000001 . 2600:4::7 . tcp . 443"]),
        ] {
            let kind = if set.starts_with("group") {
                "map"
            } else {
                "set"
            };
            let listed = nft(&["-n", "list", kind, "inet", "causeway", set]);
            let listed = listed
                .replace("\"lo\"", "1")
                .replace(" . 6 . ", " . tcp . ");
            let listed = listed
                .replace(" . 17 . ", " . udp . ")
                .replace(" . 58", " . ipv6-icmp");
            for line in lines {
                assert!(listed.contains(line), "{line} is not in {listed}");
            }
        }
    });
}

#[test]
fn a_refused_element_is_named_and_nothing_else_changes() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        filter.install(&ruleset()).unwrap();
        let group = |group| Element::Group {
            address: "2001:db8::9".parse().unwrap(),
            group: GroupId(group),
        };
        filter.apply(&add(&[group(1)]), &indexes).unwrap();
        // The address has a group, and another one is asked for.
        let reach = Element::Reach {
            from: GroupId(1),
            to: GroupId(2),
        };
        let error = filter
            .apply(&add(&[reach, group(2), reach]), &indexes)
            .unwrap_err();
        assert!(
            matches!(&error, NftError::Refused { entry, .. } if entry == "2001:db8::9 : 2"),
            "{error:?}"
        );
        let there = filter.elements(&indexes).unwrap().elements;
        assert_eq!(there, BTreeSet::from([group(1)]));
        // Moving it in one transaction works.
        let change = ElementChanges {
            add: vec![group(2)],
            remove: vec![group(1)],
        };
        filter.apply(&change, &indexes).unwrap();
        let there = filter.elements(&indexes).unwrap().elements;
        assert_eq!(there, BTreeSet::from([group(2)]));

        let uid = SandboxUid::from_random(5);
        let source = Element::Source {
            port: PortRef::Sandbox(uid),
            address: "2001:db8::9".parse().unwrap(),
        };
        assert!(matches!(
            filter.apply(&add(&[source]), &indexes),
            Err(NftError::NoPort { uid: named }) if named == uid
        ));
    });
}

#[test]
fn structure_is_written_once_and_replaced_with_its_elements() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        assert!(!filter.is_current(&ruleset()).unwrap());
        assert_eq!(filter.install(&ruleset()).unwrap(), Installed::Written);
        assert!(filter.is_current(&ruleset()).unwrap());
        let all = examples();
        filter.apply(&add(&all), &indexes).unwrap();
        nft(&["add element inet causeway drops { 7 . 3 counter packets 11 bytes 99 }"]);
        let drops = filter.drops().unwrap();
        assert_eq!(drops.values().copied().collect::<Vec<_>>(), [11]);

        // Left alone: even what was put beside it is still there.
        nft(&["add chain inet causeway canary"]);
        assert_eq!(filter.install(&ruleset()).unwrap(), Installed::Unchanged);
        nft(&["list chain inet causeway canary"]);

        let mut other = ruleset();
        other.uplink = "eth9".to_owned();
        assert_eq!(filter.install(&other).unwrap(), Installed::Replaced);
        assert!(filter.is_current(&other).unwrap());
        let there = filter.elements(&indexes).unwrap();
        assert_eq!(there.elements, all.into_iter().collect::<BTreeSet<_>>());
        assert_eq!(there.strays, []);
        assert_eq!(filter.drops().unwrap(), drops);
        assert!(!nft(&["list ruleset"]).contains("canary"));

        filter.forget_drops(8).unwrap();
        assert_eq!(filter.drops().unwrap(), drops);
        filter.forget_drops(7).unwrap();
        assert!(filter.drops().unwrap().is_empty());

        for _ in 0..2 {
            filter.remove().unwrap();
            assert_eq!(nft(&["list ruleset"]), "");
        }
    });
}

#[test]
fn an_epoch_ends_with_every_change_that_takes_a_right_away() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        filter.install(&ruleset()).unwrap();
        assert_eq!(filter.epoch().unwrap(), None);
        let quarantine = Element::Quarantine {
            prefix: "2001:db8::1/128".parse().unwrap(),
        };
        let denial = Element::EgressDeny {
            group: GroupId(1),
            prefix: "2600:2::/33".parse().unwrap(),
            service: ServiceBlock::ALL,
        };
        let right = Element::Reach {
            from: GroupId(1),
            to: GroupId(2),
        };
        let mut number = 0;
        for (change, lasts) in [
            (add(&[right]), true),
            (add(&[quarantine]), false),
            (remove(&[quarantine]), true),
            (add(&[denial]), false),
            (remove(&[denial]), true),
            (remove(&[right]), false),
        ] {
            number += 1;
            let epoch = Epoch::at(Duration::from_millis(number));
            filter.begin_epoch(epoch).unwrap();
            assert_eq!(filter.epoch().unwrap(), Some(epoch));
            filter.apply(&change, &indexes).unwrap();
            let expected = lasts.then_some(epoch);
            assert_eq!(filter.epoch().unwrap(), expected, "{change:?}");
        }

        filter.begin_epoch(Epoch::at(Duration::ZERO)).unwrap();
        nft(&["add element inet causeway reach_portless { 77 . 0:4e . 58 }"]);
        let strays = filter.elements(&indexes).unwrap().strays;
        filter.remove_strays(strays).unwrap();
        assert_eq!(filter.epoch().unwrap(), None);

        // New rules judge by themselves.
        filter.begin_epoch(Epoch::at(Duration::ZERO)).unwrap();
        let mut other = ruleset();
        other.uplink = "eth9".to_owned();
        filter.install(&other).unwrap();
        assert_eq!(filter.epoch().unwrap(), None);
    });
}

#[test]
fn strays_are_found_and_removed() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        filter.install(&ruleset()).unwrap();
        filter.apply(&add(&examples()), &indexes).unwrap();
        nft(&["add element inet causeway reach_portless { 77 . 0:4e . 58 }"]);
        let there = filter.elements(&indexes).unwrap();
        assert_eq!(there.strays.len(), 1);
        filter.remove_strays(there.strays).unwrap();
        let after = filter.elements(&indexes).unwrap();
        assert_eq!(after.strays, []);
        assert_eq!(after.elements, there.elements);
    });
}

/// Twenty thousand sandboxes' elements are more than the kernel takes in one message, and
/// than a dump gives in one.
#[test]
fn many_elements_go_in_and_out() {
    in_namespace(|| {
        let indexes = PortIndexes::default();
        let mut filter = Filter::open().unwrap();
        filter.install(&ruleset()).unwrap();
        let all: Vec<_> = (1..=20_000_u32)
            .flat_map(|number| {
                let address = (0x2001_0db8 << 96 | u128::from(number)).into();
                [
                    Element::Source {
                        port: PortRef::Index(number),
                        address,
                    },
                    Element::Group {
                        address,
                        group: GroupId(number % 7 + 1),
                    },
                ]
            })
            .collect();
        let start = Instant::now();
        filter.apply(&add(&all), &indexes).unwrap();
        println!("{} elements added in {:?}", all.len(), start.elapsed());
        let start = Instant::now();
        let there = filter.elements(&indexes).unwrap();
        println!("read in {:?}", start.elapsed());
        assert_eq!(there.elements.len(), all.len());

        // What one more sandbox costs beside them.
        let mut times = Vec::new();
        for number in 0..200_u32 {
            let address = (0x2001_0db9_u128 << 96 | u128::from(number)).into();
            let one = [
                Element::Source {
                    port: PortRef::Index(50_000 + number),
                    address,
                },
                Element::Source {
                    port: PortRef::Index(50_000 + number),
                    address: (0xfe80 << 112 | u128::from(number)).into(),
                },
                Element::Group {
                    address,
                    group: GroupId(1),
                },
            ];
            let start = Instant::now();
            filter.apply(&add(&one), &indexes).unwrap();
            times.push(start.elapsed());
        }
        times.sort();
        println!(
            "one attach: median {:?}, worst {:?}",
            times[100], times[199]
        );

        filter.apply(&remove(&all), &indexes).unwrap();
        assert_eq!(filter.elements(&indexes).unwrap().elements.len(), 600);
    });
}
