//! VPP's start-up configuration, sized from what a node is for.
//!
//! VPP allocates its heap, its buffers and its stats segment once, and aborts when one of them runs
//! out. [`Startup::render`] works their sizes out and writes the reasons beside them.

mod render;
pub mod share;
mod sizes;

use std::path::PathBuf;

use thiserror::Error;

pub use sizes::Sizes;

/// What a node's VPP is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    /// How many sandboxes there may be at a time.
    pub sandboxes: u32,
    /// The core of the main thread. Without one, VPP chooses.
    pub main_core: Option<u16>,
    /// The cores of the workers, one worker each.
    pub worker_cores: Vec<u16>,
    /// How many workers there are, where their cores are VPP's choice.
    pub workers: u16,
    /// The huge pages that are set aside for VPP, if any.
    pub hugepages: Option<HugePages>,
    /// Network cards that VPP takes from the kernel.
    pub dpdk: Vec<DpdkDevice>,
    /// Plugins besides [`PLUGINS`], by name: `lcp` for `lcp_plugin.so`.
    pub plugins: Vec<String>,
    /// Where plugins are, if not where VPP was installed.
    pub plugin_path: Option<PathBuf>,
    /// Where the sockets are.
    pub runtime_dir: PathBuf,
    /// The group that may use the sockets.
    pub group: Option<String>,
    /// Where VPP writes its log. Without a place, to the system's log.
    pub log: Option<PathBuf>,
    /// How long the main thread sleeps between looks at what it polls, in microseconds. It saves a
    /// core where there are no workers, and adds as much latency.
    pub poll_sleep_usec: Option<u32>,
}

impl Default for Startup {
    fn default() -> Self {
        Self {
            sandboxes: 1000,
            main_core: None,
            worker_cores: Vec::new(),
            workers: 0,
            hugepages: None,
            dpdk: Vec::new(),
            plugins: Vec::new(),
            plugin_path: None,
            runtime_dir: "/run/vpp".into(),
            group: None,
            log: None,
            poll_sleep_usec: None,
        }
    }
}

/// The size of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// 2 MB.
    Mb2,
    /// 1 GB.
    Gb1,
}

impl HugePages {
    fn bytes(self) -> u64 {
        match self {
            HugePages::Mb2 => 2 << 20,
            HugePages::Gb1 => 1 << 30,
        }
    }

    /// As VPP and the kernel write it.
    fn name(self) -> &'static str {
        match self {
            HugePages::Mb2 => "2M",
            HugePages::Gb1 => "1G",
        }
    }
}

/// A network card that VPP drives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkDevice {
    /// Its address on the bus: `0000:3b:00.0`.
    pub pci: String,
    /// What VPP calls it.
    pub name: Option<String>,
    /// How many receive queues it has. Zero is one for each thread that forwards.
    pub rx_queues: u16,
}

/// The plugins that attach sandboxes. All others stay unloaded: each adds messages, memory, and
/// ways for packets to go.
pub const PLUGINS: &[&str] = &["af_packet", "memif", "vhost"];

/// A node cannot be configured like this.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StartupError {
    /// VPP splits its configuration at spaces and braces, and has no way to quote them.
    #[error("{field} is empty, or has a character that VPP's configuration cannot hold: {value:?}")]
    Text {
        /// What it is for.
        field: &'static str,
        /// The text.
        value: String,
    },
    /// A folder is relative to where VPP happens to start.
    #[error("{field} is not an absolute path: {value:?}")]
    Relative {
        /// What it is for.
        field: &'static str,
        /// The path.
        value: String,
    },
    /// The kernel takes socket paths of up to 107 bytes.
    #[error("sockets in {folder:?} would have paths of {len} bytes, where 107 are allowed")]
    SocketPath {
        /// The folder.
        folder: String,
        /// The length of the longest path.
        len: usize,
    },
    /// The address of a card is not as the kernel writes it.
    #[error("{value:?} is not the address of a PCI device, such as 0000:3b:00.0")]
    Pci {
        /// The address.
        value: String,
    },
    /// Two threads would share a core, and stop each other.
    #[error("core {core} is given to two threads")]
    Core {
        /// The core.
        core: u16,
    },
    /// Both a number of workers and their cores are given, and do not agree.
    #[error("{workers} workers on {cores} cores")]
    Workers {
        /// The number of workers.
        workers: u16,
        /// The number of cores.
        cores: usize,
    },
    /// Cards write into memory whose place must not change.
    #[error("DPDK devices need huge pages")]
    HugePages,
}

