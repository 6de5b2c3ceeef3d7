//! Representatives of all that rules speak of, and what both sides say about them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use causeway_types::DomainName;
use ipnet::IpNet;

use super::DestinationChange;
use crate::compile::{Effective, Target};
use crate::explain::Outcome;
use crate::model::{
    CanonicalPath, Destination, EgressRule, HttpRule, Method, NamePattern, PortSet, Protocol,
};

/// The most questions for one comparison; each costs about a microsecond on each side.
const MAX_QUESTIONS: usize = 500_000;
/// A label, path segment and method that no rule has in it.
const NOBODY: &str = "causeway-probe";
/// What a name stands for while no address is known: one that is public.
const PUBLIC_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 1);
const PUBLIC_V4: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// All that the rules of two sides speak of.
pub(super) struct Probes<'a> {
    names: BTreeSet<&'a NamePattern>,
    prefixes: BTreeSet<IpNet>,
    /// Where stretches of ports begin, by protocol.
    begins: BTreeMap<Protocol, BTreeSet<u16>>,
    /// The names and requests of rules that match requests.
    http: Vec<(&'a [NamePattern], &'a [HttpRule])>,
}

impl<'a> Probes<'a> {
    pub(super) fn new(documents: impl Iterator<Item = &'a [EgressRule]>) -> Self {
        let mut probes = Self {
            names: BTreeSet::from([&NamePattern::Any]),
            prefixes: BTreeSet::from([
                IpNet::V4(ipnet::Ipv4Net::default()),
                IpNet::V6(ipnet::Ipv6Net::default()),
            ]),
            begins: BTreeMap::from([
                (Protocol::Tcp, BTreeSet::from([1])),
                (Protocol::Udp, BTreeSet::from([1])),
                (Protocol::Icmpv6, BTreeSet::from([0])),
            ]),
            http: Vec::new(),
        };
        for rule in documents.flatten() {
            probes.add(rule);
        }
        probes
    }

    fn add(&mut self, rule: &'a EgressRule) {
        match &rule.to {
            Destination::Names(names) => {
                self.names.extend(names);
                if let Some(http) = &rule.http {
                    self.http.push((names, http));
                }
            }
            Destination::Prefixes(prefixes) => self.prefixes.extend(prefixes),
        }
        let PortSet::Ranges(ranges) = &rule.ports else {
            return;
        };
        for range in ranges.iter().filter(|r| r.protocol() != Protocol::Icmpv6) {
            let begins = self.begins.entry(range.protocol()).or_default();
            begins.insert(range.first());
            begins.extend(range.last().checked_add(1));
        }
    }

    /// Stretches of ports on which no decision changes.
    fn stretches(&self, protocol: Protocol) -> Vec<(u16, u16)> {
        let Some(begins) = self.begins.get(&protocol) else {
            return Vec::new();
        };
        let ends = begins.iter().skip(1).map(|next| next - 1);
        let last = if protocol == Protocol::Icmpv6 {
            0
        } else {
            u16::MAX
        };
        begins.iter().copied().zip(ends.chain([last])).collect()
    }

    /// Requests to ask about at a destination: those of all rules on names like it, and one that
    /// no rule has.
    fn requests(&self, name: &NamePattern) -> Vec<Sample> {
        let mut found = Vec::new();
        let near = self
            .http
            .iter()
            .filter(|(names, _)| names.iter().any(|other| other.overlaps(name)));
        let rules = near.flat_map(|(_, http)| http.iter());
        let mut methods = BTreeSet::from([Method::Any]);
        let mut globs = BTreeSet::from(["/**".to_owned()]);
        let mut named = BTreeSet::new();
        for rule in rules {
            for method in &rule.methods {
                named.extend(rule.paths.iter().map(|path| format!("{method} {path}")));
            }
            methods.extend(rule.methods.iter().cloned());
            globs.extend(rule.paths.iter().map(ToString::to_string));
        }
        for method in &methods {
            for glob in &globs {
                let sample = glob.replace("**", NOBODY).replace('*', NOBODY);
                let Ok(path) = CanonicalPath::parse(&sample) else {
                    continue;
                };
                let word = match method {
                    Method::Any => NOBODY.to_ascii_uppercase(),
                    Method::Exact(method) => method.clone(),
                };
                let shown = format!("{method} {glob}");
                found.push(Sample {
                    named: named.contains(&shown),
                    shown,
                    method: word,
                    path,
                });
            }
        }
        found
    }

