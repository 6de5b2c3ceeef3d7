//! Names, rules, secrets and reserved places.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::super::board::{Board, Probe};
use super::super::cast::{Member, Stage, last_line, refusal, text_at};
use super::{Cast, SECRET, brief, expect, fetched, served};
use crate::lab::internet::address_of;
use crate::lab::run;

pub(super) fn the_secret<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("A secret that the sandbox uses and never holds")?;
    let url = "https://api.forge.example/repos/secret";
    let before = stage.curl(&cast.agent, &[url])?;
    let set = stage.lab.causeway_with_input(
        &["secret", "set", "FORGE_TOKEN", "--tenant", "acme"],
        SECRET,
    )?;
    ensure!(set.ok(), "secret set: {}", set.output());
    board.note("causeway secret set FORGE_TOKEN --tenant acme    (value on standard input)")?;
    let with = upstream_saw(
        stage,
        &cast.agent,
        &["-H", "Authorization: Bearer mine", url],
    )?;
    let authorization = &with["headers"]["authorization"];
    let elsewhere = upstream_saw(stage, &cast.agent, &["https://static.example/other"])?;
    board.check(
        "the proxy adds the secret towards its host, replacing what the client sent, and to no other",
        expect(
            *authorization == serde_json::json!([format!("Bearer {SECRET}")]),
            "api.forge.example got exactly one Authorization header, ours".into(),
        ),
        expect(elsewhere["headers"].get("authorization").is_none(), "static.example got none".into()),
    )?;
    let echoed = stage.curl(&cast.agent, &[url])?;
    let untouched = stage.curl(&cast.agent, &["https://static.example/other"])?;
    board.check(
        "when the host sends the secret back, the sandbox sees it overwritten",
        expect(
            served(&echoed)
                && echoed.stdout.contains("Bearer ****")
                && !echoed.stdout.contains(SECRET),
            "the host's echo of the header is filled with asterisks".into(),
        ),
        expect(
            served(&untouched) && !untouched.stdout.contains("****"),
            "other hosts' answers come as they are".into(),
        ),
    )?;
    board.check(
        "a request whose secret has no value is refused, not sent without",
        fetched(stage, &cast.agent, url),
        refusal(&before, "secret_missing"),
    )?;
    let python = run(&mut stage.client(&cast.agent.namespace, &["get", url]))?;
    let seen: Value = serde_json::from_str(&python.stdout).unwrap_or_default();
    let mut untrusting = stage.client(&cast.agent.namespace, &["get", url]);
    let untrusting =
        run(untrusting.env("SSL_CERT_FILE", stage.lab.folder.join("internet-root.pem")))?;
    board.check(
        "an unmodified Python program does the same, once it trusts Causeway's CA",
        expect(
            seen["status"] == 200
                && seen["body"]
                    .as_str()
                    .is_some_and(|body| body.contains("Bearer ****")),
            format!("urllib: status {}", seen["status"]),
        ),
        expect(
            untrusting.stderr.contains("CERTIFICATE_VERIFY_FAILED"),
            format!("without the CA: {}", last_line(&untrusting.stderr)),
        ),
    )?;
    let peer = text_at(&with, "peer")?.to_owned();
    let legacy = upstream_saw(stage, &cast.agent, &["https://legacy.example/peer"])?;
    board.check(
        "upstream sees the sandbox's own address",
        expect(
            peer == cast.agent.address.to_string(),
            format!("from {peer}"),
        ),
        expect(
            legacy["peer"] != peer.as_str(),
            format!("IPv4-only hosts see the node's: {}", legacy["peer"]),
        ),
    )?;
    let plain = stage.curl(&cast.agent, &["http://api.forge.example/repos/x"])?;
    board.check(
        "the secret never leaves on plain HTTP",
        fetched(stage, &cast.agent, url),
        expect(
            !plain.stdout.contains(SECRET) && !served(&plain),
            brief(&plain),
        ),
    )?;
    Ok(())
}

