use std::time::Duration;

use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};

use super::answer::{Verdict, conclude, judge};
use super::wire::{ExtendedError, Reply};
use super::*;

mod packets;

struct Sandbox {
    quarantined: bool,
    opened: Option<IpAddr>,
}

impl Asker for Sandbox {
    fn uid(&self) -> SandboxUid {
        SandboxUid::from_random(7)
    }
    fn quarantined(&self) -> bool {
        self.quarantined
    }
    fn resolves(&self, name: &DomainName) -> Result<(), Reason> {
        let permitted = name.as_str().ends_with("good.example");
        permitted.then_some(()).ok_or(Reason::NameDenied)
    }
    fn opens(&self, address: IpAddr) -> bool {
        self.opened == Some(address)
    }
    fn reserved(&self, address: IpAddr) -> bool {
        address == ip("203.0.114.1") || address == ip("2a00:1::1")
    }
    fn private(&self, sandbox: &SandboxName, network: &NetworkName) -> Option<Ipv6Addr> {
        (sandbox.as_str() == "api" && network.as_str() == "backend")
            .then(|| "2001:db8::7".parse().unwrap())
    }
}

const SANDBOX: Sandbox = Sandbox {
    quarantined: false,
    opened: None,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn query(name: &str, kind: RecordType) -> Query {
    Query::query(Name::from_ascii(name).unwrap(), kind)
}

fn replied(name: &str, kind: RecordType) -> answer::Conclusion {
    match judge(&query(name, kind), &SANDBOX) {
        Verdict::Reply(conclusion) => conclusion,
        Verdict::Resolve(name) => panic!("{name} would be resolved"),
    }
}

#[test]
fn permitted_names_are_resolved_and_others_do_not_exist() {
    let verdict = judge(&query("API.Good.Example.", RecordType::AAAA), &SANDBOX);
    let name = DomainName::parse("api.good.example").unwrap();
    assert_eq!(verdict, Verdict::Resolve(name));

    let denied = replied("bad.example.", RecordType::AAAA);
    assert_eq!(denied.reply.code, ResponseCode::NXDomain);
    assert_eq!(denied.refused, Some(Reason::NameDenied));
    let error = denied.reply.error.unwrap();
    assert_eq!(error, (ExtendedError::Filtered, "name_denied"));
}

#[test]
fn names_that_are_none_do_not_exist() {
    for name in [
        "127.0.0.1.",
        "0x7f000001.",
        "2130706433.",
        "a\\.b.good.example.",
    ] {
        let refused = replied(name, RecordType::AAAA);
        assert_eq!(refused.reply.code, ResponseCode::NXDomain, "{name}");
        assert_eq!(refused.refused, Some(Reason::BadName), "{name}");
    }
    for name in [
        "localhost.",
        "x.localhost.",
        "printer.local.",
        "web.",
        "a.b.onion.",
        "a.invalid.",
    ] {
        let absent = replied(name, RecordType::AAAA);
        assert_eq!(absent.reply.code, ResponseCode::NXDomain, "{name}");
        assert_eq!(absent.refused, None, "{name}");
    }
    assert_eq!(
        replied(".", RecordType::NS).reply.code,
        ResponseCode::NoError
    );
}

#[test]
fn private_names_are_answered_to_members() {
    let found = replied("api.backend.internal.", RecordType::AAAA).reply;
    assert_eq!(
        found.addresses,
        ["2001:db8::7".parse::<Ipv6Addr>().unwrap()]
    );
    assert_eq!(found.ttl, Duration::from_secs(5));
    let no_data = replied("api.backend.internal.", RecordType::A).reply;
    assert_eq!(
        (no_data.code, no_data.addresses.len()),
        (ResponseCode::NoError, 0)
    );
    for name in [
        "api.other.internal.",
        "db.backend.internal.",
        "backend.internal.",
        "x.api.backend.internal.",
        "metadata.google.internal.",
        "a_b.backend.internal.",
    ] {
        assert_eq!(
            replied(name, RecordType::AAAA).reply.code,
            ResponseCode::NXDomain,
            "{name}"
        );
    }
}

#[test]
fn a_quarantined_sandbox_gets_no_answers() {
    let sandbox = Sandbox {
        quarantined: true,
        opened: None,
    };
    for name in ["good.example.", "api.backend.internal."] {
        match judge(&query(name, RecordType::AAAA), &sandbox) {
            Verdict::Reply(conclusion) => {
                assert_eq!(conclusion.reply.code, ResponseCode::Refused);
                assert_eq!(conclusion.refused, Some(Reason::SandboxQuarantined));
            }
            Verdict::Resolve(_) => panic!("{name} would be resolved"),
        }
    }
}

fn resolved(addresses: &[&str]) -> Resolved {
    let mut resolved = Resolved {
        ttl: Duration::from_secs(60),
        ..Resolved::default()
    };
    for address in addresses {
        match ip(address) {
            IpAddr::V4(v4) => resolved.v4.push(v4),
            IpAddr::V6(v6) => resolved.v6.push(v6),
        }
    }
    resolved
}

fn told(addresses: &[&str], asker: &Sandbox) -> (Vec<String>, Option<Reason>) {
    let query = query("good.example.", RecordType::AAAA);
    let conclusion = conclude(&query, &Ok(resolved(addresses)), asker);
    assert_eq!(conclusion.reply.code, ResponseCode::NoError);
    let told = conclusion.reply.addresses.iter().map(ToString::to_string);
    (told.collect(), conclusion.refused)
}

#[test]
fn ipv4_is_translated_only_without_ipv6() {
    let told = |addresses| told(addresses, &SANDBOX).0;
    assert_eq!(told(&["2a00::1", "8.8.8.8"]), ["2a00::1"]);
    assert_eq!(
        told(&["8.8.8.8", "8.8.8.8"]),
        ["fd63:6175:7365:64::808:808"]
    );
    // An unusable IPv6 address is as good as none.
    assert_eq!(
        told(&["::ffff:1.1.1.1", "8.8.8.8"]),
        ["fd63:6175:7365:64::808:808"]
    );
    assert_eq!(
        told(&["fd00::1", "8.8.8.8"]),
        ["fd63:6175:7365:64::808:808"]
    );
    assert!(told(&[]).is_empty());
}

#[test]
fn reserved_addresses_are_withheld_in_every_spelling() {
    for address in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "203.0.114.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:169.254.169.254",
        "::ffff:8.8.8.8",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::203.0.114.1",
        "2002:7f00:1::1",
        "fd63:6175:7365:64::a9fe:a9fe",
        "fd63:6175:7365::53",
        "2a00:1::1",
        "64:ff9b:1::808:808",
    ] {
        let told = told(&[address], &SANDBOX);
        assert_eq!(
            told,
            (Vec::new(), Some(Reason::ReservedAddress)),
            "{address}"
        );
    }
    // The controls: the public neighbour passes, and a rule opens exactly one address.
    assert_eq!(told(&["10.0.0.1", "2a00:1::2"], &SANDBOX).0, ["2a00:1::2"]);
    let opened = Sandbox {
        quarantined: false,
        opened: Some(ip("10.0.0.1")),
    };
    let (addresses, refused) = told(&["10.0.0.1", "10.0.0.2"], &opened);
    assert_eq!(
        (addresses, refused),
        (vec!["fd63:6175:7365:64::a00:1".to_owned()], None)
    );
}

