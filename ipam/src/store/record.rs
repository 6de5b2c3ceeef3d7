//! A lease as it is written: its own type, so that the format stays when the model changes.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use causeway_types::Generation;
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::lease::{Lease, LeaseState, Owner, UnixMillis};

/// The value of a lease's record; the key is its address.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<'a> {
    #[serde(borrow)]
    owner: Cow<'a, str>,
    generation: u64,
    created_ms: u64,
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<Ipv6Net>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum State {
    Reserved,
    Bound,
    Quarantined { until_ms: u64 },
}

/// Writes a lease.
pub(super) fn encode(lease: &Lease) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Record {
        owner: Cow::Borrowed(lease.owner.as_str()),
        generation: lease.generation.0,
        created_ms: lease.created.0,
        state: match lease.state {
            LeaseState::Reserved => State::Reserved,
            LeaseState::Bound => State::Bound,
            LeaseState::Quarantined { until } => State::Quarantined { until_ms: until.0 },
        },
        prefix: lease.prefix,
    })
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(address: Ipv6Addr, value: &[u8]) -> Result<Lease, serde_json::Error> {
    let record: Record<'_> = serde_json::from_slice(value)?;
    let owner = Owner::new(&record.owner).map_err(serde::de::Error::custom)?;
    Ok(Lease {
        address,
        prefix: record.prefix,
        owner,
        generation: Generation(record.generation),
        state: match record.state {
            State::Reserved => LeaseState::Reserved,
            State::Bound => LeaseState::Bound,
            State::Quarantined { until_ms } => LeaseState::Quarantined {
                until: UnixMillis(until_ms),
            },
        },
        created: UnixMillis(record.created_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(state: LeaseState, prefix: Option<Ipv6Net>) -> Lease {
        Lease {
            address: Ipv6Addr::LOCALHOST,
            prefix,
            // A quote and a backslash: what JSON escapes.
            owner: Owner::new("acme/\"web\\").unwrap(),
            generation: Generation(u64::MAX),
            state,
            created: UnixMillis(1),
        }
    }

    #[test]
    fn every_state_goes_there_and_back() {
        let until = UnixMillis(u64::MAX);
        for state in [
            LeaseState::Reserved,
            LeaseState::Bound,
            LeaseState::Quarantined { until },
        ] {
            for prefix in [None, Some("2001:db8::/80".parse().unwrap())] {
                let lease = lease(state, prefix);
                let read = decode(lease.address, &encode(&lease).unwrap()).unwrap();
                assert_eq!(read, lease);
            }
        }
    }

    #[test]
    fn the_written_form_is_fixed() {
        let mut lease = lease(LeaseState::Bound, Some("2001:db8::/80".parse().unwrap()));
        lease.owner = Owner::new("a").unwrap();
        lease.generation = Generation(7);
        assert_eq!(
            String::from_utf8(encode(&lease).unwrap()).unwrap(),
            r#"{"owner":"a","generation":7,"created_ms":1,"state":"bound","prefix":"2001:db8::/80"}"#
        );
    }

    #[test]
    fn unknown_fields_and_bad_owners_are_refused() {
        let good = r#"{"owner":"a","generation":7,"created_ms":1,"state":"bound"}"#;
        assert!(decode(Ipv6Addr::LOCALHOST, good.as_bytes()).is_ok());
        for bad in [
            good.replace("\"a\"", "\"\""),
            good.replace("\"bound\"", "\"lost\""),
            good.replace('7', "7,\"color\":1"),
            String::new(),
        ] {
            assert!(
                decode(Ipv6Addr::LOCALHOST, bad.as_bytes()).is_err(),
                "{bad}"
            );
        }
    }
}
