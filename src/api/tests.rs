//! The API in process, over the in-memory dataplane and without a proxy.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use causeway_dataplane::fake::{FakeBackend, Fault};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::agent::{Agent, Parts};
use crate::config::Config;

/// Every route of the API. A new one is written down here on purpose: others build on them.
const ROUTES: &[(&str, &str)] = &[
    ("get", "/metrics"),
    ("get", "/v1/ca"),
    ("get", "/v1/events"),
    ("delete", "/v1/guardrails/{name}"),
    ("get", "/v1/ipam"),
    ("get", "/v1/leases"),
    ("get", "/v1/networks"),
    ("post", "/v1/networks"),
    ("get", "/v1/openapi.json"),
    ("get", "/v1/policies"),
    ("put", "/v1/policies"),
    ("post", "/v1/policies/check"),
    ("post", "/v1/policies/diff"),
    ("post", "/v1/policies/explain"),
    ("post", "/v1/reconcile"),
    ("get", "/v1/sandboxes"),
    ("post", "/v1/sandboxes"),
    ("get", "/v1/status"),
    ("delete", "/v1/tenants/{tenant}/networks/{name}"),
    (
        "delete",
        "/v1/tenants/{tenant}/networks/{name}/members/{sandbox}",
    ),
    (
        "put",
        "/v1/tenants/{tenant}/networks/{name}/members/{sandbox}",
    ),
    ("delete", "/v1/tenants/{tenant}/policies/{name}"),
    ("delete", "/v1/tenants/{tenant}/sandboxes/{name}"),
    ("get", "/v1/tenants/{tenant}/sandboxes/{name}"),
    ("post", "/v1/tenants/{tenant}/sandboxes/{name}/quarantine"),
    ("post", "/v1/tenants/{tenant}/sandboxes/{name}/release"),
    ("get", "/v1/tenants/{tenant}/secrets"),
    ("delete", "/v1/tenants/{tenant}/secrets/{name}"),
    ("put", "/v1/tenants/{tenant}/secrets/{name}"),
    ("post", "/v1/trace"),
];

struct Bench {
    folder: tempfile::TempDir,
    backend: Arc<FakeBackend>,
    agent: Arc<Agent>,
}

impl Bench {
    async fn new() -> Self {
        Self::with(tempfile::tempdir().unwrap(), Arc::default(), "").await
    }

    async fn with(folder: tempfile::TempDir, backend: Arc<FakeBackend>, extra: &str) -> Self {
        let agent = start(&folder, &backend, extra).await;
        Self {
            folder,
            backend,
            agent,
        }
    }

    /// Another agent on what the first one left.
    async fn restart(self) -> Self {
        let Self {
            folder,
            backend,
            agent,
        } = self;
        // The background task holds the agent for moments only.
        let weak = Arc::downgrade(&agent);
        drop(agent);
        while weak.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        backend.restart();
        Self::with(folder, backend, "").await
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let body = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(&body).unwrap()
        };
        self.send(method, path, "application/json", body).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Vec<u8>,
    ) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap();
        let reply = super::router(Arc::clone(&self.agent))
            .oneshot(request)
            .await
            .unwrap();
        let status = reply.status();
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
        (status, value)
    }

    async fn apply(&self, text: &str) -> (StatusCode, Value) {
        let body = text.as_bytes().to_vec();
        self.send(Method::PUT, "/v1/policies", "application/yaml", body)
            .await
    }

    async fn create(&self, name: &str, networks: &[&str]) -> (StatusCode, Value) {
        let body = json!({
            "tenant": "acme", "name": name, "networks": networks,
            "labels": { "role": name }, "attach": { "type": "tap", "name": format!("tap-{name}") },
        });
        self.call(Method::POST, "/v1/sandboxes", body).await
    }

    async fn network(&self, name: &str) {
        let body = json!({ "tenant": "acme", "name": name });
        let (status, _) = self.call(Method::POST, "/v1/networks", body).await;
        assert_eq!(status, StatusCode::CREATED);
    }

    /// Everything that a refused request must leave alone.
    async fn everything(&self) -> Value {
        json!([
            self.get("/v1/sandboxes").await,
            self.get("/v1/networks").await,
            self.get("/v1/policies").await,
            self.get("/v1/tenants/acme/secrets").await,
            self.get("/v1/leases").await,
            format!("{:?}", self.backend.state()),
        ])
    }
}

