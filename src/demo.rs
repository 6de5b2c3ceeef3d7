//! `causeway demo`: the whole story on this machine, with real packets, real TLS and real
//! programs, in namespaces that vanish when it ends.

mod board;
mod cast;
mod story;

use std::ffi::OsString;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};

use self::board::Board;
use crate::lab::vpp::{self, Vpp};
use crate::lab::{Lab, internet, isolate};

/// Which dataplane the story is told on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoBackend {
    /// The Linux kernel.
    Kernel,
    /// A VPP that is installed here, on the search path or under `VPP_PREFIX`.
    Vpp,
}

/// Runs the demo; `Ok(true)` when every check passed.
pub fn run(backend: DemoBackend) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    if isolate::is_inside() {
        return tell(&program, backend);
    }
    let mut arguments = vec![OsString::from("demo")];
    if backend == DemoBackend::Vpp {
        // Said before anything is made.
        vpp::find().map_err(anyhow::Error::msg)?;
        arguments.extend(["--backend", "vpp"].map(OsString::from));
    }
    let status = isolate::run_inside(&program, &arguments)?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        // `unshare` itself refused, and has said why.
        _ if !nix::unistd::geteuid().is_root() => bail!(
            "the demo needs namespaces of its own, and this machine does not let an ordinary \
             user make them: run it as root, or set the sysctl kernel.unprivileged_userns_clone \
             or user.max_user_namespaces (and, on Ubuntu, \
             kernel.apparmor_restrict_unprivileged_userns=0)"
        ),
        _ => bail!("the demo was interrupted or could not enter its namespaces ({status})"),
    }
}

/// Tells the story, inside the demo's namespaces.
fn tell(program: &Path, backend: DemoBackend) -> anyhow::Result<bool> {
    let lab = Lab::set_up(program)?;
    let vpp = match backend {
        DemoBackend::Kernel => None,
        DemoBackend::Vpp => {
            let installed = vpp::find().map_err(anyhow::Error::msg)?;
            let vpp = Vpp::start(&installed, Path::new("/run/vpp"))?;
            lab.write_config(&vpp.section())?;
            Some(vpp)
        }
    };
    let mut board = Board::new(io::stdout());
    story::tell(&mut board, lab)?;
    drop(vpp);
    Ok(board.finish()?)
}

/// Runs the demo's internet, in the namespace that the lab made for it.
pub fn serve_internet(folder: &Path) -> anyhow::Result<()> {
    if !isolate::is_inside() {
        bail!("`causeway demo --internet` is started by the demo itself");
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(internet::serve(folder))
}
