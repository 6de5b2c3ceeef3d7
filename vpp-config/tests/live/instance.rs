//! A VPP that runs for one test, in a network namespace of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use vpp_config::installed::Installed;
use vpp_config::startup::Startup;
use vpp_config::{Client, Needs, Options};

/// A running VPP. It ends with the value.
pub(crate) struct Vpp {
    process: Child,
    folder: TempDir,
    pub(crate) startup: Startup,
}

/// Starts a VPP, or writes down why not.
pub(crate) fn start() -> Option<Vpp> {
    start_with(|_| {})
}

/// The same, configured differently.
pub(crate) fn start_with(change: impl FnOnce(&mut Startup)) -> Option<Vpp> {
    let skip = |reason: &str| {
        causeway_testing::skip(&causeway_testing::test_name(), reason);
        None
    };
    let installed = match Installed::find() {
        Ok(installed) => installed,
        Err(missing) => return skip(&missing.to_string()),
    };
    if !nix::unistd::geteuid().is_root() {
        return skip("VPP has to be started by root");
    }
    // Short, since the kernel limits the paths of sockets.
    let folder = tempfile::Builder::new()
        .prefix("vc")
        .tempdir_in("/tmp")
        .unwrap();
    let mut startup = Startup {
        sandboxes: 100,
        runtime_dir: folder.path().into(),
        log: Some(folder.path().join("log")),
        plugin_path: installed.plugins,
        plugins: PLUGINS.map(ToOwned::to_owned).to_vec(),
        ..Startup::default()
    };
    change(&mut startup);
    fs::write(folder.path().join("conf"), startup.render().unwrap()).unwrap();
    let process = spawn(&installed.program, folder.path());
    Some(Vpp {
        process,
        folder,
        startup,
    })
}

/// What the messages need that no sandbox does.
const PLUGINS: [&str; 9] = [
    "abf",
    "acl",
    "mss_clamp",
    "npt66",
    "ping",
    "policer",
    "tap",
    "tracedump",
    "urpf",
];

fn spawn(program: &Path, folder: &Path) -> Child {
    let output = fs::File::create(folder.join("out")).unwrap();
    Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .arg("-c")
        .arg(folder.join("conf"))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .expect("util-linux is installed")
}

impl Vpp {
    /// A client, as soon as VPP answers.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(Options::default()).await
    }

    pub(crate) async fn client_with(&self, options: Options) -> Client {
        let client = Client::start(self.startup.api_socket(), options, Needs::new());
        let connection = client.connected(Duration::from_secs(60)).await;
        assert!(connection.is_some(), "{}", self.output());
        client
    }

    pub(crate) fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("VPP said:\n{}\n{}", read("out"), read("log"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether a plugin is installed.
    pub(crate) fn has_plugin(&self, name: &str) -> bool {
        let folder = self.startup.plugin_path.as_ref();
        folder.is_none_or(|folder| folder.join(format!("{name}_plugin.so")).exists())
    }

    /// Sends VPP a signal.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Runs a command in VPP's network namespace.
    pub(crate) fn in_namespace(&self, command: &[&str]) {
        let status = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.process.id()))
            .args(command)
            .status()
            .expect("util-linux is installed");
        assert!(status.success(), "{command:?}");
    }

    /// Ends VPP as a crash does, and starts it again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let program = Installed::find().unwrap().program;
        self.process = spawn(&program, self.folder.path());
    }
}

impl Drop for Vpp {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}
