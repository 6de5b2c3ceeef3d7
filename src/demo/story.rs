//! The story itself, step by step.

mod changes;
mod egress;
mod end;
mod inside;

use std::fs;
use std::io::Write;
use std::time::Instant;

use anyhow::{anyhow, ensure};
use serde_json::Value;

use self::changes::{crashes, from_outside, live_changes};
use self::egress::{names_and_rules, reserved_places, the_secret};
use self::end::{curtain, secret_is_nowhere};
use self::inside::{hostile_code, private_networks};
use super::board::{Board, Probe};
use super::cast::{Member, Role, Stage, last_line};
use crate::lab::{Lab, run_ok};

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

/// Evidence that the URL answers with what the internet's servers say.
fn fetched(stage: &Stage, from: &Member, url: &str) -> Probe {
    let reply = stage.curl(from, &[url])?;
    ensure!(served(&reply), "{url}: {}", brief(&reply));
    Ok(format!("{} fetches {url}", from.name))
}

/// Whether one of the internet's servers answered: their replies name the server.
fn served(finished: &crate::lab::Finished) -> bool {
    serde_json::from_str::<Value>(&finished.stdout).is_ok_and(|reply| reply["server"].is_string())
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