impl Startup {
    /// The configuration.
    pub fn render(&self) -> Result<String, StartupError> {
        self.check()?;
        Ok(render::render(self, &self.sizes()))
    }

    /// The sizes in it.
    pub fn sizes(&self) -> Sizes {
        sizes::of(self)
    }

    /// Where the API's socket is.
    pub fn api_socket(&self) -> PathBuf {
        self.runtime_dir.join("api.sock")
    }

    /// Where the socket of the counters is.
    pub fn stats_socket(&self) -> PathBuf {
        self.runtime_dir.join("stats.sock")
    }

    /// How many workers there are.
    fn worker_count(&self) -> u16 {
        match self.worker_cores.len() {
            0 => self.workers,
            // Cores are numbered with 16 bits, and none is given twice.
            cores => u16::try_from(cores).unwrap_or(u16::MAX),
        }
    }

    fn check(&self) -> Result<(), StartupError> {
        folder("the runtime folder", &self.runtime_dir)?;
        let len = self.stats_socket().as_os_str().len();
        if len > 107 {
            return Err(StartupError::SocketPath {
                folder: self.runtime_dir.display().to_string(),
                len,
            });
        }
        for (field, path) in [
            ("the plugin folder", &self.plugin_path),
            ("the log file", &self.log),
        ] {
            path.as_deref().map_or(Ok(()), |path| folder(field, path))?;
        }
        for plugin in &self.plugins {
            word("a plugin", plugin)?;
        }
        if let Some(group) = &self.group {
            word("the group", group)?;
        }
        self.check_cores()?;
        self.check_devices()
    }

    fn check_cores(&self) -> Result<(), StartupError> {
        let cores = self.worker_cores.len();
        if cores != 0 && self.workers != 0 && usize::from(self.workers) != cores {
            return Err(StartupError::Workers {
                workers: self.workers,
                cores,
            });
        }
        let mut taken: Vec<_> = self.main_core.into_iter().collect();
        for core in &self.worker_cores {
            if taken.contains(core) {
                return Err(StartupError::Core { core: *core });
            }
            taken.push(*core);
        }
        Ok(())
    }

    fn check_devices(&self) -> Result<(), StartupError> {
        if !self.dpdk.is_empty() && self.hugepages.is_none() {
            return Err(StartupError::HugePages);
        }
        for device in &self.dpdk {
            if !is_pci(&device.pci) {
                return Err(StartupError::Pci {
                    value: device.pci.clone(),
                });
            }
            if let Some(name) = &device.name {
                word("a device's name", name)?;
            }
        }
        Ok(())
    }
}

fn folder(field: &'static str, path: &std::path::Path) -> Result<(), StartupError> {
    let value = path.display().to_string();
    if !path.is_absolute() {
        return Err(StartupError::Relative { field, value });
    }
    word(field, &value)
}

fn word(field: &'static str, value: &str) -> Result<(), StartupError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-:@+".contains(c);
    if value.is_empty() || !value.chars().all(fits) {
        return Err(StartupError::Text {
            field,
            value: value.to_owned(),
        });
    }
    Ok(())
}

/// `DDDD:BB:SS.F`
fn is_pci(text: &str) -> bool {
    let is_hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let mut parts = text.split([':', '.']);
    let lengths = [4, 2, 2, 1];
    text.len() == 12
        && text.as_bytes()[4] == b':'
        && text.as_bytes()[7] == b':'
        && text.as_bytes()[10] == b'.'
        && lengths
            .into_iter()
            .all(|len| parts.next().is_some_and(|part| is_hex(part, len)))
}

#[cfg(test)]
mod tests;
