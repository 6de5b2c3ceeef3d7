//! The whole process: started as the agent starts it, and told what to do over its socket.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use causeway_types::Generation;
use tokio::io::AsyncReadExt;

use super::world::{SANDBOX, SECRET, in_namespace, policies, sandbox};
use crate::audit::{Outcome, Protocol};
use crate::control::{
    Client, ClientReceiver, ClientSender, Decisions, FromProxy, SecretValue, ToProxy,
};
use crate::{ProxyArgs, ProxyError};

const REFUSED_ONCE: Decisions = Decisions {
    protocol: Protocol::Tcp,
    decision: Outcome::Deny,
    count: 1,
};

async fn connect(args: &ProxyArgs) -> Client {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match Client::connect(&args.control_socket, "test").await {
            Ok(client) => return client,
            Err(error) if Instant::now() > deadline => panic!("{error:?}"),
            Err(_not_yet) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Asks for events. What is decided from then on comes.
async fn follow(sender: &mut ClientSender, receiver: &mut ClientReceiver) {
    let follow = ToProxy::Follow { events: true };
    sender.send(&follow).await.unwrap();
    let following = receiver.receive().await.unwrap();
    assert_eq!(following, Some(FromProxy::Following { events: true }));
}

#[test]
fn an_agent_comes_goes_and_comes_back() {
    in_namespace(
        "tests::process::an_agent_comes_goes_and_comes_back",
        || async {
            let folder = tempfile::tempdir().unwrap();
            let args = ProxyArgs {
                control_socket: folder.path().join("egress.sock"),
                listen: "[::]:15001".parse().unwrap(),
                resolver: "[::1]:53".parse().unwrap(),
                explicit: vec!["[::1]:3128".parse().unwrap()],
                namespace: None,
                audit_path: Some(folder.path().join("audit.jsonl")),
                user: None,
                build: "build-1".to_owned(),
            };
            let running = tokio::spawn(crate::run(args.clone()));
            let first = connect(&args).await;
            assert_eq!(first.welcome().build, "build-1");
            assert_eq!(first.welcome().generation, Generation(0));
            let mode = std::fs::metadata(&args.control_socket).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600);
            let (mut sender, mut receiver) = first.split();
            let secret = SecretValue::new(SECRET.as_bytes().to_vec()).unwrap();
            for message in [
                ToProxy::Begin,
                policies(super::refusals::POLICY),
                ToProxy::Secret {
                    tenant: "acme".parse().unwrap(),
                    name: "TOKEN".parse().unwrap(),
                    value: secret,
                },
                ToProxy::Sandbox(sandbox(false)),
                ToProxy::Commit {
                    generation: Generation(5),
                },
                // A change that is refused leaves everything as it was.
                policies("kind: Nonsense"),
                ToProxy::SandboxGone { address: SANDBOX },
                ToProxy::Commit {
                    generation: Generation(6),
                },
            ] {
                sender.send(&message).await.unwrap();
            }
            let committed = receiver.receive().await.unwrap().unwrap();
            assert_eq!(
                committed,
                FromProxy::Committed {
                    generation: Generation(5)
                }
            );
            let Some(FromProxy::Rejected {
                generation,
                message,
            }) = receiver.receive().await.unwrap()
            else {
                panic!("a bad policy was taken")
            };
            assert_eq!(generation, Generation(6));
            assert!(
                message.contains("acme") && !message.contains(SECRET),
                "{message}"
            );
            // A second agent replaces the first, and finds the state.
            let second = connect(&args).await;
            assert_eq!(second.welcome().generation, Generation(5));
            assert!(
                receiver.receive().await.unwrap().is_none(),
                "the first is let go"
            );
            let (mut sender, mut receiver) = second.split();
            follow(&mut sender, &mut receiver).await;
            // A connection straight to the listener goes nowhere, and the agent hears of it.
            // The refusal may be there before the connecting side has looked.
            let read = async {
                let mut stream = tokio::net::TcpStream::connect(("::1", 15001)).await?;
                stream.read_to_end(&mut Vec::new()).await
            };
            let refused = read.await.unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionReset);
            let Some(FromProxy::Event(event)) = receiver.receive().await.unwrap() else {
                panic!("no event")
            };
            assert_eq!(event.reason, Some(causeway_types::Reason::UnknownSandbox));
            sender.send(&ToProxy::GetStats).await.unwrap();
            let Some(FromProxy::Stats(stats)) = receiver.receive().await.unwrap() else {
                panic!("no stats")
            };
            assert_eq!((stats.sandboxes, stats.connections_total), (1, 1));
            assert_eq!(stats.decisions_total, [REFUSED_ONCE]);
            // A second proxy does not take the place of one that lives.
            let again = crate::run(args.clone()).await;
            assert!(matches!(again, Err(ProxyError::Control(_))), "{again:?}");
            sender.send(&ToProxy::Shutdown).await.unwrap();
            running.await.unwrap().unwrap();
            let log = std::fs::read_to_string(args.audit_path.unwrap()).unwrap();
            assert!(
                log.contains("unknown_sandbox") && !log.contains(SECRET),
                "{log}"
            );
        },
    );
}

/// The status of the thread that serves, as `/proc` shows it.
fn thread_status(name: &str) -> String {
    let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads
        .find_map(|thread| {
            let path = thread.unwrap().path();
            let comm = std::fs::read_to_string(path.join("comm")).ok()?;
            let status = std::fs::read_to_string(path.join("status")).ok()?;
            (comm.trim() == name).then_some(status)
        })
        .expect("no such thread")
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.strip_prefix(':')).unwrap().trim()
}

#[test]
fn it_keeps_one_capability() {
    in_namespace("tests::process::it_keeps_one_capability", || async {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        // In a user namespace with one user there is nobody else to become.
        let maps = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        let many = maps
            .split_whitespace()
            .last()
            .is_some_and(|count| count != "1");
        let args = ProxyArgs {
            control_socket: folder.path().join("egress.sock"),
            listen: "[::]:15001".parse().unwrap(),
            resolver: "[::1]:53".parse().unwrap(),
            explicit: Vec::new(),
            namespace: None,
            audit_path: None,
            user: many.then_some((65_534, 65_534)),
            build: "build-1".to_owned(),
        };
        let running = tokio::spawn(crate::run(args.clone()));
        let client = connect(&args).await;
        let status = thread_status("egress");
        // CAP_NET_RAW is number 13.
        let only_net_raw = format!("{:016x}", 1 << 13);
        assert_eq!(field(&status, "CapEff"), only_net_raw);
        assert_eq!(field(&status, "CapPrm"), only_net_raw);
        assert_eq!(field(&status, "CapBnd"), "0000000000000000");
        assert_eq!(field(&status, "NoNewPrivs"), "1");
        let uid = if many { "65534" } else { "0" };
        assert!(
            field(&status, "Uid").split_whitespace().all(|id| id == uid),
            "{status}"
        );
        let (core, _hard) =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_CORE).unwrap();
        assert_eq!(core, 0);
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
        let (mut sender, _receiver) = client.split();
        sender.send(&ToProxy::Shutdown).await.unwrap();
        running.await.unwrap().unwrap();
    });
}