    /// An address of the prefix that no longer prefix has, as far as there is one among some.
    fn sample(&self, prefix: IpNet) -> IpAddr {
        let middle = match prefix {
            IpNet::V4(net) => {
                let half = u32::MAX.checked_shr(u32::from(net.prefix_len()) + 1);
                IpAddr::V4((u32::from(net.network()) | half.unwrap_or(0)).into())
            }
            IpNet::V6(net) => {
                let half = u128::MAX.checked_shr(u32::from(net.prefix_len()) + 1);
                IpAddr::V6((u128::from(net.network()) | half.unwrap_or(0)).into())
            }
        };
        let candidates = [
            PUBLIC_V6.into(),
            PUBLIC_V4.into(),
            middle,
            prefix.broadcast(),
            prefix.network(),
        ];
        let inside = |address: &IpAddr| prefix.contains(address);
        let own = |address: &IpAddr| {
            let longer = |other: &&IpNet| other.prefix_len() > prefix.prefix_len();
            !self
                .prefixes
                .iter()
                .filter(longer)
                .any(|other| other.contains(address))
        };
        let good = |address: &IpAddr| inside(address) && own(address);
        candidates
            .into_iter()
            .find(good)
            .unwrap_or_else(|| prefix.network())
    }
}

/// A request to ask about.
struct Sample {
    /// In a rule's words.
    shown: String,
    /// Whether a rule has just this.
    named: bool,
    method: String,
    path: CanonicalPath,
}

/// A name that the pattern matches, and no other pattern that does not cover it.
fn sample_name(pattern: &NamePattern) -> Option<DomainName> {
    let text = match pattern {
        NamePattern::Any => format!("{NOBODY}.invalid"),
        NamePattern::Exact(name) => return Some(name.clone()),
        NamePattern::OneBelow(base) => format!("{NOBODY}.{base}"),
        NamePattern::AnyBelow(base) => format!("{NOBODY}.{NOBODY}.{base}"),
    };
    DomainName::parse(&text).ok()
}

/// Asks both sides.
pub(super) struct Asker<'a> {
    sides: [&'a Effective; 2],
    probes: &'a Probes<'a>,
    left: usize,
    /// Whether everything was asked.
    pub(super) complete: bool,
}

/// What both sides say, with the rule of the second.
type Verdicts = (Outcome, Outcome, Option<String>);

impl<'a> Asker<'a> {
    pub(super) fn new(sides: [&'a Effective; 2], probes: &'a Probes<'a>) -> Self {
        Self {
            sides,
            probes,
            left: MAX_QUESTIONS,
            complete: true,
        }
    }

    pub(super) fn ask(&mut self) -> Vec<DestinationChange> {
        let mut found = Vec::new();
        for pattern in &self.probes.names {
            let Some(name) = sample_name(pattern) else {
                continue;
            };
            let target = Target {
                name: Some(&name),
                address: Some(PUBLIC_V6.into()),
                port: 0,
                protocol: Protocol::Tcp,
                http: None,
            };
            let to = pattern.to_string();
            found.extend(self.ports(&to, &target, None));
            if self.inspected(&target) {
                found.extend(self.requests(&to, pattern, &target));
            }
        }
        for prefix in &self.probes.prefixes {
            for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Icmpv6] {
                let target = Target {
                    name: None,
                    address: Some(self.probes.sample(*prefix)),
                    port: 0,
                    protocol,
                    http: None,
                };
                found.extend(self.ports(&prefix.to_string(), &target, None));
            }
        }
        found
    }

