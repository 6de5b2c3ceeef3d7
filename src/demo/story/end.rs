//! Where the secret is, and taking everything down.

use std::io::Write;
use std::process::Command;

use super::super::board::Board;
use super::super::cast::Stage;
use super::{Cast, SECRET, expect};
use crate::lab::{run, run_ok};

pub(super) fn secret_is_nowhere<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
) -> anyhow::Result<()> {
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

pub(super) fn curtain<W: Write>(
    board: &mut Board<W>,
    stage: &Stage,
    cast: &Cast,
) -> anyhow::Result<()> {
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