async fn start(folder: &tempfile::TempDir, backend: &Arc<FakeBackend>, extra: &str) -> Arc<Agent> {
    let root = folder.path().display();
    let text = format!("state_dir = \"{root}\"\nruntime_dir = \"{root}\"\n{extra}");
    let config = Config::parse(&folder.path().join("causeway.toml"), &text).unwrap();
    let backend: Arc<FakeBackend> = Arc::clone(backend);
    let parts = Parts {
        backend: Box::new(move |_, _| Ok(backend)),
        proxy: false,
        lock: None,
    };
    Agent::start(config, parts).await.unwrap()
}

const POLICY: &str = "
apiVersion: causeway/v1
kind: Policy
metadata: { name: web, tenant: acme }
spec:
  selector: { role: web }
  egress:
    - { name: api, to: [\"api.example.com\"], ports: [443] }
  secrets:
    TOKEN: { hosts: [\"api.example.com\"], inject: { header: authorization, format: \"Bearer {secret}\" } }
";

fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap()
}

#[test]
fn the_document_has_every_route_and_no_other() {
    let document = serde_json::to_value(super::document()).unwrap();
    let documented: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| (method.clone(), path.clone()))
        })
        .collect();
    let expected: BTreeSet<_> = ROUTES
        .iter()
        .map(|(method, path)| ((*method).to_owned(), (*path).to_owned()))
        .collect();
    assert_eq!(documented, expected);
}

#[tokio::test]
async fn the_router_has_every_route_of_the_document() {
    let bench = Bench::new().await;
    for (method, path) in ROUTES.iter().filter(|(_, path)| *path != "/v1/events") {
        let path = path
            .replace("{tenant}", "nobody")
            .replace("{name}", "nothing")
            .replace("{sandbox}", "nowhere");
        let method = method.to_uppercase().parse().unwrap();
        let (_, body) = bench.call(method, &path, Value::Null).await;
        let code = body["error"]["code"].as_str().unwrap_or_default();
        assert!(!code.starts_with("no_such"), "{path}: {body}");
    }
    let (status, body) = bench.call(Method::GET, "/v2/status", Value::Null).await;
    assert_eq!(
        (status, code(&body)),
        (StatusCode::NOT_FOUND, "no_such_route")
    );
    let (status, body) = bench.call(Method::PATCH, "/v1/status", Value::Null).await;
    assert_eq!(
        (status, code(&body)),
        (StatusCode::METHOD_NOT_ALLOWED, "no_such_method")
    );
}

#[tokio::test]
async fn a_sandbox_lives_from_create_to_delete() {
    let bench = Bench::new().await;
    bench.network("front").await;
    let (status, web) = bench.create("web", &["front"]).await;
    assert_eq!(status, StatusCode::CREATED, "{web}");
    assert_eq!(web["state"], "attached");
    assert_eq!(bench.backend.state().ports.len(), 1);
    let mut shown = bench.get("/v1/tenants/acme/sandboxes/web").await;
    let counters = shown.as_object_mut().unwrap().remove("counters").unwrap();
    assert_eq!(counters["sent_packets"], 0);
    assert_eq!(shown, web);
    let members = bench.get("/v1/networks?tenant=acme").await;
    assert_eq!(members[0]["members"], json!(["web"]));
    assert_eq!(bench.get("/v1/sandboxes?tenant=other").await, json!([]));

    let path = "/v1/tenants/acme/sandboxes/web";
    let (_, held) = bench
        .call(Method::POST, &format!("{path}/quarantine"), Value::Null)
        .await;
    assert_eq!(held["quarantined"], true);
    let (_, free) = bench
        .call(Method::POST, &format!("{path}/release"), Value::Null)
        .await;
    assert_eq!(free["quarantined"], false);

    let (status, _) = bench.call(Method::DELETE, path, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, body) = bench.call(Method::DELETE, path, Value::Null).await;
    assert_eq!((status, code(&body)), (StatusCode::NOT_FOUND, "not_found"));
    assert!(bench.backend.state().ports.is_empty());
    assert_eq!(bench.get("/v1/leases").await[0]["state"], "quarantined");
}

