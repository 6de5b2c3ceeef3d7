//! Reading a response: following aliases to the addresses at their end. Pure.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record};

/// The most aliases between a name and its addresses, over all responses.
pub(super) const MAX_ALIASES: usize = 16;

/// What a response says about a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reading {
    /// The addresses of the name.
    Addresses(Vec<IpAddr>, Duration),
    /// The name exists, without addresses of this family. The time is absent when the response
    /// says none, as when it has no SOA record (RFC 2308).
    NoData(Option<Duration>),
    /// There is no such name.
    NoSuchName(Option<Duration>),
    /// The name is an alias, and the response ends there after this many steps.
    Alias {
        target: Name,
        steps: usize,
        ttl: Duration,
    },
    /// The aliases lead in a circle, or are too many.
    Endless,
    /// The upstream failed or refuses.
    Failed(ResponseCode),
}

/// Reads the response to `query`. Records that do not belong to the chain that begins at the
/// name asked for are ignored, whatever section they are in.
pub(super) fn read(query: &Query, response: &Message) -> Reading {
    let code = response.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Reading::Failed(code);
    }
    let mut owner = query.name().clone();
    let mut ttl = u32::MAX;
    let mut steps = 0;
    while let Some((target, alias_ttl)) = alias(&owner, &response.answers) {
        steps += 1;
        if steps > MAX_ALIASES {
            return Reading::Endless;
        }
        ttl = ttl.min(alias_ttl);
        owner = target;
    }
    let found: Vec<_> = (response.answers.iter())
        .filter(|record| belongs(record, &owner))
        .filter_map(|record| address(query, &record.data).map(|address| (address, record.ttl)))
        .collect();
    if !found.is_empty() {
        ttl = found.iter().fold(ttl, |ttl, (_, own)| ttl.min(*own));
        let addresses = found.into_iter().map(|(address, _)| address).collect();
        return Reading::Addresses(addresses, seconds(ttl));
    }
    let negative = negative_ttl(response).map(|own| seconds(ttl.min(own)));
    if code == ResponseCode::NXDomain {
        return Reading::NoSuchName(negative);
    }
    // With a SOA record the upstream has looked at the end of the chain itself.
    if steps > 0 && negative.is_none() {
        let ttl = seconds(ttl);
        return Reading::Alias {
            target: owner,
            steps,
            ttl,
        };
    }
    Reading::NoData(negative)
}

fn belongs(record: &Record, owner: &Name) -> bool {
    record.dns_class == DNSClass::IN && record.name == *owner
}

fn alias(owner: &Name, answers: &[Record]) -> Option<(Name, u32)> {
    answers.iter().find_map(|record| match &record.data {
        RData::CNAME(target) if belongs(record, owner) => Some((target.0.clone(), record.ttl)),
        _ => None,
    })
}

fn address(query: &Query, data: &RData) -> Option<IpAddr> {
    if data.record_type() != query.query_type() {
        return None;
    }
    match data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    }
}

/// How long a negative answer holds (RFC 2308, section 5), in seconds.
fn negative_ttl(response: &Message) -> Option<u32> {
    response
        .authorities
        .iter()
        .find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        })
}

fn seconds(ttl: u32) -> Duration {
    // The highest bit is to be read as zero seconds (RFC 2181, section 8).
    let ttl = if ttl > i32::MAX.unsigned_abs() {
        0
    } else {
        ttl
    };
    Duration::from_secs(u64::from(ttl))
}
