//! Requests, dumps and events, against a fake VPP.

use std::time::Duration;

use crate::fake::{FakeVpp, Numbers, impatient};
use futures_util::future::join_all;
use vpp_config::messages::feature::FeatureIsEnabled;
use vpp_config::messages::interface::{
    SwInterfaceDetails, SwInterfaceDump, SwInterfaceEvent, SwInterfaceSetFlags,
};
use vpp_config::messages::ip::{IpPathMtuDetails, IpPathMtuGet, IpTableDump};
use vpp_config::messages::memclnt::{ControlPing, GetApiJson};
use vpp_config::messages::policer::PolicerInputV2;
use vpp_config::messages::reply::{ApiJson, CliOutput, Done};
use vpp_config::messages::vlib::CliInband;
use vpp_config::messages::{Dump, EventMessage, Get, MessageId, Request};
use vpp_config::types::InterfaceIndex;
use vpp_config::{CallError, CloseReason, EventError, Options, Retval};

fn interface(index: u32) -> SwInterfaceDetails {
    SwInterfaceDetails {
        sw_if_index: InterfaceIndex(index),
        ..SwInterfaceDetails::default()
    }
}

#[tokio::test]
async fn a_request_is_answered_by_its_context() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let command = |text: &str| CliInband { cmd: text.into() };
    let (first, second) = (command("first"), command("second"));
    let serve = async {
        let asked = [peer.receive().await, peer.receive().await];
        for request in asked.iter().rev() {
            // The text follows its length.
            let reply = CliOutput {
                reply: std::str::from_utf8(&request.body[4..]).unwrap().into(),
            };
            peer.reply::<CliInband>(request.context, &reply).await;
        }
    };
    let (first, second, ()) = tokio::join!(client.call(&first), client.call(&second), serve);
    assert_eq!(first.unwrap().reply, "first");
    assert_eq!(second.unwrap().reply, "second");
}

#[tokio::test]
async fn a_refusal_is_told_by_its_return_value() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let request = SwInterfaceSetFlags::default();
    let serve = async {
        let request = peer.receive().await;
        let mut rest = request.context.to_be_bytes().to_vec();
        rest.extend_from_slice(&(-2i32).to_be_bytes());
        let number = peer.numbers.of(SwInterfaceSetFlags::REPLY_ID);
        peer.raw(number, &rest).await;
    };
    let (answer, ()) = tokio::join!(client.call(&request), serve);
    let error = answer.unwrap_err();
    assert_eq!(error.retval(), Some(Retval::INVALID_SW_IF_INDEX));
    assert!(error.is_without_effect());
    assert_eq!(
        error.to_string(),
        "sw_interface_set_flags: VPP answered -2 (no such interface)"
    );
}

#[tokio::test]
async fn an_answer_with_the_index_before_its_context_is_found() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let request = FeatureIsEnabled::default();
    let serve = async {
        let request = peer.receive().await;
        let mut rest = vec![0; 4];
        rest.extend_from_slice(&request.context.to_be_bytes());
        rest.extend_from_slice(&[0, 0, 0, 0, 1]);
        let number = peer.numbers.of(FeatureIsEnabled::REPLY_ID);
        peer.raw(number, &rest).await;
    };
    let (answer, ()) = tokio::join!(client.call(&request), serve);
    assert!(answer.unwrap().is_enabled);
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_a_late_answer_disturbs_nobody() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(impatient()).await;
    let error = client.call(&ControlPing {}).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Deadline {
                message: "control_ping",
                sent: true,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!error.is_without_effect());

    let late = peer.receive().await;
    peer.pong(late.context, 1).await;
    let serve = async {
        let request = peer.receive().await;
        assert_ne!(request.context, late.context);
        peer.pong(request.context, 7).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    assert_eq!(answer.unwrap().vpe_pid, 7);
    assert_eq!(client.connection().unwrap().strays(), 1);
}

