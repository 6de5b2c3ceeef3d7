use proptest::prelude::*;

use super::*;
use crate::elements::ServiceBlock;

const SANDBOXES: u8 = 6;
const GROUPS: u32 = 4;

fn uid(n: u8) -> SandboxUid {
    SandboxUid::from_random(u64::from(n) + 1)
}

fn address(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n) + 1)
}

/// A world in the plainest form: what each sandbox is, and what groups may.
#[derive(Debug, Clone)]
struct World {
    group: Vec<Option<u32>>,
    quarantined: Vec<bool>,
    small: Vec<bool>,
    shared: Vec<bool>,
    reach: BTreeSet<(u32, u32)>,
    deny: BTreeSet<(u32, u8)>,
}

impl World {
    fn elements(&self) -> BTreeSet<Element> {
        let mut elements = BTreeSet::new();
        for n in 0..SANDBOXES {
            let at = usize::from(n);
            let Some(group) = self.group[at] else {
                continue;
            };
            let port = PortRef::Sandbox(uid(n));
            let link_local = "fe80::7".parse().unwrap();
            for address in [address(n), link_local] {
                elements.insert(Element::Source { port, address });
            }
            elements.insert(Element::Group {
                address: address(n),
                group: GroupId(group),
            });
            if self.quarantined[at] {
                elements.insert(Element::Quarantine {
                    prefix: address(n).into(),
                });
            }
        }
        for &(from, to) in &self.reach {
            elements.insert(Element::Reach {
                from: GroupId(from),
                to: GroupId(to),
            });
        }
        for &(group, n) in &self.deny {
            elements.insert(Element::EgressDeny {
                group: GroupId(group),
                prefix: address(n).into(),
                service: ServiceBlock {
                    first_protocol: 17,
                    last_protocol: 17,
                    first_port: 1,
                    last_port: 2,
                },
            });
        }
        elements
    }

    fn links(&self) -> BTreeMap<SandboxUid, Link> {
        let link = |n: u8| {
            let at = usize::from(n);
            Link {
                mtu: if self.small[at] { 1400 } else { 1500 },
                shared_memory: self.shared[at],
            }
        };
        (0..SANDBOXES).map(|n| (uid(n), link(n))).collect()
    }

    /// Whether the border would let everything pass from one to the other.
    fn permits_all(&self, from: u8, to: u8) -> bool {
        let (a, b) = (usize::from(from), usize::from(to));
        let (Some(from), Some(group)) = (self.group[a], self.group[b]) else {
            return false;
        };
        !self.quarantined[a]
            && !self.quarantined[b]
            && self.reach.contains(&(from, group))
            && !self.deny.contains(&(from, to))
    }

    fn direct(&self) -> Direct {
        Direct::compile(&self.elements(), &self.links())
    }
}

fn world() -> impl Strategy<Value = World> {
    let each = usize::from(SANDBOXES);
    (
        prop::collection::vec(prop::option::weighted(0.9, 1..=GROUPS), each),
        prop::collection::vec(prop::bool::weighted(0.1), each),
        prop::collection::vec(prop::bool::weighted(0.1), each),
        prop::collection::vec(prop::bool::weighted(0.1), each),
        prop::collection::btree_set((1..=GROUPS, 1..=GROUPS), 0..14),
        prop::collection::btree_set((1..=GROUPS, 0..SANDBOXES), 0..3),
    )
        .prop_map(|(group, quarantined, small, shared, reach, deny)| World {
            group,
            quarantined,
            small,
            shared,
            reach,
            deny,
        })
}

fn pairs(direct: &Direct) -> BTreeSet<(u8, u8)> {
    let all = (0..SANDBOXES).flat_map(|a| (0..SANDBOXES).map(move |b| (a, b)));
    all.filter(|&(a, b)| direct.carries(uid(a), address(b)))
        .collect()
}

proptest! {
    #[test]
    fn only_what_the_border_would_let_pass_both_ways_is_direct(world in world()) {
        let direct = world.direct();
        for (a, b) in pairs(&direct) {
            prop_assert!(world.permits_all(a, b) && world.permits_all(b, a), "{a} to {b}");
            prop_assert!(direct.carries(uid(b), address(a)), "{b} answers {a} another way");
            let links = world.links();
            prop_assert_eq!(links[&uid(a)], links[&uid(b)], "{} to {}", a, b);
        }
        for (group, routes) in &direct.tables {
            prop_assert!(!routes.is_empty(), "{group}");
            for (to, of) in routes {
                let owner = (0..SANDBOXES).find(|n| uid(*n) == *of).unwrap();
                prop_assert_eq!(*to, address(owner));
            }
        }
    }

    #[test]
    fn without_denials_and_odd_sizes_all_that_may_be_is_direct(world in world()) {
        let world = World {
            deny: BTreeSet::new(),
            small: vec![false; usize::from(SANDBOXES)],
            shared: vec![false; usize::from(SANDBOXES)],
            ..world
        };
        let found = pairs(&world.direct());
        for a in 0..SANDBOXES {
            for b in (0..SANDBOXES).filter(|b| *b != a) {
                let wanted = world.permits_all(a, b) && world.permits_all(b, a);
                prop_assert_eq!(found.contains(&(a, b)), wanted, "{} to {}", a, b);
            }
        }
    }

    #[test]
    fn changes_lead_there_and_are_never_wider_than_both(from in world(), to in world()) {
        let (from, to) = (from.direct(), to.direct());
        let changes = from.changes(&to);
        let mut state = from.clone();
        for change in &changes.narrow {
            state.apply(*change);
        }
        let between = pairs(&state);
        prop_assert!(between.is_subset(&pairs(&from)) && between.is_subset(&pairs(&to)));
        for change in &changes.widen {
            if let Change::RemoveTable(group) = change {
                prop_assert!(state.tables[group].is_empty());
                prop_assert!(!state.bindings.values().any(|bound| bound == group));
            }
            state.apply(*change);
        }
        prop_assert_eq!(&state, &to);
        prop_assert!(to.changes(&state).is_empty());
    }
}

#[test]
fn a_lone_sandbox_has_no_table() {
    let world = World {
        group: vec![Some(1), None, None, None, None, None],
        quarantined: vec![false; 6],
        small: vec![false; 6],
        shared: vec![false; 6],
        reach: BTreeSet::from([(1, 1)]),
        deny: BTreeSet::new(),
    };
    assert_eq!(world.direct(), Direct::default());
}
