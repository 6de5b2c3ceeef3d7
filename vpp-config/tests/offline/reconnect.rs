//! Connecting, and connecting anew, against a fake VPP.

use std::time::Duration;

use crate::fake::{FakeVpp, Numbers, impatient, try_connect};
use tokio::io::AsyncWriteExt;
use vpp_config::messages::interface::SwInterfaceEvent;
use vpp_config::messages::ip::IpTableDump;
use vpp_config::messages::memclnt::{ControlPing, SockclntCreateReply};
use vpp_config::messages::{Dump, EventMessage, Request};
use vpp_config::wire::encode;
use vpp_config::{CallError, Client, CloseReason, ConnectError, Needs, Options, Retval, Status};

fn eager() -> Options {
    Options {
        reconnect_first: Duration::from_millis(1),
        reconnect_longest: Duration::from_millis(10),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_new_vpp_is_another_generation_with_numbers_of_its_own() {
    let fake = FakeVpp::new();
    let (client, peer) = fake.connect(eager()).await;
    assert_eq!(client.generation(), 1);
    let old = client.connection().unwrap();
    let mut events = client.events();
    let mut status = client.status();
    drop(peer);

    let mut peer = fake.greet(Numbers::from(2000), 2).await;
    let connected = |status: &Status| matches!(status, Status::Connected { generation: 2, .. });
    let now = status.wait_for(connected).await.unwrap().clone();
    let Status::Connected {
        identity,
        restarted,
        ..
    } = now
    else {
        panic!("{now:?}");
    };
    assert!(restarted);
    assert_eq!(identity.vpe_pid, 2);

    // What still holds the old connection is told so, and reaches nobody.
    let error = old.call(&ControlPing {}).await.unwrap_err();
    assert!(error.is_without_effect());
    assert!(matches!(error, CallError::Closed { sent: false, .. }));

    let serve = async {
        let request = peer.receive().await;
        assert_eq!(request.number, peer.numbers.of(ControlPing::ID));
        let event = SwInterfaceEvent::default();
        peer.send(SwInterfaceEvent::ID, 0, &event).await;
        peer.pong(request.context, 2).await;
    };
    let (answer, ()) = tokio::join!(client.call(&ControlPing {}), serve);
    answer.unwrap();
    assert_eq!(events.next().await.unwrap().generation, 2);
}

#[tokio::test]
async fn the_same_vpp_is_not_taken_for_another() {
    let fake = FakeVpp::new();
    let (client, peer) = fake.connect(eager()).await;
    let mut status = client.status();
    drop(peer);
    let _peer = fake.greet(Numbers::from(100), 1).await;
    let connected = |status: &Status| matches!(status, Status::Connected { generation: 2, .. });
    let now = status.wait_for(connected).await.unwrap().clone();
    assert!(
        matches!(
            now,
            Status::Connected {
                restarted: false,
                ..
            }
        ),
        "{now:?}"
    );
}

#[tokio::test]
async fn calls_fail_at_once_while_there_is_no_vpp() {
    let fake = FakeVpp::new();
    let (client, peer) = fake.connect(eager()).await;
    let socket = fake.socket();
    drop(peer);
    drop(fake);
    let mut status = client.status();
    let failed = |status: &Status| matches!(status, Status::Failed { generation: 1, .. });
    status.wait_for(failed).await.unwrap();
    assert!(matches!(
        client.call(&ControlPing {}).await.unwrap_err(),
        CallError::NotConnected {
            message: "control_ping"
        }
    ));
    assert!(client.connected(Duration::from_millis(20)).await.is_none());
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_client_waits_for_its_vpp() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::start(folder.path().join("api.sock"), eager(), Needs::new());
    let mut status = client.status();
    let failed = |status: &Status| matches!(status, Status::Failed { generation: 0, .. });
    status.wait_for(failed).await.unwrap();

    let listener = tokio::net::UnixListener::bind(folder.path().join("api.sock")).unwrap();
    let (_stream, _) = listener.accept().await.unwrap();
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let fake = FakeVpp::new();
    let needs = Needs::new().require::<IpTableDump>();
    let names = [IpTableDump::ID.name, IpTableDump::DETAILS_ID.name];
    let serve = async {
        let mut stream = fake.accept().await;
        let numbers = Numbers::without(100, &names);
        stream
            .write_all(&greeting(&encode(&numbers.greeting()).unwrap()))
            .await
            .unwrap();
        stream
    };
    let (error, _stream) = tokio::join!(try_connect(&fake, needs), serve);
    assert_eq!(
        error.to_string(),
        "VPP does not offer ip_table_dump_51077d14 (not offered under any definition), \
         ip_table_details_c79fca0f (not offered under any definition)"
    );
}

fn greeting(body: &[u8]) -> Vec<u8> {
    let mut message = vec![0, 16];
    message.extend_from_slice(body);
    crate::fake::frame(&message)
}

#[tokio::test]
async fn a_handshake_without_an_answer_ends_at_its_deadline() {
    let fake = FakeVpp::new();
    let (error, _stream) = tokio::join!(try_connect(&fake, Needs::new()), fake.accept());
    assert!(matches!(error, ConnectError::Deadline { .. }), "{error:?}");
}

#[tokio::test]
async fn no_socket_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.sock");
    let error = Client::connect(&path, impatient(), Needs::new())
        .await
        .unwrap_err();
    let ConnectError::Socket { path: said, source } = error else {
        panic!("{error:?}");
    };
    assert_eq!(said, path);
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_greeting_that_is_none_is_an_error() {
    type Check = fn(&ConnectError) -> bool;
    let refused = SockclntCreateReply {
        response: -1,
        ..SockclntCreateReply::default()
    };
    let mut short = encode(&SockclntCreateReply::default()).unwrap();
    // More entries than there are.
    short.extend_from_slice(&[0; 66]);
    let count = short.len() - 66 - 2;
    short[count..count + 2].copy_from_slice(&[0xff, 0xff]);
    let cases: [(Vec<u8>, Check); 4] = [
        (greeting(&encode(&refused).unwrap()), |error| {
            matches!(
                error,
                ConnectError::Refused {
                    response: Retval::UNSPECIFIED
                }
            )
        }),
        (greeting(&short), |error| {
            matches!(error, ConnectError::Protocol { .. })
        }),
        (vec![0xff; 64], |error| {
            matches!(
                error,
                ConnectError::Closed {
                    reason: CloseReason::FrameTooLong { .. }
                }
            )
        }),
        (vec![0; 64], |error| {
            matches!(
                error,
                ConnectError::Closed {
                    reason: CloseReason::FrameTooShort { len: 0 }
                }
            )
        }),
    ];
    for (bytes, is_right) in cases {
        let fake = FakeVpp::new();
        let serve = async {
            let mut stream = fake.accept().await;
            stream.write_all(&bytes).await.unwrap();
            stream
        };
        let (error, _stream) = tokio::join!(try_connect(&fake, Needs::new()), serve);
        assert!(is_right(&error), "{error:?}");
    }
}

#[tokio::test]
async fn the_last_handle_closes_the_connection() {
    let fake = FakeVpp::new();
    let (client, mut peer) = fake.connect(eager()).await;
    let connection = client.connection().unwrap();
    drop(client);
    drop(connection);
    let ended = tokio::time::timeout(Duration::from_secs(2), peer.try_receive()).await;
    assert!(ended.unwrap().is_none());
}