#[tokio::test]
async fn what_vpp_does_not_offer_is_not_sent() {
    let fake = FakeVpp::new();
    let numbers = Numbers::without(100, &["ip_table_dump", "sw_interface_details"]);
    let (client, mut peer) = fake.connect_to(Options::default(), numbers).await;
    assert!(!client.has::<IpTableDump>());
    assert!(client.has::<SwInterfaceSetFlags>());
    assert!(!client.has::<SwInterfaceDump>(), "nothing can answer it");
    let error = client.dump(&IpTableDump {}).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "ip_table_dump: VPP does not offer ip_table_dump_51077d14"
    );
    assert!(peer.is_silent().await);
}

#[tokio::test]
async fn dumps_may_be_answered_in_turns() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let request = SwInterfaceDump::default();
    let serve = async {
        let mut contexts = Vec::new();
        for _ in 0..2 {
            let dump = peer.receive().await;
            assert_eq!(dump.number, peer.numbers.of(SwInterfaceDump::ID));
            let ping = peer.receive().await;
            assert_eq!(ping.number, peer.numbers.of(ControlPing::ID));
            assert_eq!(ping.context, dump.context);
            contexts.push(dump.context);
        }
        let id = SwInterfaceDump::DETAILS_ID;
        for index in 0..3 {
            peer.send(id, contexts[0], &interface(index)).await;
            peer.send(id, contexts[1], &interface(10 + index)).await;
        }
        peer.pong(contexts[1], 1).await;
        peer.send(id, contexts[0], &interface(3)).await;
        peer.pong(contexts[0], 1).await;
    };
    let (first, second, ()) = tokio::join!(client.dump(&request), client.dump(&request), serve);
    let indices = |details: Vec<SwInterfaceDetails>| -> Vec<_> {
        details
            .iter()
            .map(|interface| interface.sw_if_index.0)
            .collect()
    };
    assert_eq!(indices(first.unwrap()), [0, 1, 2, 3]);
    assert_eq!(indices(second.unwrap()), [10, 11, 12]);
}

#[tokio::test]
async fn a_get_goes_on_from_its_cursor() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let serve = async {
        for (expected, retval, next) in [(0u32, -165i32, 7u32), (7, 0, u32::MAX)] {
            let request = peer.receive().await;
            assert_eq!(request.body, expected.to_be_bytes());
            let details = IpPathMtuDetails::default();
            peer.send(IpPathMtuGet::DETAILS_ID, request.context, &details)
                .await;
            let mut rest = request.context.to_be_bytes().to_vec();
            rest.extend_from_slice(&retval.to_be_bytes());
            rest.extend_from_slice(&next.to_be_bytes());
            let number = peer.numbers.of(IpPathMtuGet::REPLY_ID);
            peer.raw(number, &rest).await;
        }
    };
    let (all, ()) = tokio::join!(client.get(&IpPathMtuGet {}), serve);
    assert_eq!(all.unwrap().len(), 2);
}

#[tokio::test]
async fn a_dump_beyond_its_limit_is_given_up() {
    let fake = FakeVpp::new();
    let options = Options {
        max_dump: 1000,
        ..Options::default()
    };
    let (client, mut peer) = fake.connect(options).await;
    let request = SwInterfaceDump::default();
    let serve = async {
        let context = peer.receive().await.context;
        for index in 0..10 {
            peer.send(SwInterfaceDump::DETAILS_ID, context, &interface(index))
                .await;
        }
        peer
    };
    let (answer, _peer) = tokio::join!(client.dump(&request), serve);
    assert!(matches!(
        answer.unwrap_err(),
        CallError::TooLarge { max: 1000, .. }
    ));
}

#[tokio::test]
async fn an_answer_of_another_kind_is_an_error() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let serve = async {
        let context = peer.receive().await.context;
        peer.reply::<SwInterfaceSetFlags>(context, &Done {}).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    assert_eq!(
        answer.unwrap_err().to_string(),
        "control_ping: answered with sw_interface_set_flags_reply"
    );
}

