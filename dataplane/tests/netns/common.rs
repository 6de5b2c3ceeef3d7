//! Network namespaces for tests.
//!
//! A test runs in a process of its own, in fresh network, mount and PID namespaces, so that
//! nothing leaks, also when it is killed.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output};
use std::sync::Arc;

use causeway_dataplane::kernel::{KernelConfig, Uplink};
use causeway_dataplane::{
    Attachment, Dataplane, DesiredState, Firewall, InterfaceName, Mtu, SandboxSpec,
};
use causeway_types::{Labels, NetworkName, SandboxId, SandboxName, SandboxUid, TenantName};

use super::forwarder;

const INSIDE: &str = "CAUSEWAY_TEST_INSIDE";

/// Runs `body` inside fresh namespaces: the test's binary is executed again there, for this
/// one test. Says so clearly when that is not possible.
pub(crate) fn isolated(test: &str, body: impl AsyncFnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        prepare();
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(body());
        return;
    }
    if let Err(reason) = forwarder::available() {
        causeway_testing::skip(test, &reason);
        return;
    }
    let root = nix::unistd::Uid::effective().is_root();
    let mut command = Command::new("unshare");
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    if !Command::new("unshare")
        .args(if root {
            &[][..]
        } else {
            &["--user", "--map-root-user"][..]
        })
        .args(["--net", "--mount", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        causeway_testing::skip(test, "needs root or unprivileged user namespaces");
        return;
    }
    let status = command
        .arg(std::env::current_exe().unwrap())
        // The harness names tests without the crate.
        .arg(
            test.strip_prefix(concat!(env!("CARGO_CRATE_NAME"), "::"))
                .unwrap_or(test),
        )
        .args(["--exact", "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        // The checkout may lie below a folder that the test covers with its own.
        .current_dir("/")
        .env("PWD", "/")
        .status()
        .unwrap();
    assert!(status.success(), "{test}: {status}");
}

fn prepare() {
    for directory in forwarder::COVERED {
        run(&format!("mount -t tmpfs tmpfs {directory}"));
    }
    run("mount --make-rprivate /");
    run("ip link set lo up");
}

/// Runs a command line, which must succeed.
pub(crate) fn run(line: &str) -> String {
    let output = shell(line);
    assert!(
        output.status.success(),
        "`{line}`: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command line.
pub(crate) fn shell(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).output().unwrap()
}

/// Sends one echo request from a sandbox.
pub(crate) fn ping(from: &str, to: Ipv6Addr) -> ExitStatus {
    shell(&format!("ip netns exec {from} ping -c 1 -W 1 {to}")).status
}

pub(crate) fn config() -> KernelConfig {
    KernelConfig {
        operator_prefixes: vec!["2001:db8:1::/48".parse().unwrap()],
        uplink: Uplink::None,
        ..KernelConfig::default()
    }
}

pub(crate) async fn dataplane() -> Dataplane {
    open(config()).await
}

pub(crate) async fn open(config: KernelConfig) -> Dataplane {
    Dataplane::open(forwarder::backend(config)).await.unwrap()
}

/// Sandbox number `n` of tenant `t`, in a namespace `s<n>`.
pub(crate) fn spec(n: u16, networks: &[&str]) -> SandboxSpec {
    SandboxSpec {
        uid: SandboxUid::from_random(0x1000 + u64::from(n)),
        id: SandboxId::new(
            TenantName::new("t").unwrap(),
            SandboxName::new(format!("s{n}")).unwrap(),
        ),
        address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 7, 0x100 + n),
        prefix: None,
        attachment: Attachment::Netns {
            path: PathBuf::from(format!("/run/netns/s{n}")),
            interface: InterfaceName::default(),
        },
        mtu: Mtu::default(),
        networks: networks
            .iter()
            .map(|name| NetworkName::new(*name).unwrap())
            .collect::<BTreeSet<_>>(),
        labels: Labels::default(),
        firewall: Arc::new(Firewall::default()),
        quarantined: false,
    }
}

pub(crate) fn desired(specs: &[SandboxSpec]) -> DesiredState {
    DesiredState {
        operator_prefixes: config().operator_prefixes,
        sandboxes: specs.iter().map(|s| (s.uid, s.clone())).collect(),
        ..DesiredState::default()
    }
}
