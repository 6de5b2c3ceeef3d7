//! Entering namespaces of our own, so that whatever happens nothing is left behind.
//!
//! The outer process starts itself again inside new network, mount and PID namespaces (and a
//! user namespace when it is not root). The kernel removes all of it when the inner process
//! ends, and the inner process ends when the outer one does, however that happens.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context as _, bail};

use super::run_ok;

/// Set in the inner process.
const MARK: &str = "CAUSEWAY_LAB_INSIDE";

/// Whether this process is already the inner one.
pub fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs `program` with `arguments` inside new namespaces and waits for it. The child's standard
/// input is a pipe from this process: its end tells the child that this process is gone.
pub fn run_inside(program: &Path, arguments: &[OsString]) -> anyhow::Result<ExitStatus> {
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]);
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // A shell is the first process of the PID namespace, since somebody has to reap orphans.
    command
        .args(["sh", "-c", r#""$0" "$@"; exit $?"#])
        .arg(program)
        .args(arguments);
    command.env(MARK, "1").stdin(Stdio::piped());
    // The search path of an ordinary user lacks the administration folders.
    if let Some(path) = std::env::var_os("PATH") {
        let mut path = path;
        path.push(":/usr/sbin:/sbin");
        command.env("PATH", path);
    }
    let mut child = command
        .spawn()
        .context("cannot run `unshare`, which is in the package util-linux")?;
    // Taken out, since waiting would close it.
    let lifeline = child.stdin.take();
    let status = child.wait().context("cannot wait for the inner process")?;
    drop(lifeline);
    Ok(status)
}

/// Whether new namespaces can be had here, and if not, why.
pub fn available() -> Result<(), String> {
    let status = run_inside(Path::new("true"), &[]);
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("namespaces cannot be made: be root, or allow user namespaces".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Prepares the inner side: ends with the outer process, private `/run`, loopback up.
pub fn settle() -> anyhow::Result<()> {
    if !is_inside() {
        bail!("this part runs only inside the lab's namespaces");
    }
    end_with_outer_process();
    run_ok(Command::new("mount").args(["--make-rprivate", "/"]))?;
    run_ok(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]))?;
    run_ok(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    Ok(())
}

fn end_with_outer_process() {
    thread::spawn(|| {
        let mut byte = [0];
        // Nothing is ever written: the read returns when the outer process is gone.
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
        std::process::exit(130);
    });
}
