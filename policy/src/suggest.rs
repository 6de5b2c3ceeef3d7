//! A draft of a policy that permits what a sandbox was seen to do, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use causeway_types::{DomainName, Labels, PolicyName, TenantName};

use crate::import::draft::{Draft, DraftPolicy, DraftRule, To};
use crate::model::{CanonicalPath, Method, NamePattern, PathGlob};

/// Something that a sandbox did, or would have done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Observation {
    /// The host, where there is one.
    pub name: Option<DomainName>,
    /// The address that was asked for.
    pub address: Option<IpAddr>,
    /// The TCP port.
    pub port: u16,
    /// The method and path of a request; none for a connection that nobody looked into.
    pub request: Option<(String, CanonicalPath)>,
}

/// Paths of one host and method that are listed one by one. Beyond, what they have in common is.
const PATHS: usize = 16;
/// Hosts, and addresses, that are listed at most: beyond, the draft says how many it left out.
const DESTINATIONS: usize = 1000;

/// Writes a draft for sandboxes of `tenant` with these labels. Destinations that were only named,
/// and never connected to, are not observations.
pub fn suggest(
    tenant: &TenantName,
    name: &PolicyName,
    selector: &Labels,
    observed: impl IntoIterator<Item = Observation>,
) -> String {
    let mut hosts: BTreeMap<(DomainName, u16), Seen> = BTreeMap::new();
    let mut addresses: BTreeMap<(IpAddr, u16), usize> = BTreeMap::new();
    let mut left_out = 0;
    for seen in observed {
        match (seen.name, seen.address) {
            (Some(host), _) if hosts.len() < DESTINATIONS => {
                hosts
                    .entry((host, seen.port))
                    .or_default()
                    .add(seen.request);
            }
            (None, Some(address)) if addresses.len() < DESTINATIONS => {
                *addresses.entry((address, seen.port)).or_default() += 1;
            }
            (None, None) => {}
            _ => left_out += 1,
        }
    }
    let mut rules: Vec<DraftRule> = hosts
        .into_iter()
        .map(|((host, port), seen)| seen.rule(host, port))
        .collect();
    for ((address, port), count) in addresses {
        let to = To::Prefixes(vec![ipnet::IpNet::from(address).to_string()]);
        rules.push(DraftRule {
            comment: Some(format!("{count} connections, without a name")),
            ..DraftRule::permit(to, &[&format!("tcp/{port}")])
        });
    }
    let draft = Draft {
        documents: vec![DraftPolicy {
            tenant: tenant.to_string(),
            name: name.to_string(),
            selector: selector.clone(),
            egress: Some(rules),
            ..DraftPolicy::default()
        }],
    };
    match left_out {
        0 => draft.to_string(),
        more => {
            format!("# {more} more connections went to more destinations than fit here.\n{draft}")
        }
    }
}

/// What was asked of one host and port.
#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    requests: usize,
    paths: BTreeMap<String, BTreeSet<CanonicalPath>>,
    /// A request whose method no rule can name.
    odd: bool,
}

impl Seen {
    fn add(&mut self, request: Option<(String, CanonicalPath)>) {
        match request {
            None => self.connections += 1,
            Some((method, path)) => {
                self.requests += 1;
                self.odd |= !matches!(Method::parse(&method), Ok(Method::Exact(_)));
                self.paths.entry(method).or_default().insert(path);
            }
        }
    }

    /// Requests are listed only if everything that was seen are requests: others would be refused.
    fn rule(self, host: DomainName, port: u16) -> DraftRule {
        let mut rule = DraftRule::permit(
            To::Names(vec![NamePattern::Exact(host)]),
            &[&port.to_string()],
        );
        if self.connections > 0 || self.odd {
            rule.comment = Some(format!(
                "{} connections that were not looked into, {} requests",
                self.connections, self.requests
            ));
            return rule;
        }
        rule.comment = Some(format!("{} requests", self.requests));
        let mut by_paths: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (method, paths) in self.paths {
            by_paths.entry(globs(&paths)).or_default().push(method);
        }
        rule.http = by_paths
            .into_iter()
            .map(|(paths, methods)| (methods, paths))
            .collect();
        rule
    }
}

/// Globs for paths: each as it is, with identifiers as wildcards, or what all have in common.
fn globs(paths: &BTreeSet<CanonicalPath>) -> Vec<String> {
    let listed: Option<BTreeSet<String>> = paths.iter().map(glob).collect();
    if let Some(listed) = listed.filter(|listed| listed.len() <= PATHS) {
        return listed.into_iter().collect();
    }
    let mut common: Option<Vec<&str>> = None;
    for path in paths {
        let segments: Vec<&str> = path.segments().collect();
        // The last segment is what differs.
        let parents = segments.get(..segments.len() - 1).unwrap_or_default();
        common = Some(match common {
            None => parents.to_vec(),
            Some(known) => {
                let same = known.iter().zip(parents).take_while(|(a, b)| a == b);
                known.get(..same.count()).unwrap_or_default().to_vec()
            }
        });
    }
    let mut shared = String::new();
    for segment in common.unwrap_or_default() {
        shared.push('/');
        shared.push_str(segment);
    }
    let shared = format!("{shared}/**");
    let all = paths
        .iter()
        .all(|path| PathGlob::parse(&shared).is_ok_and(|glob| glob.matches(path)));
    vec![if all { shared } else { "/**".to_owned() }]
}

/// A path as a glob, with identifiers as wildcards.
fn glob(path: &CanonicalPath) -> Option<String> {
    let mut glob = String::new();
    for segment in path.segments() {
        glob.push('/');
        glob.push_str(if is_identifier(segment) { "*" } else { segment });
    }
    // A star in the path itself would match more than that.
    let good = !path.as_str().contains('*')
        && PathGlob::parse(&glob).is_ok_and(|parsed| parsed.matches(path));
    good.then_some(glob)
}

/// Whether a segment names one of many: a number, a hash, a UUID.
fn is_identifier(segment: &str) -> bool {
    let digits = segment.bytes().filter(u8::is_ascii_digit).count();
    let hex = segment.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (digits == segment.len() && digits > 0) || (hex && segment.len() >= 16 && digits > 0)
}
