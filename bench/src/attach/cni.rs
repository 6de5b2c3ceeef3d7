//! The reference CNI plugins: ptp with host-local, called as a container runtime calls them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use causeway::lab::Namespace;

/// Where Debian's package `containernetworking-plugins` puts them.
const FOLDER: &str = "/usr/lib/cni";

/// A network configuration of ptp.
#[derive(Debug)]
pub(crate) struct Ptp {
    config: String,
}

impl Ptp {
    /// A network in `subnet` whose leases are kept below `folder`.
    pub(crate) fn new(subnet: &str, folder: &Path) -> Self {
        let config = serde_json::json!({
            "cniVersion": "1.0.0", "name": "bench", "type": "ptp", "mtu": 1500,
            "ipam": {
                "type": "host-local", "dataDir": folder.join("leases"),
                "ranges": [[{ "subnet": subnet }]],
                "routes": [{ "dst": if subnet.contains(':') { "::/0" } else { "0.0.0.0/0" } }],
            },
        });
        Self {
            config: config.to_string(),
        }
    }

    /// Why it cannot be used here, if so.
    pub(crate) fn unavailable() -> Option<String> {
        let plugins = ["ptp", "host-local"].map(|name| Path::new(FOLDER).join(name));
        let missing = plugins.iter().find(|path| !path.exists())?;
        let package = "Debian's package containernetworking-plugins";
        Some(format!(
            "{} is not there: it is in {package}",
            missing.display()
        ))
    }

    /// Wires `sandbox`.
    pub(crate) fn add(&self, sandbox: &Namespace) -> anyhow::Result<()> {
        self.call("ADD", sandbox)
    }

    /// Takes what [`Ptp::add`] made away again.
    pub(crate) fn delete(&self, sandbox: &Namespace) -> anyhow::Result<()> {
        self.call("DEL", sandbox)
    }

    fn call(&self, verb: &str, sandbox: &Namespace) -> anyhow::Result<()> {
        let mut plugin = Command::new(PathBuf::from(FOLDER).join("ptp"))
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &sandbox.name)
            .env("CNI_NETNS", sandbox.path())
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", FOLDER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = plugin
            .stdin
            .take()
            .context("the plugin has no standard input")?;
        input.write_all(self.config.as_bytes())?;
        drop(input);
        let output = plugin.wait_with_output()?;
        if !output.status.success() {
            bail!("ptp {verb}: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    }
}
