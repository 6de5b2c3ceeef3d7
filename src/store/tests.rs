use causeway_types::{
    Generation, Labels, NetworkId, NetworkName, PolicyName, PolicyRef, SandboxId, SandboxName,
    SandboxUid, TenantName,
};

use super::*;

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn sandbox(name: &str) -> SandboxRecord {
    SandboxRecord {
        uid: SandboxUid::from_random(name.len() as u64),
        id: SandboxId::new(tenant("acme"), SandboxName::new(name).unwrap()),
        address: "fd00::1".parse().unwrap(),
        prefix: None,
        attachment: AttachmentRecord::Tap {
            name: "tap0".to_owned(),
        },
        mtu: 1500,
        networks: [NetworkName::new("net").unwrap()].into(),
        labels: Labels::default(),
        quarantined: false,
        phase: Phase::Attached,
        created_unix: 1,
        generation: Generation(3),
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    let network = NetworkRecord {
        id: NetworkId::new(tenant("acme"), NetworkName::new("net").unwrap()),
        created_unix: 2,
    };
    {
        let (store, fresh) = open(&path).unwrap();
        assert!(fresh);
        let writes = vec![
            Write::Sandbox(Box::new(sandbox("web"))),
            Write::Sandbox(Box::new(sandbox("gone"))),
            Write::Network(network.clone()),
            Write::Meta("key", vec![7]),
            Write::Generation(Generation(9)),
        ];
        store.write(writes).await.unwrap();
        let gone = sandbox("gone").id;
        store.write(vec![Write::SandboxGone(gone)]).await.unwrap();
        // Changes may reach the disk out of order: the generation only grows.
        store
            .write(vec![Write::Generation(Generation(8))])
            .await
            .unwrap();
    }
    let (store, fresh) = open(&path).unwrap();
    assert!(!fresh);
    assert_eq!(store.sandboxes().unwrap(), [sandbox("web")]);
    assert_eq!(store.networks().unwrap(), [network]);
    assert_eq!(store.meta("key").unwrap(), Some(vec![7]));
    assert_eq!(store.generation().unwrap(), Generation(9));
}

#[tokio::test]
async fn a_tenant_named_guardrail_does_not_meet_guardrails() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(&dir.path().join("causeway.redb")).unwrap();
    let name = PolicyName::new("base").unwrap();
    let record = |source: &str| PolicyRecord {
        source: source.to_owned(),
        applied_unix: 0,
    };
    let policy = PolicyRef {
        tenant: Some(tenant("guardrail")),
        name: name.clone(),
    };
    let guardrail = PolicyRef { tenant: None, name };
    let writes = vec![
        Write::Policy(policy.clone(), record("policy")),
        Write::Policy(guardrail, record("guardrail")),
    ];
    store.write(writes).await.unwrap();
    assert_eq!(store.policies().unwrap().len(), 2);
    store.write(vec![Write::PolicyGone(policy)]).await.unwrap();
    assert_eq!(store.policies().unwrap(), [record("guardrail")]);
}

#[tokio::test]
async fn many_writers_share_commits_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    let (store, _) = open(&path).unwrap();
    let names: Vec<String> = (0..300).map(|index| format!("s{index}")).collect();
    let writes = names.iter().map(|name| {
        let record = Box::new(sandbox(name));
        store.write(vec![Write::Sandbox(record)])
    });
    for outcome in futures_util::future::join_all(writes).await {
        outcome.unwrap();
    }
    assert_eq!(store.sandboxes().unwrap().len(), names.len());
}

#[test]
fn a_file_that_is_no_store_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    for content in [
        b"".as_slice(),
        b"this is not a database".as_slice(),
        &[0; 8192],
    ] {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(open(&path), Err(OpenError::Corrupt { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn damage_is_found_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    drop(open(&path).unwrap());
    drop(open(&path).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        open(&path),
        Err(OpenError::Corrupt { .. } | OpenError::Database { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_newer_store_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    {
        let (store, _) = open(&path).unwrap();
        let newer = (FORMAT + 1).to_be_bytes().to_vec();
        store
            .write_blocking(&[Write::Meta(FORMAT_KEY, newer)])
            .unwrap();
    }
    match open(&path) {
        Err(OpenError::Newer { found, .. }) => assert_eq!(found, FORMAT + 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("causeway.redb");
    let held = open(&path).unwrap();
    assert!(matches!(open(&path), Err(OpenError::InUse { .. })));
    drop(held);
    open(&path).unwrap();
}
