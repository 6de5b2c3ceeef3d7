//! Where everything is measured: a host with an internet, an agent, a dataplane of our own.
//! Each is made when a measurement first asks for it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use causeway::client::Client;
use causeway::config::Config;
use causeway::lab::Lab;
use tokio::runtime::{Handle, Runtime};

use crate::agent::Agent;
use crate::dataplane::OwnDataplane;

/// The place.
#[derive(Debug)]
pub(crate) struct World {
    runtime: Runtime,
    lab: Lab,
    hudsucker: Result<PathBuf, String>,
    sandboxes: usize,
    agent: Option<Agent>,
    dataplane: Option<OwnDataplane>,
}

impl World {
    /// Sets up the host and the internet, with all files in `folder`, which is on a disk.
    /// `hudsucker` is that peer's program, or why there is none; `sandboxes` are on a full node.
    pub(crate) fn set_up(
        folder: &Path,
        hudsucker: Result<PathBuf, String>,
        sandboxes: usize,
    ) -> anyhow::Result<Self> {
        let binary = std::env::current_exe()?.with_file_name("causeway");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let lab = Lab::set_up_in(&binary, folder)?;
        Ok(Self {
            runtime,
            lab,
            hudsucker,
            sandboxes,
            agent: None,
            dataplane: None,
        })
    }

    /// Where files go.
    pub(crate) fn folder(&self) -> &Path {
        &self.lab.folder
    }

    /// The host, its internet and its agent's process.
    pub(crate) fn lab(&mut self) -> &mut Lab {
        &mut self.lab
    }

    /// How many sandboxes a full node has.
    pub(crate) fn sandboxes(&self) -> usize {
        self.sandboxes
    }

    /// The program of the peer hudsucker, or why there is none.
    pub(crate) fn hudsucker(&self) -> Result<&Path, &str> {
        self.hudsucker.as_deref().map_err(String::as_str)
    }

    /// Lets the agent's proxy trust one more root. Only before the agent starts.
    pub(crate) fn trust(&self, root_pem: &str) -> anyhow::Result<()> {
        let path = self.lab.folder.join("internet-root.pem");
        let roots = fs::read_to_string(&path)?;
        Ok(fs::write(&path, format!("{roots}{root_pem}"))?)
    }

    /// The agent, started when it does not run yet.
    pub(crate) fn agent(&mut self) -> anyhow::Result<Agent> {
        if let Some(agent) = &self.agent {
            return Ok(agent.clone());
        }
        self.lab.start_agent().context("cannot start the agent")?;
        let config = Config::load(Some(&self.lab.config()))?;
        let client = Client::new(&config.api_socket());
        let agent = Agent::new(client, self.runtime.handle().clone())?;
        Ok(self.agent.insert(agent).clone())
    }

    /// Where calls are waited for.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// A dataplane without agent, in a router namespace of its own.
    pub(crate) fn dataplane(&mut self) -> anyhow::Result<&mut OwnDataplane> {
        if self.dataplane.is_none() {
            self.dataplane = Some(OwnDataplane::open(self.runtime.handle().clone())?);
        }
        self.dataplane.as_mut().context("there is no dataplane")
    }
}
