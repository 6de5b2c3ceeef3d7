//! A VPP of the lab's own, where one is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use vpp_config::startup::Startup;

use super::{poll, run_ok};

/// A whole VPP takes some seconds to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any story has.
const SANDBOXES: u32 = 64;
/// In microseconds: the lab shares its processors with everybody in it.
const SLEEP: u32 = 100;

/// A VPP that is installed here.
#[derive(Debug, Clone)]
pub struct Installed {
    program: PathBuf,
    plugins: Option<PathBuf>,
}

/// Finds VPP under `VPP_PREFIX`, or on the search path; otherwise says what is missing.
pub fn find() -> Result<Installed, String> {
    let Some(prefix) = std::env::var_os("VPP_PREFIX").map(PathBuf::from) else {
        return on_path().ok_or_else(|| {
            "there is no VPP on the search path: install FD.io's packages, or set VPP_PREFIX"
                .to_owned()
        });
    };
    let program = prefix.join("bin/vpp");
    if !program.is_file() {
        return Err(format!(
            "VPP_PREFIX is set, and {} is missing",
            program.display()
        ));
    }
    // lib/vpp_plugins, or lib/x86_64-linux-gnu/vpp_plugins.
    let lib = prefix.join("lib");
    let below = fs::read_dir(&lib).into_iter().flatten().flatten();
    let plugins = below
        .map(|entry| entry.path().join("vpp_plugins"))
        .chain([lib.join("vpp_plugins")])
        .find(|folder| folder.is_dir());
    match plugins {
        Some(folder) => Ok(Installed {
            program,
            plugins: Some(folder),
        }),
        None => Err(format!("there are no plugins of VPP in {}", lib.display())),
    }
}

/// Where it was installed it knows its plugins.
fn on_path() -> Option<Installed> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&path)
        .map(|folder| folder.join("vpp"))
        .find(|program| program.is_file())?;
    Some(Installed {
        program,
        plugins: None,
    })
}

/// A running VPP, which ends with this value.
#[derive(Debug)]
pub struct Vpp {
    child: Child,
    socket: PathBuf,
}

impl Vpp {
    /// Starts one in this network namespace with its files in `folder`, and waits until it listens.
    pub fn start(installed: &Installed, folder: &Path) -> anyhow::Result<Self> {
        // Memory that is shared by name would be shared with the machine's own VPP.
        run_ok(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/dev/shm"]))?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let startup = Startup {
            sandboxes: SANDBOXES,
            runtime_dir: folder.to_owned(),
            log: Some(folder.join("vpp.log")),
            plugin_path: installed.plugins.clone(),
            poll_sleep_usec: Some(SLEEP),
            ..Startup::default()
        };
        let configuration = folder.join("startup.conf");
        fs::write(&configuration, startup.render()?)?;
        let output = fs::File::create(folder.join("output"))?;
        let child = Command::new(&installed.program)
            .arg("-c")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", installed.program.display()))?;
        let mut vpp = Self {
            child,
            socket: startup.api_socket(),
        };
        poll("VPP to listen", PATIENCE, || {
            let ended = vpp.child.try_wait()?;
            let said = fs::read_to_string(folder.join("output")).unwrap_or_default();
            ensure!(ended.is_none(), "VPP ended, having said: {said}");
            Ok(vpp.socket.exists().then_some(()))
        })?;
        Ok(vpp)
    }

    /// Its API socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Vpp {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
