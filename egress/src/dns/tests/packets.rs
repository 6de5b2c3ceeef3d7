//! Packets in both directions, and the limits.

use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{DNSClass, RData, Record};
use proptest::prelude::*;

use super::*;
use crate::dns::chain::{self, Reading};
use crate::dns::limits::{Admission, Limits};
use crate::dns::wire::{self, Parsed};

fn packet(query: Query, edns: Option<u16>) -> Vec<u8> {
    let mut message = Message::new(0xbeef, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(query);
    if let Some(size) = edns {
        message.set_edns(Edns::new().set_max_payload(size).clone());
    }
    message.to_vec().unwrap()
}

fn question(name: &str, edns: Option<u16>) -> wire::Question {
    match wire::parse(&packet(query(name, RecordType::AAAA), edns)) {
        Parsed::Question(question) => question,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_repeat_the_question_as_it_was_spelled() {
    let question = question("ApI.gOOd.eXample.", Some(1232));
    let reply = Reply {
        addresses: vec!["2a00::1".parse().unwrap()],
        ttl: Duration::from_secs(60),
        ..Reply::empty(ResponseCode::NoError)
    };
    let answer = Message::from_vec(&wire::encode_udp(&question, &reply)).unwrap();
    assert_eq!(answer.metadata.id, 0xbeef);
    assert!(answer.metadata.recursion_available && answer.metadata.recursion_desired);
    assert_eq!(answer.queries[0].name().to_ascii(), "ApI.gOOd.eXample.");
    assert_eq!((answer.answers.len(), answer.answers[0].ttl), (1, 60));
    assert!(answer.edns.is_some());
}

#[test]
fn extended_errors_are_sent_to_clients_that_speak_edns() {
    let reply =
        Reply::empty(ResponseCode::NXDomain).because(ExtendedError::Filtered, "name_denied");
    let bytes = wire::encode_udp(&question("bad.example.", Some(4096)), &reply);
    let expected = [&[0, 15, 0, 13, 0, 17][..], b"name_denied"].concat();
    assert!(bytes.ends_with(&expected), "{bytes:x?}");
    let plain = wire::encode_udp(&question("bad.example.", None), &reply);
    assert!(Message::from_vec(&plain).unwrap().edns.is_none());
}

#[test]
fn long_answers_are_cut_over_udp_and_whole_over_tcp() {
    let reply = Reply {
        addresses: (0..200)
            .map(|n| Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, n))
            .collect(),
        ..Reply::empty(ResponseCode::NoError)
    };
    for (edns, limit) in [
        (None, 512),
        (Some(100), 512),
        (Some(800), 800),
        (Some(65_000), 1232),
    ] {
        let question = question("good.example.", edns);
        let bytes = wire::encode_udp(&question, &reply);
        assert!(bytes.len() <= limit);
        let cut = Message::from_vec(&bytes).unwrap();
        assert!(cut.metadata.truncation && cut.queries.len() == 1);
        let whole = Message::from_vec(&wire::encode_tcp(&question, &reply)).unwrap();
        assert_eq!(
            (whole.answers.len(), whole.metadata.truncation),
            (200, false)
        );
    }
}

#[test]
fn odd_packets_get_short_errors_or_nothing() {
    let good = packet(query("good.example.", RecordType::AAAA), None);
    let code = |packet: &[u8]| match wire::parse(packet) {
        Parsed::Error(error) => {
            assert!(error.len() <= packet.len() + 11, "no amplification");
            assert_eq!(error[..2], packet[..2]);
            Some(Message::from_vec(&error).unwrap().metadata.response_code)
        }
        Parsed::Ignored => None,
        Parsed::Question(_) => Some(ResponseCode::NoError),
    };
    let with = |index: usize, value: u8| {
        let mut packet = good.clone();
        packet[index] = value;
        packet
    };
    assert_eq!(code(&good), Some(ResponseCode::NoError));
    assert_eq!(code(&good[..11]), None);
    assert_eq!(code(&with(2, 0x81)), None, "a response");
    assert_eq!(
        code(&with(2, 0x29)),
        Some(ResponseCode::NotImp),
        "an update"
    );
    assert_eq!(
        code(&with(5, 2)),
        Some(ResponseCode::FormErr),
        "two questions"
    );
    assert_eq!(
        code(&with(4, 0xff)),
        Some(ResponseCode::FormErr),
        "65,281 questions"
    );
    assert_eq!(code(&with(7, 1)), Some(ResponseCode::FormErr), "an answer");
    assert_eq!(
        code(&good[..good.len() - 1]),
        Some(ResponseCode::FormErr),
        "cut"
    );
    let mut chaos = query("version.bind.", RecordType::TXT);
    chaos.set_query_class(DNSClass::CH);
    assert_eq!(code(&packet(chaos, None)), Some(ResponseCode::Refused));
    let mut versioned = packet(query("good.example.", RecordType::AAAA), Some(1232));
    let version = versioned.len() - 5;
    versioned[version] = 1;
    // The code is shared with BADSIG, which is what the decoder calls it.
    assert_eq!(code(&versioned).map(u16::from), Some(16));
}

fn record(name: &str, ttl: u32, data: RData) -> Record {
    Record::from_rdata(Name::from_ascii(name).unwrap(), ttl, data)
}

fn cname(target: &str) -> RData {
    RData::CNAME(CNAME(Name::from_ascii(target).unwrap()))
}

fn response(code: ResponseCode, answers: Vec<Record>) -> Message {
    let mut message = Message::new(1, MessageType::Response, OpCode::Query);
    message.metadata.response_code = code;
    message.add_answers(answers);
    message
}

#[test]
fn only_the_chain_from_the_question_is_followed() {
    let asked = query("a.example.", RecordType::A);
    let address = |n| RData::A(A([192, 0, 2, n].into()));
    let read = |answers| chain::read(&asked, &response(ResponseCode::NoError, answers));
    let chained = read(vec![
        record("c.example.", 30, address(1)),
        record("B.example.", 20, cname("c.example.")),
        record("a.example.", 90, cname("b.EXAMPLE.")),
        record("evil.example.", 90, address(66)),
        record("c.example.", 30, RData::AAAA(AAAA(Ipv6Addr::LOCALHOST))),
    ]);
    let seconds = Duration::from_secs;
    assert_eq!(
        chained,
        Reading::Addresses(vec![ip("192.0.2.1")], seconds(20))
    );
    let stranger = read(vec![record("evil.example.", 90, address(66))]);
    assert_eq!(stranger, Reading::NoData(None));
    let dangling = read(vec![record("a.example.", 9, cname("x.example."))]);
    let target = Name::from_ascii("x.example.").unwrap();
    assert_eq!(
        dangling,
        Reading::Alias {
            target,
            steps: 1,
            ttl: seconds(9)
        }
    );
    let circle = read(vec![
        record("a.example.", 9, cname("b.example.")),
        record("b.example.", 9, cname("a.example.")),
    ]);
    assert_eq!(circle, Reading::Endless);
    let failed = chain::read(&asked, &response(ResponseCode::ServFail, vec![]));
    assert_eq!(failed, Reading::Failed(ResponseCode::ServFail));
}

#[test]
fn the_time_of_an_absence_is_that_of_the_zone() {
    let asked = query("a.example.", RecordType::A);
    let name = Name::from_ascii("example.").unwrap();
    let soa = RData::SOA(SOA::new(name.clone(), name, 1, 2, 3, 4, 17));
    let mut message = response(ResponseCode::NXDomain, vec![]);
    assert_eq!(chain::read(&asked, &message), Reading::NoSuchName(None));
    message.add_authority(record("example.", 900, soa));
    let read = chain::read(&asked, &message);
    assert_eq!(read, Reading::NoSuchName(Some(Duration::from_secs(17))));
}

#[test]
fn limits_are_per_sandbox_and_notes_are_rare() {
    let number = |n| std::num::NonZeroU32::new(n).unwrap();
    let keys = std::num::NonZeroUsize::new(10).unwrap();
    let mut limits = Limits::new(number(10), number(5), 100, keys);
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(limits.admit(1, start), Admission::Granted);
    }
    assert_eq!(limits.admit(1, start), Admission::Refused { note: true });
    assert_eq!(limits.admit(1, start), Admission::Refused { note: false });
    assert_eq!(limits.admit(2, start), Admission::Granted);
    let later = start + Duration::from_millis(100);
    assert_eq!(limits.admit(1, later), Admission::Granted);
    assert_eq!(limits.admit(1, later), Admission::Refused { note: false });

    let mut limits = Limits::new(number(1000), number(1000), 2, keys);
    assert_eq!(limits.admit(1, start), Admission::Granted);
    assert_eq!(limits.admit(1, start), Admission::Granted);
    assert!(matches!(limits.admit(1, start), Admission::Refused { .. }));
    limits.release(&1);
    assert_eq!(limits.admit(1, start), Admission::Granted);
}

proptest! {
    /// Whatever a sandbox sends, parsing ends without a panic, and errors are not longer than
    /// a header and an option.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check_packet(&bytes)?;
    }

    /// The same near well-formed packets, where the decoder gets further.
    #[test]
    fn damaged_queries_are_read(
        edns in prop::option::of(any::<u16>()),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut bytes = packet(query("api.good.example.", RecordType::AAAA), edns);
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        check_packet(&bytes)?;
    }

    /// And what an upstream, or somebody who pretends to be one, may send.
    #[test]
    fn any_response_is_read(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let asked = query("a.example.", RecordType::A);
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(asked.clone());
        drop(exchange::accept(&message, &bytes));
        let mut good = response(ResponseCode::NoError, vec![
            record("a.example.", 9, cname("b.example.")),
            record("b.example.", 9, RData::A(A([192, 0, 2, 1].into()))),
        ]);
        good.metadata.id = 7;
        good.add_query(asked.clone());
        let mut bytes = good.to_vec().unwrap();
        prop_assert!(exchange::accept(&message, &bytes).is_some());
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Some(read) = exchange::accept(&message, &bytes) {
            prop_assert_eq!(&read.queries[..], std::slice::from_ref(&asked));
            drop(chain::read(&asked, &read));
        }
    }
}

fn check_packet(bytes: &[u8]) -> Result<(), TestCaseError> {
    match wire::parse(bytes) {
        Parsed::Question(question) => {
            let reply = match judge(&question.query, &SANDBOX) {
                Verdict::Reply(conclusion) => conclusion.reply,
                Verdict::Resolve(_) => {
                    conclude(&question.query, &Ok(resolved(&["8.8.8.8"])), &SANDBOX).reply
                }
            };
            let answer = wire::encode_udp(&question, &reply);
            prop_assert!(answer.len() <= usize::from(wire::MAX_UDP));
            prop_assert_eq!(&answer[..2], &bytes[..2]);
            let read = Message::from_vec(&answer);
            prop_assert!(read.is_ok(), "{:?}", read);
        }
        Parsed::Error(error) => prop_assert!(error.len() <= bytes.len() + 11),
        Parsed::Ignored => {}
    }
    Ok(())
}
