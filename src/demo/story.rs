//! The story itself, step by step.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

use super::board::{Board, Probe};
use super::cast::{Member, Role, Stage, does_not_ping, last_line, pings, refusal, text_at};
use crate::lab::internet::address_of;
use crate::lab::{Lab, poll, run, run_ok};

const SECRET: &str = "forge-pat-5cf1b1d2e9a14f0c";

const ROLES: [Role; 6] = [
    Role {
        tenant: "acme",
        name: "web",
        networks: &["frontend"],
        label: "web",
    },
    Role {
        tenant: "acme",
        name: "api",
        networks: &["frontend", "backend"],
        label: "api",
    },
    Role {
        tenant: "acme",
        name: "db",
        networks: &["backend"],
        label: "db",
    },
    Role {
        tenant: "acme",
        name: "agent",
        networks: &[],
        label: "agent",
    },
    Role {
        tenant: "globex",
        name: "trainer",
        networks: &["lab"],
        label: "agent",
    },
    Role {
        tenant: "globex",
        name: "worker",
        networks: &["lab"],
        label: "worker",
    },
];

/// Tells the story on `board`. An error means that it could not go on.
pub(crate) fn tell<W: Write>(board: &mut Board<W>, lab: Lab) -> anyhow::Result<()> {
    let mut stage = Stage::new(lab)?;
    let cast = raise_curtain(board, &mut stage)?;
    private_networks(board, &mut stage, &cast)?;
    the_secret(board, &stage, &cast)?;
    names_and_rules(board, &stage, &cast)?;
    reserved_places(board, &stage, &cast)?;
    hostile_code(board, &stage, &cast)?;
    from_outside(board, &mut stage, &cast)?;
    live_changes(board, &mut stage, &cast)?;
    crashes(board, &mut stage, &cast)?;
    secret_is_nowhere(board, &stage)?;
    curtain(board, &stage, &cast)
}

/// The six sandboxes by name.
struct Cast {
    web: Member,
    api: Member,
    db: Member,
    agent: Member,
    trainer: Member,
    worker: Member,
}

impl Cast {
    fn all(&self) -> [&Member; 6] {
        [
            &self.web,
            &self.api,
            &self.db,
            &self.agent,
            &self.trainer,
            &self.worker,
        ]
    }
}

fn raise_curtain<W: Write>(board: &mut Board<W>, stage: &mut Stage) -> anyhow::Result<Cast> {
    board.step("A host with an uplink to an internet of its own; `causeway up` starts a node")?;
    stage.lab.start_agent()?;
    let status = stage.lab.json(&["status"])?;
    board.note(&format!(
        "backend {}, health {}",
        status["backend"], status["health"]
    ))?;
    let roots = fs::read_to_string(stage.lab.folder.join("internet-root.pem"))?;
    let ours = run_ok(&mut stage.lab.command(&["ca"]))?;
    fs::write(stage.bundle(), format!("{roots}{ours}"))?;

    board.step("Two tenants, three private networks")?;
    for (tenant, network) in [("acme", "frontend"), ("acme", "backend"), ("globex", "lab")] {
        run_ok(
            &mut stage
                .lab
                .command(&["network", "create", network, "--tenant", tenant]),
        )?;
        board.note(&format!(
            "causeway network create {network} --tenant {tenant}"
        ))?;
    }

    board.step("Six sandboxes, each a network namespace with one veth and one IPv6 address")?;
    let start = Instant::now();
    let mut members = Vec::new();
    for role in &ROLES {
        let member = stage.create(role)?;
        board.note(&format!(
            "{:<7} {:<8} {:<40} networks: {}",
            role.tenant,
            role.name,
            member.address,
            if role.networks.is_empty() {
                "none".to_owned()
            } else {
                role.networks.join(", ")
            },
        ))?;
        members.push(member);
    }
    board.note(&format!(
        "six created in {} ms",
        start.elapsed().as_millis()
    ))?;
    let [web, api, db, agent, trainer, worker] = <[Member; 6]>::try_from(members)
        .map_err(|members| anyhow!("{} sandboxes", members.len()))?;
    let cast = Cast {
        web,
        api,
        db,
        agent,
        trainer,
        worker,
    };
    for (member, ports) in [(&cast.web, ["8443", "8080"]), (&cast.db, ["5432", "22"])] {
        stage.serve(&member.namespace, &ports)?;
    }
    stage.serve(&cast.api.namespace, &["8080"])?;

    let addresses: std::collections::BTreeSet<_> =
        cast.all().iter().map(|member| member.address).collect();
    let distinct = addresses.len() == 6
        && addresses
            .iter()
            .all(|address| crate::lab::is_operators(*address));
    let duplicate = stage.lab.causeway(&[
        "sandbox",
        "create",
        "web",
        "--tenant",
        "acme",
        "--attach",
        "netns:/run/netns/web",
    ])?;
    board.check(
        "each sandbox has an IPv6 address of its own from the operator's prefix, usable at once",
        if distinct {
            Ok("six addresses, six servers bound without waiting".to_owned())
        } else {
            Err(anyhow!("addresses: {addresses:?}"))
        },
        if duplicate.ok() {
            Err(anyhow!("a second `web` was created"))
        } else {
            Ok(last_line(&duplicate.stderr).to_owned())
        },
    )?;
    Ok(cast)
}