#[tokio::test]
async fn an_answer_of_the_same_layout_is_taken() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let request = PolicerInputV2::default();
    let serve = async {
        let context = peer.receive().await.context;
        peer.reply::<SwInterfaceSetFlags>(context, &Done {}).await;
    };
    let (answer, ()) = tokio::join!(client.call(&request), serve);
    answer.unwrap();
}

#[tokio::test]
async fn a_truncated_answer_is_an_error_and_the_connection_stays() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let serve = async {
        let context = peer.receive().await.context;
        let mut rest = context.to_be_bytes().to_vec();
        rest.extend_from_slice(&[0, 0, 0, 0, 1]);
        let number = peer.numbers.of(ControlPing::REPLY_ID);
        peer.raw(number, &rest).await;
        let context = peer.receive().await.context;
        peer.pong(context, 1).await;
    };
    let calls = async {
        let answer = client.call(&ControlPing {}).await;
        assert!(matches!(answer.unwrap_err(), CallError::Decode { .. }));
        client.call(&ControlPing {}).await.unwrap();
    };
    tokio::join!(calls, serve);
}

#[tokio::test]
async fn events_between_replies_reach_who_wants_them_and_shift_nothing() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let mut events = client.events();
    let event = |index| SwInterfaceEvent {
        pid: 1,
        sw_if_index: InterfaceIndex(index),
        ..SwInterfaceEvent::default()
    };
    let serve = async {
        let context = peer.receive().await.context;
        // The client's index is where replies have their context: here, the same number.
        peer.send(SwInterfaceEvent::ID, context, &event(1)).await;
        peer.pong(context, 5).await;
        peer.send(SwInterfaceEvent::ID, context, &event(2)).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    assert_eq!(answer.unwrap().vpe_pid, 5);
    for index in [1, 2] {
        let next = events.next().await.unwrap();
        assert_eq!(next.generation, 1);
        let decoded = next.decode::<SwInterfaceEvent>().unwrap().unwrap();
        assert_eq!(decoded, event(index));
    }
}