#[tokio::test]
async fn refusals_say_what_and_change_nothing() {
    let bench = Bench::new().await;
    bench.network("front").await;
    assert_eq!(bench.create("web", &["front"]).await.0, StatusCode::CREATED);
    assert_eq!(bench.apply(POLICY).await.0, StatusCode::OK);
    let before = bench.everything().await;
    let tap = json!({ "type": "tap", "name": "t1" });
    let unknown_field = json!({ "tenant": "acme", "name": "x", "attach": tap, "adress": "::1" });
    let bad_name = json!({ "tenant": "Acme", "name": "x", "attach": tap });
    let bad_mtu = json!({ "tenant": "acme", "name": "x", "attach": tap, "mtu": 1279 });
    let no_network = json!({ "tenant": "acme", "name": "x", "attach": tap, "networks": ["none"] });
    let long_tap = json!({ "tenant": "acme", "name": "x",
                           "attach": { "type": "tap", "name": "sixteen-letters-" } });
    let relative = json!({ "tenant": "acme", "name": "x",
                           "attach": { "type": "netns", "path": "web" } });
    let no_namespace = json!({ "tenant": "acme", "name": "x",
                               "attach": { "type": "netns", "path": "/run/netns/never-there" } });
    let not_ours =
        json!({ "tenant": "acme", "name": "x", "attach": tap, "address": "2001:db8::1" });
    let vpp_only = json!({ "tenant": "acme", "name": "x",
                           "attach": { "type": "memif", "socket": "/run/m" } });
    for (body, status, expected) in [
        (unknown_field, 400, "invalid"),
        (bad_name, 400, "invalid"),
        (bad_mtu, 422, "invalid"),
        (no_network, 404, "not_found"),
        (long_tap, 422, "invalid"),
        (relative, 422, "invalid"),
        (no_namespace, 422, "attach_failed"),
        (not_ours, 409, "address_unavailable"),
    ] {
        let (found, reply) = bench.call(Method::POST, "/v1/sandboxes", body).await;
        assert_eq!(
            (found.as_u16(), code(&reply)),
            (status, expected),
            "{reply}"
        );
        assert!(!reply["error"]["message"].as_str().unwrap().is_empty());
    }
    let (status, reply) = bench.create("web", &["front"]).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "exists"));
    let path = "/v1/tenants/acme/networks/front";
    let (status, reply) = bench.call(Method::DELETE, path, Value::Null).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "in_use"));
    assert_eq!(bench.everything().await, before);

    // This one gets as far as the backend, so that an address is spent on it.
    let (status, reply) = bench.call(Method::POST, "/v1/sandboxes", vpp_only).await;
    assert_eq!(
        (status.as_u16(), code(&reply)),
        (422, "attach_failed"),
        "{reply}"
    );
    assert_eq!(bench.get("/v1/sandboxes").await, before[0]);
}

#[tokio::test]
async fn policies_apply_whole_or_not_at_all() {
    let bench = Bench::new().await;
    bench.create("web", &[]).await;
    let (status, applied) = bench.apply(POLICY).await;
    assert_eq!(status, StatusCode::OK, "{applied}");
    assert_eq!(applied["sandboxes"], 1);
    let before = bench.everything().await;

    let broken = format!("{POLICY}---\n{}", POLICY.replace("egress:", "egres:"));
    let twice = format!("{POLICY}---\n{POLICY}");
    for bad in [broken.as_str(), &twice, "", "not: [a", "42"] {
        let (status, reply) = bench.apply(bad).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}: {reply}");
        assert_eq!(code(&reply), "policy_invalid");
    }
    let (_, reply) = bench.apply(&broken).await;
    let problem = &reply["error"]["details"]["problems"][0];
    assert!(problem["line"].as_u64().unwrap() > 10, "{reply}");
    let (status, reply) = bench.apply(&"#".repeat(6 * 1024 * 1024)).await;
    assert_eq!((status.as_u16(), code(&reply)), (413, "too_large"));
    assert_eq!(bench.everything().await, before);

    let question = json!({ "tenant": "acme", "sandbox": "web", "destination": "api.example.com" });
    let (_, answer) = bench
        .call(Method::POST, "/v1/policies/explain", question.clone())
        .await;
    assert_eq!(answer["outcome"], "permit", "{answer}");
    let path = "/v1/tenants/acme/policies/web";
    let (status, _) = bench.call(Method::DELETE, path, Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (_, answer) = bench
        .call(Method::POST, "/v1/policies/explain", question)
        .await;
    assert_eq!(answer["outcome"], "deny", "{answer}");
}

