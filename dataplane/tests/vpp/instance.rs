//! A VPP of a test's own, in the network namespace of the thread that starts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vpp_config::installed::Installed;

const PATIENCE: Duration = Duration::from_secs(20);

/// Finds VPP, or says what is missing.
pub(crate) fn find() -> Result<Installed, String> {
    Installed::find().map_err(|missing| missing.to_string())
}

/// What a VPP has room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    heap: &'static str,
    statseg: &'static str,
}

impl Room {
    /// A few sandboxes.
    pub(crate) const FEW: Self = Self {
        heap: "256M",
        statseg: "32M",
    };
    /// A heap of which little more is left than VPP needs to start: it keeps 32 MB, and 30 more
    /// for the first bridge.
    pub(crate) const LITTLE_HEAP: Self = Self {
        heap: "84M",
        ..Self::FEW
    };
    /// A stats segment of which little is left once VPP runs.
    pub(crate) const FEW_COUNTERS: Self = Self {
        statseg: "1750K",
        ..Self::FEW
    };
    /// Thousands.
    pub(crate) const MANY: Self = Self {
        heap: "1G",
        statseg: "128M",
    };
}

/// A running VPP. It ends with this value, and with the thread that started it.
pub(crate) struct Instance {
    child: Child,
    directory: PathBuf,
    installed: Installed,
    room: Room,
}

impl Instance {
    /// Starts a VPP with its sockets in `directory`, and waits until it listens.
    pub(crate) fn start(directory: &str) -> Self {
        Self::start_with(directory, Room::FEW)
    }

    /// Starts one with so much room.
    pub(crate) fn start_with(directory: &str, room: Room) -> Self {
        let installed = find().unwrap();
        let directory = PathBuf::from(directory);
        fs::create_dir_all(&directory).unwrap();
        let child = spawn(&installed, &directory, room);
        let mut instance = Self {
            child,
            directory,
            installed,
            room,
        };
        instance.await_socket();
        instance
    }

    /// The API socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The socket of its counters.
    pub(crate) fn stats(&self) -> PathBuf {
        self.directory.join("stats.sock")
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts another in its place.
    pub(crate) fn restart(&mut self) {
        let _gone = fs::remove_file(self.socket());
        self.child = spawn(&self.installed, &self.directory, self.room);
        self.await_socket();
    }

    /// Runs a command of its debug console.
    pub(crate) fn ctl(&self, command: &str) -> String {
        let program = self.installed.program.with_file_name("vppctl");
        let output = Command::new(program)
            .arg("-s")
            .arg(self.directory.join("cli.sock"))
            .args(command.split(' '))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn await_socket(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.socket().exists() {
            let log = fs::read_to_string(self.directory.join("out.log")).unwrap_or_default();
            assert!(self.child.try_wait().unwrap().is_none(), "VPP ended: {log}");
            assert!(Instant::now() < deadline, "VPP does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // One that ended by itself is as good.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Writes a start-up configuration for a VPP with its sockets in `directory`.
pub(crate) fn configure(installed: &Installed, directory: &Path, room: Room) -> PathBuf {
    let own = |name: &str| directory.join(name).display().to_string();
    let plugins = installed
        .plugins
        .as_ref()
        .map_or_else(String::new, |path| format!("path {}", path.display()));
    let enabled = ["af_packet", "memif", "ping", "vhost"]
        .map(|name| format!("plugin {name}_plugin.so {{ enable }}"))
        .join(" ");
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}-{}", std::process::id());
    let text = format!(
        "unix {{ nodaemon runtime-dir {} cli-listen {} poll-sleep-usec 100 }}\n\
         api-segment {{ prefix {prefix} }}\n\
         socksvr {{ socket-name {} }}\n\
         statseg {{ socket-name {} size {} update-interval 0.5 }}\n\
         memory {{ main-heap-size {} main-heap-page-size 4k }}\n\
         buffers {{ buffers-per-numa 8192 page-size 4k }}\n\
         physmem {{ max-size 128M }}\n\
         plugins {{ {plugins} plugin default {{ disable }} {enabled} }}\n",
        directory.display(),
        own("cli.sock"),
        own("api.sock"),
        own("stats.sock"),
        room.statseg,
        room.heap,
    );
    let file = own("startup.conf");
    fs::write(&file, text).unwrap();
    file.into()
}

fn spawn(installed: &Installed, directory: &Path, room: Room) -> Child {
    let file = configure(installed, directory, room);
    let log = fs::File::create(directory.join("out.log")).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(&installed.program)
        .arg("-c")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