#[tokio::test]
async fn a_flood_of_events_is_counted_and_holds_nothing_up() {
    let fake = FakeVpp::new();
    let options = Options {
        event_queue: 16,
        ..Options::default()
    };
    let (client, mut peer) = fake.connect(options).await;
    let mut events = client.events();
    let serve = async {
        let context = peer.receive().await.context;
        for _ in 0..5000 {
            let event = SwInterfaceEvent::default();
            peer.send(SwInterfaceEvent::ID, 0, &event).await;
        }
        peer.pong(context, 1).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    answer.unwrap();
    assert_eq!(
        events.next().await.unwrap_err(),
        EventError::Missed { count: 5000 - 16 }
    );
    events.next().await.unwrap();
}

#[tokio::test]
async fn no_more_requests_are_in_flight_than_the_window_holds() {
    let fake = FakeVpp::new();
    let options = Options {
        window: 4,
        ..Options::default()
    };
    let (client, mut peer) = fake.connect(options).await;
    let serve = async {
        let mut waiting: Vec<_> = Vec::new();
        for _ in 0..4 {
            waiting.push(peer.receive().await.context);
        }
        assert!(peer.is_silent().await);
        peer.pong(waiting.remove(0), 1).await;
        waiting.push(peer.receive().await.context);
        assert!(peer.is_silent().await);
        for _ in 0..5 {
            peer.pong(waiting.remove(0), 1).await;
            waiting.push(peer.receive().await.context);
        }
        for context in waiting {
            peer.pong(context, 1).await;
        }
    };
    let calls = join_all((0..10).map(|_| client.call(&ControlPing {})));
    let (answers, ()) = tokio::join!(calls, serve);
    assert!(answers.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_peer_that_stops_reading_costs_deadlines_and_no_more() {
    let fake = FakeVpp::new();
    let options = Options {
        window: 8,
        ..impatient()
    };
    let (client, mut peer) = fake.connect(options).await;
    // Far more than the socket holds.
    let request = CliInband {
        cmd: "x".repeat(1 << 20).as_str().into(),
    };
    let mut unsent = 0;
    for _ in 0..3 {
        for answer in join_all((0..16).map(|_| client.call(&request))).await {
            match answer.unwrap_err() {
                CallError::Deadline { sent, .. } => unsent += u32::from(!sent),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(unsent >= 24, "{unsent} of 48 were not sent");
    // What was given up before it was sent is never sent.
    drop(client);
    let mut received = 0;
    while peer.try_receive().await.is_some() {
        received += 1;
    }
    assert!(received + unsent <= 48, "{received} were received");
}

#[tokio::test]
async fn a_call_that_is_dropped_frees_its_place() {
    let fake = FakeVpp::new();
    let options = Options {
        window: 1,
        ..Options::default()
    };
    let (client, mut peer) = fake.connect(options).await;
    {
        let mut call = Box::pin(client.call(&ControlPing {}));
        tokio::select! {
            _ = &mut call => panic!("nobody answered"),
            _ = peer.receive() => {}
        }
    }
    let serve = async {
        let context = peer.receive().await.context;
        peer.pong(context, 3).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    assert_eq!(answer.unwrap().vpe_pid, 3);
}

#[tokio::test]
async fn the_longest_answer_passes_and_a_longer_one_ends_the_connection() {
    let fake = FakeVpp::new();
    let options = Options {
        max_frame: 2 << 20,
        ..Options::default()
    };
    let (client, mut peer) = fake.connect(options).await;
    let json = "j".repeat(1_300_000);
    let reply = ApiJson {
        json: json.as_str().into(),
    };
    let serve = async {
        let context = peer.receive().await.context;
        peer.reply::<GetApiJson>(context, &reply).await;
        let _context = peer.receive().await.context;
        let mut header = [0; 16];
        header[8..12].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
        tokio::io::AsyncWriteExt::write_all(&mut peer.stream, &header)
            .await
            .unwrap();
        peer
    };
    let calls = async {
        let answer = client.call(&GetApiJson {}).await.unwrap();
        assert_eq!(answer.json, json.as_str());
        client.call(&ControlPing {}).await.unwrap_err()
    };
    let (error, _peer) = tokio::join!(calls, serve);
    let CallError::Closed { reason, sent, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        reason,
        CloseReason::FrameTooLong {
            len: 0x7fff_ffff,
            max: 2 << 20
        }
    );
    assert!(sent);
}

#[tokio::test]
async fn every_call_ends_when_the_socket_closes() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(Options::default()).await;
    let request = SwInterfaceDump::default();
    let serve = async {
        let context = peer.receive().await.context;
        peer.send(SwInterfaceDump::DETAILS_ID, context, &interface(1))
            .await;
        drop(peer);
    };
    let pings = join_all((0..5).map(|_| client.call(&ControlPing {})));
    let calls = async { tokio::join!(client.dump(&request), pings) };
    let all = async { tokio::join!(calls, serve) };
    let ((dump, pings), ()) = tokio::time::timeout(Duration::from_secs(2), all)
        .await
        .expect("well before any deadline");
    let closed = |error: CallError| {
        assert!(matches!(
            error,
            CallError::Closed {
                reason: CloseReason::Peer | CloseReason::Socket(_),
                ..
            }
        ));
    };
    closed(dump.unwrap_err());
    for ping in pings {
        closed(ping.unwrap_err());
    }
}

#[test]
fn ids_are_shown_as_vpp_lists_them() {
    let id = MessageId {
        name: "show_version",
        crc: 0x0000_0a0b,
    };
    assert_eq!(id.to_string(), "show_version_00000a0b");
}
