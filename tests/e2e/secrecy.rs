//! A secret's value is in the upstream request, and nowhere else.

use std::process::Command;
use std::time::Duration;

use causeway::lab::{Lab, poll, run, run_ok};
use serde_json::Value;

use crate::support::{Sandbox, in_lab};

const SECRET: &str = "s3cr3t-0f3d5a7b9c1e2f40";

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: forge, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: api, to: [api.forge.example], ports: [443] }
  secrets:
    TOKEN:
      hosts: [api.forge.example]
      inject: { header: x-token, format: "{secret}" }
"#;

#[test]
fn a_secret_is_in_the_upstream_request_and_nowhere_else() {
    in_lab(
        "secrecy::a_secret_is_in_the_upstream_request_and_nowhere_else",
        |mut lab| {
            lab.start_agent()?;
            let file = lab.folder.join("policy.yaml");
            std::fs::write(&file, POLICY)?;
            run_ok(&mut lab.command(&["policy", "apply", &file.to_string_lossy()]))?;
            let sandbox = Sandbox::create(&lab, "acme", "one", &[], "")?;
            let set =
                lab.causeway_with_input(&["secret", "set", "TOKEN", "--tenant", "acme"], SECRET)?;
            assert!(set.ok(), "{}", set.output());
            let ca = lab.folder.join("ca.pem");
            std::fs::write(&ca, run_ok(&mut lab.command(&["ca"]))?)?;
            let fetch = |url: &str, more: &[&str]| {
                let mut curl = sandbox.namespace.command("curl");
                run(curl
                    .args(["-sS", "--max-time", "10", "--cacert"])
                    .arg(&ca)
                    .args(more)
                    .arg(url))
            };
            // Used, refused, and asked for in ways that end in errors.
            let used = fetch("https://api.forge.example/used", &[])?;
            assert!(used.ok(), "{}", used.output());
            fetch(
                "https://api.forge.example/other",
                &["-H", "Host: intruder.example"],
            )?;
            fetch("https://api.forge.example:444/port", &[])?;
            fetch("http://api.forge.example/plain", &[])?;
            fetch("https://api.forge.example/%2e%2e/x", &["--path-as-is"])?;

            // The control: the test would see it, for it is in what upstream received.
            let received = lab.received()?;
            assert!(
                received
                    .iter()
                    .any(|request| request["headers"]["x-token"][0] == SECRET)
            );
            assert!(file_has(&lab.folder.join("received.jsonl"))?);

            every_reply_is_clean(&lab)?;
            every_command_is_clean(&lab)?;
            every_process_is_clean(&lab)?;
            // A crash writes no core with the secret in it, whatever the limits were.
            let pid = proxy_pid(&lab)?.to_string();
            run_ok(Command::new("kill").args(["-ABRT", &pid]))?;
            lab.await_ready()?;
            run_ok(Command::new("kill").args(["-ABRT", &lab.agent_pid()?.to_string()]))?;
            lab.await_agent_end()?;
            every_file_is_clean(&lab)?;
            lab.start_agent()?;
            let again = fetch("https://api.forge.example/again", &[])?;
            assert!(again.ok(), "{}", again.output());
            // The host's echo of it does not reach the sandbox.
            assert!(!again.stdout.contains(SECRET), "{}", again.output());
            poll("the upstream's account", Duration::from_secs(5), || {
                let received = lab.received()?;
                let survived = received.iter().any(|request| {
                    request["path"] == "/again" && request["headers"]["x-token"][0] == SECRET
                });
                Ok(survived.then_some(()))
            })
        },
    );
}

/// Every GET route of the OpenAPI document, with this lab's names.
fn every_reply_is_clean(lab: &Lab) -> anyhow::Result<()> {
    let get = |path: &str| -> anyhow::Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "2", "--unix-socket"])
            .arg(lab.api_socket());
        Ok(run(curl.arg(format!("http://localhost{path}")))?.stdout)
    };
    let document: Value = serde_json::from_str(&get("/v1/openapi.json")?)?;
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        if operations.get("get").is_none() {
            continue;
        }
        let path = path
            .replace("{tenant}", "acme")
            .replace("{sandbox}", "one")
            .replace("{secret}", "TOKEN")
            .replace("{policy}", "forge")
            .replace("{name}", "one");
        let reply = get(&path)?;
        assert!(!reply.contains(SECRET), "GET {path} shows it");
        asked += 1;
    }
    let metrics = get("/metrics")?;
    assert!(metrics.contains("causeway_") && !metrics.contains(SECRET));
    assert!(asked >= 8, "{asked} routes were asked");
    Ok(())
}

fn every_command_is_clean(lab: &Lab) -> anyhow::Result<()> {
    for arguments in [
        &["secret", "list", "--tenant", "acme"][..],
        &["sandbox", "show", "one", "--tenant", "acme"],
        &["policy", "list"],
        &["status"],
        &["leases", "list"],
        &["trace", "acme/one", "api.forge.example"],
    ] {
        for json in [false, true] {
            let mut all = if json { vec!["--json"] } else { Vec::new() };
            all.extend(arguments);
            let finished = lab.causeway(&all)?;
            assert!(
                !finished.output().contains(SECRET),
                "{arguments:?} shows it"
            );
        }
    }
    Ok(())
}

fn every_process_is_clean(lab: &Lab) -> anyhow::Result<()> {
    for pid in [u64::from(lab.agent_pid()?), proxy_pid(lab)?] {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}"))?;
            assert!(!contains(&bytes), "/proc/{pid}/{file} has it");
        }
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"))
            .unwrap();
        assert!(core.split_whitespace().nth(4) == Some("0"), "{pid}: {core}");
    }
    Ok(())
}

/// Everything that the lab has on disk, but for what upstream wrote down.
fn every_file_is_clean(lab: &Lab) -> anyhow::Result<()> {
    let mut grep = Command::new("grep");
    grep.args(["-rlaF", SECRET, "--exclude=received.jsonl"])
        .arg(&lab.folder);
    let found = run(&mut grep)?.stdout;
    assert_eq!(found.trim(), "", "on disk");
    for folder in [".", "/run"] {
        let mut cores = Command::new("find");
        cores.args([
            folder,
            "-maxdepth",
            "3",
            "-name",
            "core*",
            "-type",
            "f",
            "-newer",
        ]);
        cores
            .arg(lab.folder.join("policy.yaml"))
            .args(["-not", "-path", "*/target/*"]);
        assert_eq!(run_ok(&mut cores)?.trim(), "", "core files in {folder}");
    }
    Ok(())
}

fn proxy_pid(lab: &Lab) -> anyhow::Result<u64> {
    Ok(lab.json(&["status"])?["proxy"]["pid"].as_u64().unwrap())
}

fn file_has(path: &std::path::Path) -> anyhow::Result<bool> {
    Ok(contains(&std::fs::read(path)?))
}

fn contains(bytes: &[u8]) -> bool {
    bytes
        .windows(SECRET.len())
        .any(|window| window == SECRET.as_bytes())
}
