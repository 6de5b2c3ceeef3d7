//! A VPP of the lab's own, where one is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
pub use vpp_config::installed::Installed;
use vpp_config::startup::Startup;

use super::{poll, run_ok};

/// A whole VPP takes some seconds to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any story has.
const SANDBOXES: u32 = 64;
/// In microseconds: the lab shares its processors with everybody in it.
const SLEEP: u32 = 100;

/// Finds VPP under `VPP_PREFIX`, or on the search path; otherwise says what is missing.
pub fn find() -> Result<Installed, String> {
    Installed::find().map_err(|missing| missing.to_string())
}

/// A running VPP, which ends with this value.
#[derive(Debug)]
pub struct Vpp {
    child: Child,
    installed: Installed,
    folder: PathBuf,
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
        fs::write(folder.join("startup.conf"), startup.render()?)?;
        let mut vpp = Self {
            child: spawn(installed, folder)?,
            installed: installed.clone(),
            folder: folder.to_owned(),
        };
        vpp.await_socket()?;
        Ok(vpp)
    }

    /// The installation that it is of.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Its API socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// The lines that tell an agent to use it, for [`super::Lab::write_config`].
    pub fn section(&self) -> String {
        format!("\n[vpp]\nsocket = \"{}\"\n", self.socket().display())
    }

    /// Ends it without warning.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts another in the place of one that was killed.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        // What is left of the dead one would be taken for the living.
        let _before = fs::remove_file(self.socket());
        self.child = spawn(&self.installed, &self.folder)?;
        self.await_socket()
    }

    /// Runs a command of its debug console.
    pub fn console(&self, command: &str) -> anyhow::Result<String> {
        let mut vppctl = Command::new(self.installed.program.with_file_name("vppctl"));
        vppctl.arg("-s").arg(self.folder.join("cli.sock"));
        run_ok(vppctl.args(command.split(' ')))
    }

    fn await_socket(&mut self) -> anyhow::Result<()> {
        poll("VPP to listen", PATIENCE, || {
            let ended = self.child.try_wait()?;
            let said = fs::read_to_string(self.folder.join("output")).unwrap_or_default();
            ensure!(ended.is_none(), "VPP ended, having said: {said}");
            Ok(self.socket().exists().then_some(()))
        })
    }
}

fn spawn(installed: &Installed, folder: &Path) -> anyhow::Result<Child> {
    let output = fs::File::create(folder.join("output"))?;
    Command::new(&installed.program)
        .arg("-c")
        .arg(folder.join("startup.conf"))
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {}", installed.program.display()))
}

impl Drop for Vpp {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
