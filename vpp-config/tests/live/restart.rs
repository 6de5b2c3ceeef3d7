//! A VPP that hangs, or ends.

use std::time::Duration;

use nix::sys::signal::Signal;
use vpp_config::messages::ip::IpTableDump;
use vpp_config::messages::memclnt::ControlPing;
use vpp_config::{CallError, Options, Status};

use crate::instance::start;

#[tokio::test]
async fn a_vpp_that_stands_still_costs_a_deadline_and_answers_when_it_goes_on() {
    let Some(vpp) = start() else { return };
    let options = Options {
        deadline: Duration::from_millis(300),
        ..Options::default()
    };
    let client = vpp.client_with(options).await;
    vpp.signal(Signal::SIGSTOP);
    let error = client.call(&ControlPing {}).await.unwrap_err();
    vpp.signal(Signal::SIGCONT);
    assert!(
        matches!(error, CallError::Deadline { sent: true, .. }),
        "{error:?}"
    );
    let patient = Duration::from_secs(10);
    client.call_within(&ControlPing {}, patient).await.unwrap();
    assert_eq!(client.generation(), 1);
    assert_eq!(client.connection().unwrap().strays(), 1);
}

#[tokio::test]
async fn a_vpp_that_is_killed_is_another_one_afterwards() {
    let Some(mut vpp) = start() else { return };
    let client = vpp.client().await;
    let first = client.connection().unwrap();
    let mut status = client.status();
    vpp.signal(Signal::SIGSTOP);
    let (call, dump) = (client.clone(), client.clone());
    let call = tokio::spawn(async move { call.call(&ControlPing {}).await });
    let dump = tokio::spawn(async move { dump.dump(&IpTableDump {}).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    vpp.kill_and_restart();
    let ended = |error: CallError| {
        assert!(matches!(error, CallError::Closed { sent: true, .. }));
    };
    ended(call.await.unwrap().unwrap_err());
    ended(dump.await.unwrap().unwrap_err());

    let again = |status: &Status| matches!(status, Status::Connected { generation: 2, .. });
    let wait = Duration::from_secs(60);
    let now = tokio::time::timeout(wait, status.wait_for(again)).await;
    let now = now.unwrap_or_else(|_| panic!("{}", vpp.output()));
    assert!(matches!(
        *now.unwrap(),
        Status::Connected {
            restarted: true,
            ..
        }
    ));
    let second = client.connection().unwrap();
    assert_ne!(first.identity(), second.identity());
    assert_eq!(
        u32::try_from(second.identity().peer.unwrap().pid).unwrap(),
        second.identity().vpe_pid
    );
    second.call(&ControlPing {}).await.unwrap();
}

#[tokio::test]
async fn a_closed_connection_is_not_taken_for_a_restart() {
    let Some(vpp) = start() else { return };
    let client = vpp.client().await;
    let mut status = client.status();
    client.connection().unwrap().close();
    let again = |status: &Status| matches!(status, Status::Connected { generation: 2, .. });
    let wait = Duration::from_secs(10);
    let now = tokio::time::timeout(wait, status.wait_for(again)).await;
    assert!(matches!(
        *now.unwrap().unwrap(),
        Status::Connected {
            restarted: false,
            ..
        }
    ));
}