pub(super) fn names_and_rules<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("Egress: names, passed through or looked into, as the rules say")?;
    let denied = stage.curl(&cast.agent, &["https://intruder.example/"])?;
    board.check(
        "names that a rule permits resolve and connect; others do not even resolve",
        fetched(stage, &cast.agent, "https://static.example/hello"),
        expect(
            denied.stderr.contains("Could not resolve"),
            last_line(&denied.stderr).to_owned(),
        ),
    )?;
    let none = stage.curl(&cast.worker, &["https://static.example/"])?;
    board.check(
        "a sandbox without a policy reaches nothing outside",
        fetched(stage, &cast.agent, "https://static.example/"),
        expect(!none.ok(), format!("worker: {}", last_line(&none.stderr))),
    )?;
    board.check(
        "TLS is left alone where no rule looks inside, and ended by Causeway where one does",
        issuer(stage, &cast.agent, "static.example", "Lab Internet Root"),
        issuer(stage, &cast.agent, "api.forge.example", "Causeway"),
    )?;
    let post = stage.curl(
        &cast.agent,
        &["-X", "POST", "https://api.forge.example/repos/x"],
    )?;
    let path = stage.curl(&cast.agent, &["https://api.forge.example/admin"])?;
    board.check(
        "http rules judge method and path, and a refusal says why in JSON",
        fetched(stage, &cast.agent, "https://api.forge.example/repos/x"),
        refusal(&post, "request_denied").and_then(|_| refusal(&path, "request_denied")),
    )?;
    let real = address_of("static.example").context("static.example")?;
    let intruder = address_of("intruder.example").context("intruder.example")?;
    let pin = |address| format!("static.example:443:[{address}]");
    let kept = stage.curl(
        &cast.agent,
        &["--resolve", &pin(real), "https://static.example/"],
    )?;
    let forged = stage.curl(
        &cast.agent,
        &["--resolve", &pin(intruder), "https://static.example/"],
    )?;
    board.check(
        "a permitted name does not open an address that it does not have",
        expect(kept.ok(), "static.example at its own address".into()),
        expect(
            !reached(stage, intruder)? && !served(&forged),
            format!("at the intruder's: {}", brief(&forged)),
        ),
    )?;
    let fronted = stage.curl(
        &cast.agent,
        &[
            "-H",
            "Host: intruder.example",
            "https://api.forge.example/repos/x",
        ],
    )?;
    board.check(
        "the name in TLS and the name in the request are one name",
        fetched(stage, &cast.agent, "https://api.forge.example/repos/y"),
        refusal(&fronted, "name_mismatch"),
    )?;
    let port = stage.curl(&cast.agent, &["https://static.example:8443/"])?;
    board.check(
        "a host that only has IPv4 is reached through DNS64 and the proxy",
        fetched(stage, &cast.agent, "https://legacy.example/"),
        expect(!served(&port), format!("another port: {}", brief(&port))),
    )?;
    let target = address_of("static.example")
        .context("static.example")?
        .to_string();
    let udp = |port: &str| run(&mut stage.client(&cast.agent.namespace, &["udp", &target, port]));
    let (open, closed) = (udp("7000")?, udp("53")?);
    board.check(
        "UDP passes by address range and port only",
        expect(
            open.ok() && open.stdout.trim() == "echo",
            format!("echo: {}", open.output()),
        ),
        expect(
            !closed.ok(),
            format!("port 53: {}", last_line(&closed.stderr)),
        ),
    )?;
    Ok(())
}

pub(super) fn reserved_places<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("Metadata services, the host and private ranges, in every spelling")?;
    let spellings = [
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[fd63:6175:7365:64::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://[::1]:8080/",
        "http://169.254.169.254/",
    ];
    let mut open = Vec::new();
    for spelling in spellings {
        let reply = stage.curl(&cast.agent, &["--max-time", "2", spelling])?;
        if served(&reply) {
            open.push(spelling);
        }
    }
    board.check(
        "no spelling of a reserved address is reached",
        fetched(stage, &cast.agent, "https://static.example/control"),
        expect(
            open.is_empty(),
            format!(
                "{} spellings tried, {} reached",
                spellings.len(),
                open.len()
            ),
        ),
    )?;
    let rebound = stage.curl(&cast.agent, &["https://rebind.example/"])?;
    board.check(
        "a permitted name that points into a reserved range is refused",
        fetched(stage, &cast.agent, "https://files.forge.example/control"),
        expect(
            !served(&rebound),
            format!("rebind.example: {}", brief(&rebound)),
        ),
    )?;
    Ok(())
}

/// What the server saw of a request, by its own account.
fn upstream_saw(stage: &Stage, from: &Member, arguments: &[&str]) -> anyhow::Result<Value> {
    let before = stage.lab.received()?.len();
    let reply = stage.curl(from, arguments)?;
    ensure!(served(&reply), "{arguments:?}: {}", brief(&reply));
    // It writes its account beside the answer.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(seen) = stage.lab.received()?.into_iter().nth(before) {
            return Ok(seen);
        }
        ensure!(Instant::now() < deadline, "{arguments:?}: nothing received");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether any request reached the server at `address`.
fn reached(stage: &Stage, address: std::net::Ipv6Addr) -> anyhow::Result<bool> {
    let prefix = format!("[{address}]");
    Ok(stage.lab.received()?.iter().any(|request| {
        request["server"]
            .as_str()
            .is_some_and(|server| server.starts_with(&prefix))
    }))
}

fn issuer(stage: &Stage, from: &Member, host: &str, expected: &str) -> Probe {
    let reply = stage.curl(from, &["-v", &format!("https://{host}/repos/issuer")])?;
    let line = reply
        .stderr
        .lines()
        .find(|line| line.contains("issuer:"))
        .unwrap_or_default();
    ensure!(
        line.contains(expected),
        "{host}: {line:?} {}",
        brief(&reply)
    );
    Ok(format!("{host}: {}", line.trim_start_matches(['*', ' '])))
}