fn private_networks<W: Write>(
    board: &mut Board<W>,
    stage: &mut Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
    board.step("Private networks: members reach each other, and nobody else")?;
    board.check(
        "two members of one network reach each other; sandboxes of two networks do not",
        pings(&cast.web, &cast.api).and_then(|_| pings(&cast.api, &cast.web)),
        does_not_ping(&cast.web, &cast.db),
    )?;
    board.check(
        "tenants are apart, in both directions",
        pings(&cast.trainer, &cast.worker),
        does_not_ping(&cast.trainer, &cast.web)
            .and_then(|_| does_not_ping(&cast.web, &cast.trainer)),
    )?;
    let before = stage.drops(&cast.trainer, "no_shared_network")?;
    let _refused = does_not_ping(&cast.trainer, &cast.web)?;
    let after = stage.drops(&cast.trainer, "no_shared_network")?;
    let unchanged = stage.drops(&cast.worker, "no_shared_network")?;
    board.check(
        "a drop is counted under its reason, for the sandbox that sent the packet",
        expect(
            after == before + 1,
            format!("trainer no_shared_network: {before} → {after}"),
        ),
        expect(
            unchanged == 0,
            format!("worker no_shared_network: {unchanged}"),
        ),
    )?;

    board.step("Policy files, checked and applied")?;
    let file = stage.lab.folder.join("policy.yaml");
    fs::write(&file, include_str!("policy.yaml"))?;
    let broken = stage.lab.folder.join("broken.yaml");
    fs::write(
        &broken,
        include_str!("policy.yaml").replacen("egress:", "egres:", 1),
    )?;
    let applied = stage
        .lab
        .causeway(&["policy", "apply", &file.to_string_lossy()])?;
    let refused = stage
        .lab
        .causeway(&["policy", "apply", &broken.to_string_lossy()])?;
    board.note(&refused.stderr)?;
    board.check(
        "a policy file applies whole; one with a misspelt key is refused with its line and column",
        expect(applied.ok(), applied.output()),
        expect(
            !refused.ok() && refused.stderr.contains("egres"),
            "a misspelt key is an error".into(),
        ),
    )?;
    board.check(
        "ingress rules open one port to one role",
        stage.connects(&cast.api.namespace, cast.db.address, "5432"),
        stage.does_not_connect(&cast.api.namespace, cast.db.address, "22"),
    )?;
    Ok(())
}

