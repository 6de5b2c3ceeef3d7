//! DNS queries from sandboxes.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use causeway_egress::dns::Asker;
use causeway_egress::dns::answer::{Verdict, judge};
use causeway_egress::dns::wire::{ExtendedError, Parsed, Reply, encode_tcp, encode_udp, parse};
use causeway_types::{DomainName, NetworkName, Reason, SandboxName, SandboxUid};
use hickory_proto::op::{Message, MessageType, ResponseCode};

/// A sandbox that may resolve some names.
struct Sandbox;

impl Asker for Sandbox {
    fn uid(&self) -> SandboxUid {
        SandboxUid::from_random(1)
    }

    fn quarantined(&self) -> bool {
        false
    }

    fn resolves(&self, name: &DomainName) -> Result<(), Reason> {
        if name.as_str().ends_with(".com") {
            Ok(())
        } else {
            Err(Reason::NameDenied)
        }
    }

    fn opens(&self, _address: IpAddr) -> bool {
        false
    }

    fn reserved(&self, _address: IpAddr) -> bool {
        false
    }

    fn private(&self, sandbox: &SandboxName, _network: &NetworkName) -> Option<Ipv6Addr> {
        (sandbox.as_str() == "web").then_some(Ipv6Addr::LOCALHOST)
    }
}

/// Whatever is answered is a well-formed response to the query, of a size that fits, and only
/// names that may be resolved are.
pub fn dns_query(data: &[u8]) {
    let question = match parse(data) {
        Parsed::Ignored => return,
        Parsed::Error(answer) => return check(data, &answer, usize::from(u16::MAX)),
        Parsed::Question(question) => question,
    };
    let reply = match judge(&question.query, &Sandbox) {
        Verdict::Reply(conclusion) => conclusion.reply,
        Verdict::Resolve(name) => {
            assert!(name.as_str().ends_with(".com"));
            Reply {
                code: ResponseCode::NoError,
                addresses: vec![Ipv6Addr::LOCALHOST; usize::from(data[0])],
                ttl: Duration::from_secs(1),
                error: Some((ExtendedError::Blocked, "some")),
            }
        }
    };
    let limit = usize::from(question.edns.unwrap_or(512).max(512));
    check(data, &encode_udp(&question, &reply), limit);
    check(data, &encode_tcp(&question, &reply), usize::from(u16::MAX));
}

fn check(query: &[u8], answer: &[u8], limit: usize) {
    assert!(answer.len() <= limit, "{} over {limit}", answer.len());
    assert_eq!(answer[..2], query[..2], "the identifier");
    let message = Message::from_vec(answer).expect("an answer is well formed");
    assert_eq!(message.metadata.message_type, MessageType::Response);
}
