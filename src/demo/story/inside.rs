//! Private networks, and hostile code in one.

use std::fs;
use std::io::Write;

use super::super::board::Board;
use super::super::cast::{Stage, does_not_ping, pings};
use super::{Cast, expect};
use crate::lab::{run, run_ok};

pub(super) fn private_networks<W: Write>(
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
    fs::write(&file, include_str!("../policy.yaml"))?;
    let broken = stage.lab.folder.join("broken.yaml");
    fs::write(
        &broken,
        include_str!("../policy.yaml").replacen("egress:", "egres:", 1),
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

pub(super) fn hostile_code<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
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