fn the_secret<W: Write>(board: &mut Board<W>, stage: &Stage, cast: &Cast) -> anyhow::Result<()> {
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
                    .is_some_and(|body| body.contains(SECRET)),
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

fn names_and_rules<W: Write>(
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

fn reserved_places<W: Write>(
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

fn hostile_code<W: Write>(board: &mut Board<W>, stage: &Stage, cast: &Cast) -> anyhow::Result<()> {
    board.step("Hostile code in a sandbox claims another's address")?;
    let ip = |arguments: &str| {
        run_ok(
            cast.worker
                .namespace
                .command("ip")
                .args(arguments.split_whitespace()),
        )
    };
    let before = stage.drops(&cast.worker, "spoofed_source")?;
    ip(&format!(
        "addr add {}/128 dev eth0 nodad",
        cast.trainer.address
    ))?;
    let mut command = cast.worker.namespace.command("ping");
    let source = cast.trainer.address.to_string();
    let target = cast.web.address.to_string();
    let forged = run(command.args(["-6", "-n", "-c", "1", "-W", "1", "-I", &source, &target]))?;
    ip(&format!("addr del {}/128 dev eth0", cast.trainer.address))?;
    let after = stage.drops(&cast.worker, "spoofed_source")?;
    board.check(
        "a packet leaves with the sandbox's own source or not at all",
        pings(&cast.worker, &cast.trainer),
        expect(
            !forged.ok() && after > before,
            format!("spoofed_source: {before} → {after}"),
        ),
    )?;
    Ok(())
}

fn from_outside<W: Write>(
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

fn live_changes<W: Write>(
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
    let narrower: String = include_str!("policy.yaml")
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

fn crashes<W: Write>(board: &mut Board<W>, stage: &mut Stage, cast: &Cast) -> anyhow::Result<()> {
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
    run_ok(Command::new("kill").args(["-9", &pid.to_string()]))?;
    // Straight to the address: with the proxy its resolver is gone, too.
    let pinned = address_of("static.example").context("static.example")?;
    let pin = format!("static.example:443:[{pinned}]");
    let down = stage.curl(
        &cast.agent,
        &[
            "--connect-timeout",
            "0.3",
            "--resolve",
            &pin,
            "https://static.example/while-down",
        ],
    )?;
    let leaked = stage.lab.received()?.iter().any(|request| {
        request["path"] == "/while-down" && request["peer"] != cast.agent.address.to_string()
    });
    let back = poll("the proxy to be back", Duration::from_secs(10), || {
        let fetched = fetched(stage, &cast.agent, "https://static.example/back")?;
        Ok(Some(fetched))
    });
    board.check(
        "a killed proxy is started again, and in between nothing passes by it",
        back.map(|_| "static.example answers again".to_owned()),
        expect(!leaked, format!("while it was down: {}", brief(&down))),
    )?;
    Ok(())
}

fn secret_is_nowhere<W: Write>(board: &mut Board<W>, stage: &Stage) -> anyhow::Result<()> {
    board.step("Where the secret is, and where it is not")?;
    let everywhere = [
        run_ok(
            &mut stage
                .lab
                .command(&["--json", "secret", "list", "--tenant", "acme"]),
        )?,
        run_ok(
            &mut stage
                .lab
                .command(&["--json", "sandbox", "show", "agent", "--tenant", "acme"]),
        )?,
        run_ok(&mut stage.lab.command(&["--json", "policy", "list"]))?,
        run_ok(&mut stage.lab.command(&["--json", "status"]))?,
    ];
    let replies = everywhere
        .iter()
        .filter(|reply| reply.contains(SECRET))
        .count();
    let folder = stage.lab.folder.clone();
    let mut grep = Command::new("grep");
    grep.args(["-rlaF", SECRET])
        .arg(&folder)
        .args(["--exclude", "received.jsonl"]);
    let files = run(&mut grep)?;
    let upstream = stage
        .lab
        .received()?
        .iter()
        .any(|request| request.to_string().contains(SECRET));
    let mut processes = Command::new("sh");
    processes.args(["-c", &format!("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -vF \"grep\" | grep -cF '{}'", &SECRET[..12])]);
    let in_processes = run(&mut processes)?.stdout.trim().to_owned();
    board.check(
        "the secret's value is in the request that upstream got, and nowhere else",
        expect(upstream, "upstream got it".into()),
        expect(
            replies == 0 && files.stdout.trim().is_empty(),
            format!(
                "{replies} of {} API replies, files on disk: {:?}, processes: {in_processes}",
                everywhere.len(),
                files.stdout.trim()
            ),
        ),
    )?;
    Ok(())
}

fn curtain<W: Write>(board: &mut Board<W>, stage: &Stage, cast: &Cast) -> anyhow::Result<()> {
    board.step("Everything is taken down again")?;
    let links = || run_ok(Command::new("ip").args(["-n", "causeway", "-o", "link"]));
    let full = links()?.lines().count();
    for member in cast.all() {
        let arguments = ["sandbox", "delete", member.name, "--tenant", member.tenant];
        run_ok(&mut stage.lab.command(&arguments))?;
    }
    let empty = links()?
        .lines()
        .filter(|line| line.contains(": cw"))
        .filter(|line| !line.contains("cw-up"))
        .count();
    let elements = run_ok(Command::new("ip").args([
        "netns", "exec", "causeway", "nft", "list", "map", "inet", "causeway", "groups",
    ]))?;
    let bound = stage.lab.json(&["leases", "list"])?;
    let held = bound.as_array().map_or(0, |leases| {
        leases
            .iter()
            .filter(|lease| lease["state"] == "bound")
            .count()
    });
    board.check(
        "deleting the sandboxes leaves no interface, no set element and no bound lease",
        expect(full >= 6, format!("{full} interfaces before")),
        expect(
            empty == 0 && held == 0 && !elements.contains("elements"),
            format!("{empty} interfaces, {held} bound leases after"),
        ),
    )?;
    let down = stage.lab.causeway(&["down"])?;
    let namespaces = run_ok(Command::new("ip").args(["netns", "list"]))?;
    board.check(
        "`causeway down` removes the node's own parts, and only those",
        expect(
            down.ok() && namespaces.contains("web"),
            "the sandboxes' namespaces are theirs".into(),
        ),
        expect(
            !namespaces.lines().any(|line| line.starts_with("causeway")),
            "no namespace `causeway` is left".into(),
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

/// Evidence that the URL answers with what the internet's servers say.
fn fetched(stage: &Stage, from: &Member, url: &str) -> Probe {
    let reply = stage.curl(from, &[url])?;
    ensure!(served(&reply), "{url}: {}", brief(&reply));
    Ok(format!("{} fetches {url}", from.name))
}

/// What the server saw of a request.
fn upstream_saw(stage: &Stage, from: &Member, arguments: &[&str]) -> anyhow::Result<Value> {
    let reply = stage.curl(from, arguments)?;
    ensure!(served(&reply), "{arguments:?}: {}", brief(&reply));
    Ok(serde_json::from_str(&reply.stdout)?)
}

/// Whether one of the internet's servers answered: their replies name the server.
fn served(finished: &crate::lab::Finished) -> bool {
    serde_json::from_str::<Value>(&finished.stdout).is_ok_and(|reply| reply["server"].is_string())
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

fn expect(holds: bool, evidence: String) -> Probe {
    if holds {
        Ok(evidence)
    } else {
        Err(anyhow!(evidence))
    }
}

fn brief(finished: &crate::lab::Finished) -> String {
    let text = finished.output();
    text.lines().next().unwrap_or_default().to_owned()
}