    /// Requests with another outcome: those that rules name, and all others together where they
    /// have the same.
    fn requests(
        &mut self,
        to: &str,
        pattern: &NamePattern,
        target: &Target<'_>,
    ) -> Vec<DestinationChange> {
        let samples = self.probes.requests(pattern);
        let mut ask = |sample: &Sample, shown: &str| {
            let http = Some((sample.method.as_str(), &sample.path));
            self.ports(to, &Target { http, ..*target }, Some(shown))
        };
        let (other, rest): (Vec<_>, Vec<_>) =
            samples.iter().partition(|s| !s.named && s.shown == "* /**");
        let other: Vec<_> = other
            .iter()
            .flat_map(|s| ask(s, "requests that no rule names"))
            .collect();
        let mut found = other.clone();
        for sample in rest {
            let mut changes = ask(sample, &sample.shown);
            if !sample.named {
                let known = |change: &DestinationChange| {
                    other.iter().any(|o| {
                        (&o.ports, o.before, o.after)
                            == (&change.ports, change.before, change.after)
                    })
                };
                changes.retain(|change| !known(change));
            }
            found.extend(changes);
        }
        found
    }

    /// Whether requests to this name are looked into on some port, on one of the sides.
    fn inspected(&self, target: &Target<'_>) -> bool {
        let stretches = self.probes.stretches(target.protocol);
        stretches.into_iter().any(|(port, _)| {
            let target = Target { port, ..*target };
            self.sides.iter().any(|side| {
                let permit = side.connect_to(&target);
                permit.is_ok_and(|permit| permit.inspect)
            })
        })
    }

    /// The stretches of ports on which the sides differ, neighbours with the same verdicts as one.
    fn ports(
        &mut self,
        to: &str,
        target: &Target<'_>,
        request: Option<&str>,
    ) -> Vec<DestinationChange> {
        let mut runs: Vec<(u16, u16, Verdicts)> = Vec::new();
        for (first, last) in self.probes.stretches(target.protocol) {
            if self.left == 0 {
                self.complete = false;
                return Vec::new();
            }
            self.left -= 1;
            let at = Target {
                port: first,
                ..*target
            };
            let mut verdicts = self.verdicts(&at);
            if target.http.is_some() {
                // What happens to the connection is listed already.
                let (before, after, _) = self.verdicts(&Target { http: None, ..at });
                if (before, after) == (verdicts.0, verdicts.1) {
                    verdicts.1 = verdicts.0;
                }
            }
            match runs.last_mut() {
                Some((_, end, known)) if *known == verdicts => *end = last,
                _ => runs.push((first, last, verdicts)),
            }
        }
        runs.retain(|(_, _, (before, after, _))| before != after);
        let mut together: BTreeMap<(Outcome, Outcome, Option<String>), Vec<String>> =
            BTreeMap::new();
        for (first, last, verdicts) in runs {
            let ports = shown(target.protocol, first, last);
            together.entry(verdicts).or_default().push(ports);
        }
        together
            .into_iter()
            .map(|((before, after, rule), ports)| DestinationChange {
                to: to.to_owned(),
                ports: ports.join(", "),
                request: request.map(str::to_owned),
                before,
                after,
                rule,
            })
            .collect()
    }

    fn verdicts(&self, target: &Target<'_>) -> Verdicts {
        let [(before, _), (after, rule)] = self.sides.map(|side| verdict(side, target));
        (before, after, rule)
    }
}

fn verdict(side: &Effective, target: &Target<'_>) -> (Outcome, Option<String>) {
    let decided = match target.http {
        None => side.connect_to(target).map(|p| (p.rule, p.audit)),
        Some(_) => side.send_to(target, true).map(|p| (p.rule, p.audit)),
    };
    let (outcome, rule) = match decided {
        Ok((rule, None)) => (Outcome::Permit, rule),
        Ok((_, Some(denial))) => (Outcome::Audit, denial.rule),
        Err(denial) => (Outcome::Deny, denial.rule),
    };
    (outcome, rule.map(|rule| rule.to_string()))
}

fn shown(protocol: Protocol, first: u16, last: u16) -> String {
    match (protocol, first, last) {
        (Protocol::Icmpv6, ..) => protocol.to_string(),
        (_, 1, u16::MAX) => format!("{protocol}/*"),
        (_, first, last) if first == last => format!("{protocol}/{first}"),
        (_, first, last) => format!("{protocol}/{first}-{last}"),
    }
}