#[tokio::test]
async fn a_file_is_looked_at_before_it_is_applied() {
    let bench = Bench::new().await;
    bench.create("web", &[]).await;
    bench.create("db", &[]).await;
    bench.apply(POLICY).await;
    let before = bench.everything().await;
    let narrower = POLICY.replace("api.example.com", "other.example.com");
    assert_ne!(narrower, POLICY);

    let diff = |file: String| {
        let kind = "application/yaml";
        bench.send(Method::POST, "/v1/policies/diff", kind, file.into_bytes())
    };
    let (status, found) = diff(narrower.clone()).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let text = found["text"].as_str().unwrap();
    assert!(text.contains("- api.example.com"), "{text}");
    assert!(text.contains("+ other.example.com"), "{text}");
    assert_eq!(found["diff"]["complete"], true);
    let (_, same) = diff(POLICY.to_owned()).await;
    assert_eq!(same["text"], "nothing changes");
    let (status, reply) = diff("egress: []".to_owned()).await;
    assert_eq!((status.as_u16(), code(&reply)), (422, "policy_invalid"));

    let question = |file: Option<&str>| {
        let mut question =
            json!({ "tenant": "acme", "sandbox": "web", "destination": "other.example.com" });
        if let Some(file) = file {
            question["file"] = file.into();
        }
        bench.call(Method::POST, "/v1/policies/explain", question)
    };
    let (_, now) = question(None).await;
    assert_eq!(now["outcome"], "deny", "{now}");
    let (_, then) = question(Some(&narrower)).await;
    assert_eq!(then["outcome"], "permit", "{then}");
    let (status, reply) = question(Some("egress: []")).await;
    assert_eq!((status.as_u16(), code(&reply)), (422, "policy_invalid"));
    let (_, checked) = bench
        .send(
            Method::POST,
            "/v1/policies/check",
            "application/yaml",
            POLICY.as_bytes().to_vec(),
        )
        .await;
    assert_eq!(
        checked["summaries"][0]["ingress"]["stated"], "absent",
        "{checked}"
    );
    assert_eq!(bench.everything().await, before);
}

#[tokio::test]
async fn secrets_go_in_and_never_come_out() {
    const VALUE: &str = "s3cr3t-value-of-the-test";
    let bench = Bench::new().await;
    bench.apply(POLICY).await;
    bench.create("web", &[]).await;
    let path = "/v1/tenants/acme/secrets/TOKEN";
    let kind = "application/octet-stream";
    let (status, info) = bench
        .send(Method::PUT, path, kind, format!("{VALUE}\n").into_bytes())
        .await;
    assert_eq!(status, StatusCode::OK, "{info}");
    assert_eq!(info["used_by"], json!(["acme/web"]));
    for (body, status) in [
        (Vec::new(), 422),
        (b"two\nlines".to_vec(), 422),
        (vec![0xff, 0xfe], 422),
        (vec![b'x'; 70 * 1024], 413),
    ] {
        let (found, reply) = bench.send(Method::PUT, path, kind, body).await;
        assert_eq!(found.as_u16(), status, "{reply}");
    }
    let shown = bench.get("/v1/tenants/acme/sandboxes/web").await;
    let placeholder = shown["placeholders"]["TOKEN"].as_str().unwrap();
    assert!(placeholder.starts_with("causeway_secret_") && placeholder.len() == 48);
    let metrics = bench.get("/metrics").await;
    let all = format!("{}{metrics}{:?}", bench.everything().await, bench.agent);
    assert!(!all.contains(VALUE));
    let on_disk = std::fs::read(bench.folder.path().join("causeway.redb")).unwrap();
    let found = on_disk
        .windows(VALUE.len())
        .any(|window| window == VALUE.as_bytes());
    assert!(!found, "the value is on disk in clear");

    // It is the same one after a restart, and so is the placeholder.
    let bench = bench.restart().await;
    let again = bench.get("/v1/tenants/acme/sandboxes/web").await;
    assert_eq!(again["placeholders"], shown["placeholders"]);
    let listed = bench.get("/v1/tenants/acme/secrets").await;
    assert_eq!(listed[0]["name"], "TOKEN");
}

