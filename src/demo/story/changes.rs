//! Inbound traffic, changes of policy, quarantine and crashes.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::super::board::Board;
use super::super::cast::{Member, Stage, does_not_ping, last_line, pings};
use super::{Cast, brief, expect, fetched};
use crate::lab::internet::address_of;
use crate::lab::{poll, run, run_ok};

pub(super) fn from_outside<W: Write>(
    board: &mut Board<W>,
    stage: &mut Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("Inbound: a sandbox is a host with a real address")?;
    let internet = stage.lab.internet();
    let forge = address_of("api.forge.example").context("api.forge.example")?;
    let from_forge = |port: &str| -> anyhow::Result<_> {
        let script = format!(
            "import socket;s=socket.socket(socket.AF_INET6);s.settimeout(1.5);\
             s.bind(('{forge}',0));s.connect(('{}',{port}));print(s.recv(99).decode().strip())",
            cast.web.address
        );
        run(internet.command("python3").args(["-c", &script]))
    };
    let (open, closed) = (from_forge("8443")?, from_forge("8080")?);
    board.check(
        "from the outside one range reaches one port",
        expect(open.ok(), format!("8443: {}", open.output())),
        expect(!closed.ok(), format!("8080: {}", last_line(&closed.stderr))),
    )?;
    board.check(
        "and nobody else does, nor any other sandbox",
        expect(
            from_forge("8443")?.ok(),
            "the permitted range still connects".into(),
        ),
        stage
            .does_not_connect(&internet, cast.web.address, "8443")
            .and_then(|_| stage.does_not_connect(&internet, cast.db.address, "5432")),
    )?;
    Ok(())
}

pub(super) fn live_changes<W: Write>(
    board: &mut Board<W>,
    stage: &mut Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("Policy changes reach connections that are open already")?;
    let doomed = follow(
        stage,
        &cast.agent,
        "https://files.forge.example/stream",
        "doomed",
    )?;
    let spared = follow(
        stage,
        &cast.agent,
        "https://static.example/stream",
        "spared",
    )?;
    let file = stage.lab.folder.join("narrower.yaml");
    let narrower: String = include_str!("../policy.yaml")
        .lines()
        .filter(|line| !line.contains("name: files"))
        .flat_map(|line| [line, "\n"])
        .collect();
    fs::write(&file, narrower)?;
    let start = Instant::now();
    run_ok(
        &mut stage
            .lab
            .command(&["policy", "apply", &file.to_string_lossy()]),
    )?;
    let cut = poll("the revoked stream to end", Duration::from_secs(3), || {
        Ok(stage.has_ended(doomed.index)?.then_some(start.elapsed()))
    });
    let position = lines(&spared.path)?;
    let grows = poll("the other stream to go on", Duration::from_secs(3), || {
        Ok((lines(&spared.path)? > position + 3).then_some(()))
    });
    let lives = !stage.has_ended(spared.index)?;
    board.check(
        "a connection that policy no longer permits is cut within a second, others go on",
        grows.and_then(|()| expect(lives, "static.example streams on".into())),
        cut.and_then(|after| {
            let ms = after.as_millis();
            expect(
                after < Duration::from_secs(1),
                format!("files.forge.example cut after {ms} ms"),
            )
        }),
    )?;

    board.step("Quarantine takes a sandbox off every network, at once")?;
    let quarantine = |verb: &str| {
        run_ok(
            &mut stage
                .lab
                .command(&["sandbox", verb, "api", "--tenant", "acme"]),
        )
    };
    quarantine("quarantine")?;
    let silent = does_not_ping(&cast.web, &cast.api)
        .and_then(|_| stage.does_not_connect(&cast.api.namespace, cast.db.address, "5432"));
    quarantine("release")?;
    board.check(
        "a sandbox in quarantine reaches nobody and is reached by nobody, until it is released",
        pings(&cast.web, &cast.api),
        silent,
    )?;
    Ok(())
}