#[test]
fn other_types_have_no_data_and_missing_names_do_not_exist() {
    let missing = Err(ResolveError::NoSuchName {
        name: DomainName::parse("good.example").unwrap(),
    });
    for kind in [
        RecordType::A,
        RecordType::TXT,
        RecordType::HTTPS,
        RecordType::MX,
        RecordType::ANY,
    ] {
        let query = query("good.example.", kind);
        let there = conclude(&query, &Ok(resolved(&["2a00::1", "8.8.8.8"])), &SANDBOX);
        assert_eq!(there.reply, Reply::empty(ResponseCode::NoError), "{kind}");
        let absent = conclude(&query, &missing, &SANDBOX);
        assert_eq!(absent.reply, Reply::empty(ResponseCode::NXDomain), "{kind}");
    }
}

#[test]
fn upstream_failures_are_told_as_such() {
    let name = DomainName::parse("good.example").unwrap();
    let query = query("good.example.", RecordType::AAAA);
    let busy = Err(ResolveError::Busy { name: name.clone() });
    let conclusion = conclude(&query, &busy, &SANDBOX);
    assert_eq!(conclusion.reply.code, ResponseCode::ServFail);
    assert_eq!(conclusion.refused, Some(Reason::LimitReached));
    let down = conclude(&query, &Err(ResolveError::Unreachable { name }), &SANDBOX);
    assert_eq!(down.refused, Some(Reason::Unresolved));
}