#[tokio::test]
async fn an_exhausted_block_is_named() {
    let extra = "[address]\nprefix = \"fd00:1::/48\"\nnode_block = \"fd00:1::/126\"\n";
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::with(folder, Arc::default(), extra).await;
    let mut last = (StatusCode::CREATED, Value::Null);
    let mut created = 0;
    for index in 0..5 {
        last = bench.create(&format!("s{index}"), &[]).await;
        created += usize::from(last.0 == StatusCode::CREATED);
    }
    assert!((1..4).contains(&created));
    assert_eq!(code(&last.1), "exhausted");
    let message = last.1["error"]["message"].as_str().unwrap();
    assert!(message.contains("fd00:1::/126"), "{message}");
}

#[tokio::test]
async fn a_restart_finds_everything_and_nothing_to_do() {
    let bench = Bench::new().await;
    bench.network("front").await;
    bench.create("web", &["front"]).await;
    bench.create("db", &["front"]).await;
    bench.apply(POLICY).await;
    let sandboxes = bench.get("/v1/sandboxes").await;
    let bench = bench.restart().await;
    assert_eq!(bench.get("/v1/sandboxes").await, sandboxes);
    let (_, report) = bench.call(Method::POST, "/v1/reconcile", Value::Null).await;
    assert_eq!(report["changes"], 0, "{report}");
    assert_eq!(report["problems"], json!([]));
}

#[tokio::test]
async fn a_crash_at_any_step_of_an_attach_is_repaired() {
    for step in 0..12 {
        let bench = Bench::new().await;
        bench.create("first", &[]).await;
        let at = bench.backend.steps() + step;
        bench.backend.fail_at(at, Fault::Crash);
        bench.create("second", &[]).await;
        let bench = bench.restart().await;
        let (_, first) = bench.call(Method::POST, "/v1/reconcile", Value::Null).await;
        assert_eq!(first["problems"], json!([]), "step {step}: {first}");
        let (_, again) = bench.call(Method::POST, "/v1/reconcile", Value::Null).await;
        assert_eq!(again["changes"], 0, "step {step}: {again}");
        let sandboxes = bench.get("/v1/sandboxes").await;
        let sandboxes = sandboxes.as_array().unwrap();
        assert_eq!(bench.backend.state().ports.len(), sandboxes.len());
        let leases = bench.get("/v1/leases").await;
        let bound = leases.as_array().unwrap().iter();
        let bound = bound.filter(|lease| lease["state"] == "bound").count();
        assert_eq!(bound, sandboxes.len(), "step {step}: {leases}");
        assert!(
            sandboxes
                .iter()
                .all(|sandbox| sandbox["state"] == "attached")
        );
    }
}

#[tokio::test]
async fn a_failing_backend_leaves_no_half_of_a_sandbox() {
    // The fourth step writes the rules, and the dataplane tries that again by itself.
    for step in 0..3 {
        let bench = Bench::new().await;
        let at = bench.backend.steps() + step;
        bench.backend.fail_at(at, Fault::Error);
        let (status, reply) = bench.create("web", &[]).await;
        assert_eq!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR,
            "step {step}: {reply}"
        );
        assert_eq!(bench.get("/v1/sandboxes").await, json!([]));
        let (_, report) = bench.call(Method::POST, "/v1/reconcile", Value::Null).await;
        assert_eq!(report["problems"], json!([]));
        assert!(bench.backend.state().ports.is_empty());
        // And it can be created afterwards.
        assert_eq!(bench.create("web", &[]).await.0, StatusCode::CREATED);
    }
}