pub(super) fn crashes<W: Write>(
    board: &mut Board<W>,
    stage: &mut Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step(
        "Crashes: the dataplane goes on without the agent, and nothing opens without the proxy",
    )?;
    let path = stage.lab.folder.join("talk");
    let mut talk = stage.client(
        &cast.web.namespace,
        &[
            "talk",
            &cast.api.address.to_string(),
            "8080",
            &path.to_string_lossy(),
        ],
    );
    let talk = stage.spawn(&mut talk)?;
    poll("the conversation to begin", Duration::from_secs(5), || {
        Ok((lines(&path)? > 5).then_some(()))
    })?;
    let position = lines(&path)?;
    stage.lab.kill_agent()?;
    poll(
        "the conversation to go on without the agent",
        Duration::from_secs(5),
        || Ok((lines(&path)? > position + 10).then_some(())),
    )?;
    let refused = does_not_ping(&cast.web, &cast.db);
    stage.lab.start_agent()?;
    let worst = worst_round_trip(&path)?;
    let ended = stage.has_ended(talk)?;
    board.check(
        "killing the agent stops no packet and opens nothing",
        expect(
            !ended && worst < 200.0,
            format!("a TCP conversation went on, worst round trip {worst} ms"),
        ),
        refused,
    )?;
    let report = stage.lab.json(&["reconcile"])?;
    let unknown = stage
        .lab
        .causeway(&["sandbox", "show", "nobody", "--tenant", "acme"])?;
    board.check(
        "a restarted agent knows every sandbox, and reconciling finds nothing to do",
        expect(
            report["changes"] == 0,
            format!("changes: {}", report["changes"]),
        )
        .and_then(|_| pings(&cast.web, &cast.api)),
        expect(!unknown.ok(), last_line(&unknown.stderr).to_owned()),
    )?;

    let pid = stage.lab.json(&["status"])?["proxy"]["pid"]
        .as_u64()
        .context("no proxy pid")?;
    let before = stage.drops(&cast.agent, "proxy_down")?;
    // The agent would start another one at once.
    stage.lab.hold_agent(true)?;
    run_ok(Command::new("kill").args(["-9", &pid.to_string()]))?;
    // Straight to the address: with the proxy its resolver is gone, too.
    let pinned = address_of("static.example").context("static.example")?;
    let pin = format!("static.example:443:[{pinned}]");
    let down = stage.curl(
        &cast.agent,
        &[
            "--connect-timeout",
            "0.5",
            "--resolve",
            &pin,
            "https://static.example/while-down",
        ],
    )?;
    let leaked = stage
        .lab
        .received()?
        .iter()
        .any(|request| request["path"] == "/while-down");
    stage.lab.hold_agent(false)?;
    let back = poll("the proxy to be back", Duration::from_secs(10), || {
        let fetched = fetched(stage, &cast.agent, "https://static.example/back")?;
        Ok(Some(fetched))
    });
    board.check(
        "a killed proxy is started again, and in between nothing passes by it",
        back.map(|_| "static.example answers again".to_owned()),
        expect(
            !leaked && !down.ok() && stage.drops(&cast.agent, "proxy_down")? > before,
            format!("while it was down: {}", brief(&down)),
        ),
    )?;
    Ok(())
}

struct Stream {
    index: usize,
    path: std::path::PathBuf,
}

fn follow(stage: &mut Stage, from: &Member, url: &str, name: &str) -> anyhow::Result<Stream> {
    let path = stage.lab.folder.join(name);
    let mut command = stage.client(&from.namespace, &["follow", url, &path.to_string_lossy()]);
    let index = stage.spawn(&mut command)?;
    poll("the stream to begin", Duration::from_secs(5), || {
        Ok((lines(&path)? > 2).then_some(()))
    })?;
    Ok(Stream { index, path })
}

fn lines(path: &std::path::Path) -> anyhow::Result<usize> {
    if !path.exists() {
        return Ok(0);
    }
    Ok(fs::read_to_string(path)?.lines().count())
}

fn worst_round_trip(path: &std::path::Path) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path)?;
    let trips = text
        .lines()
        .filter_map(|line| line.split_once(' ')?.1.parse::<f64>().ok());
    Ok(trips.fold(0.0, f64::max))
}
