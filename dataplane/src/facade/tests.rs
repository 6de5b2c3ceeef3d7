//! Ordering, unwinding and reconciliation over a backend in memory.

use std::sync::Arc;

use causeway_types::{Labels, NetworkName, SandboxId, SandboxName, TenantName};

use super::*;
use crate::desired::{Attachment, Firewall, Ingress};
use crate::fake::{FakeBackend, Fault};

fn spec(n: u16) -> SandboxSpec {
    SandboxSpec {
        uid: SandboxUid::from_random(u64::from(n)),
        id: SandboxId::new(
            TenantName::new("t").unwrap(),
            SandboxName::new(format!("s{n}")).unwrap(),
        ),
        address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n),
        prefix: None,
        attachment: Attachment::Netns {
            path: format!("/run/netns/s{n}").into(),
            interface: InterfaceName::default(),
        },
        mtu: Mtu::default(),
        networks: [NetworkName::new("n").unwrap()].into(),
        labels: Labels::default(),
        firewall: Arc::new(Firewall::default()),
        quarantined: false,
    }
}

fn desired(specs: &[SandboxSpec]) -> DesiredState {
    DesiredState {
        sandboxes: specs.iter().map(|s| (s.uid, s.clone())).collect(),
        ..DesiredState::default()
    }
}

async fn open(backend: &Arc<FakeBackend>) -> Dataplane {
    let backend: Arc<dyn Backend> = Arc::<FakeBackend>::clone(backend);
    Dataplane::open(backend).await.unwrap()
}

#[tokio::test]
async fn a_failed_attach_leaves_nothing_whichever_step_fails() {
    for step in 0..5 {
        let backend = Arc::new(FakeBackend::new());
        let plane = open(&backend).await;
        plane.attach(spec(1)).await.unwrap();
        let before = backend.state();
        backend.fail_at(backend.steps() + step, Fault::Error);
        let result = plane.attach(spec(2)).await;
        if step == 4 {
            assert!(result.is_ok(), "an attach has four steps");
            continue;
        }
        if step == 3 {
            // The write that failed was followed by a comparison, which mended it.
            assert!(result.is_ok());
            continue;
        }
        assert!(
            matches!(result, Err(AttachError::Port { .. })),
            "{step}: {result:?}"
        );
        assert_eq!(backend.state(), before, "{step}");
        plane.attach(spec(2)).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_crash_at_any_step_reconciling_mends_and_then_finds_nothing() {
    let specs = [spec(1), spec(2), spec(3)];
    for step in 0..30 {
        let backend = Arc::new(FakeBackend::new());
        let plane = open(&backend).await;
        backend.fail_at(step, Fault::Crash);
        let mut failed = false;
        for spec in &specs {
            failed |= plane.attach(spec.clone()).await.is_err();
        }
        failed |= plane.detach(specs[1].uid).await.is_err();
        drop(plane);
        backend.restart();
        let plane = open(&backend).await;
        let wanted = desired(&specs[..2]);
        let first = plane.reconcile(&wanted).await.unwrap();
        assert!(first.problems.is_empty(), "{step}: {first:?}");
        let second = plane.reconcile(&wanted).await.unwrap();
        assert_eq!(second.changes, 0, "{step}: {second:?}");
        if !failed {
            return;
        }
    }
    panic!("the operations have fewer steps");
}

#[tokio::test]
async fn parallel_attaches_share_transactions_and_all_arrive() {
    let backend = Arc::new(FakeBackend::new());
    let plane = open(&backend).await;
    let mut running = tokio::task::JoinSet::new();
    for n in 1..=200 {
        let plane = plane.clone();
        running.spawn(async move { plane.attach(spec(n)).await.map(drop) });
    }
    while let Some(result) = running.join_next().await {
        result.unwrap().unwrap();
    }
    let specs: Vec<_> = (1..=200).map(spec).collect();
    assert_eq!(plane.reconcile(&desired(&specs)).await.unwrap().changes, 0);
}

#[tokio::test]
async fn an_abandoned_attach_runs_to_its_end() {
    let backend = Arc::new(FakeBackend::new());
    let plane = open(&backend).await;
    let abandoned = plane.attach(spec(1));
    tokio::select! {
        biased;
        _ = abandoned => {}
        () = std::future::ready(()) => {}
    }
    plane.detach(spec(1).uid).await.unwrap();
    let state = backend.state();
    assert!(state.ports.len() <= 1);
    let wanted = desired(&[]);
    plane.reconcile(&wanted).await.unwrap();
    assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
}

#[tokio::test]
async fn updates_reach_the_attached_and_name_the_others() {
    let backend = Arc::new(FakeBackend::new());
    let plane = open(&backend).await;
    plane.attach(spec(1)).await.unwrap();
    let mut closed = spec(1);
    closed.firewall = Arc::new(Firewall {
        ingress: Ingress::Rules(Vec::new()),
        ..Firewall::default()
    });
    let before = backend.state();
    let result = plane.update(vec![closed, spec(2)]).await;
    assert!(matches!(result, Err(UpdateError::NotAttached { uids }) if uids == [spec(2).uid]));
    assert_ne!(backend.state().elements, before.elements);
    let mut moved = spec(1);
    moved.mtu = Mtu::MIN;
    let result = plane.update(vec![moved]).await;
    assert!(matches!(result, Err(UpdateError::Rewired { .. })));
}

#[tokio::test]
async fn meddling_is_undone() {
    let backend = Arc::new(FakeBackend::new());
    let plane = open(&backend).await;
    for n in 1..=3 {
        plane.attach(spec(n)).await.unwrap();
    }
    let whole = backend.state();
    backend.meddle(|world| {
        world.ports.remove(&spec(1).uid);
        if let Some(port) = world.ports.get_mut(&spec(2).uid) {
            port.mtu = 9000;
        }
        world.elements.clear();
    });
    let wanted = desired(&[spec(1), spec(2), spec(3)]);
    let report = plane.reconcile(&wanted).await.unwrap();
    assert!(report.changes > 0);
    assert_eq!(backend.state().ports, whole.ports);
    assert_eq!(plane.reconcile(&wanted).await.unwrap().changes, 0);
}
