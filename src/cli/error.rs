//! Why a command failed.

use std::path::PathBuf;

use crate::agent::{ProcessError, StartError};
use crate::client::ClientError;
use crate::config::ConfigError;
use crate::logging::LogFilterError;
use crate::node::NodeError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The agent refused, or could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log level is wrong.
    #[error(transparent)]
    Log(#[from] LogFilterError),
    /// VPP cannot be configured like that.
    #[error(transparent)]
    Startup(#[from] vpp_config::startup::StartupError),
    /// The machine is not as needed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The agent did not come up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A file cannot be read.
    #[error("the file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file is larger than any policy.
    #[error("the file {} has more than {max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
    /// The policy file has errors, already drawn.
    #[error("{drawn}")]
    Policy {
        /// The errors, with the lines that they are about.
        drawn: String,
        /// The errors, for programs.
        problems: serde_json::Value,
    },
    /// Cases of a policy test do not hold.
    #[error("cases that do not hold: {failed}")]
    Cases {
        /// How many.
        failed: usize,
    },
    /// Two files have a document of one name.
    #[error("`{name}` is in these files twice")]
    PolicyTwice {
        /// The document.
        name: String,
    },
    /// A secret came from a terminal.
    #[error("the value of a secret is read from standard input, and that is a terminal")]
    SecretFromTerminal,
    /// A secret's value cannot be used.
    #[error(transparent)]
    SecretValue(#[from] crate::secrets::SecretValueError),
    /// Standard input failed.
    #[error("standard input cannot be read")]
    Input(#[source] std::io::Error),
    /// Standard output failed.
    #[error("the result cannot be printed")]
    Output(#[source] std::io::Error),
    /// The result has no JSON form.
    #[error("the result cannot be printed as JSON")]
    Json(#[source] serde_json::Error),
    /// The runtime cannot be started.
    #[error("the runtime cannot be started")]
    Runtime(#[source] std::io::Error),
    /// The API cannot be served.
    #[error("the API cannot be served")]
    Serve(#[source] std::io::Error),
    /// Signals cannot be waited for.
    #[error("signals cannot be waited for")]
    Signal(#[source] std::io::Error),
    /// A limit of this process cannot be set.
    #[error("core dumps cannot be switched off")]
    CoreDumps(#[source] nix::Error),
    /// The proxy failed.
    #[error("the egress proxy failed")]
    Egress(#[from] causeway_egress::ProxyError),
    /// The demo failed.
    #[error("the demo could not be run: {0:#}")]
    Demo(anyhow::Error),
    /// A running agent did not stop.
    #[error("the agent, process {pid}, does not stop")]
    AgentStays {
        /// Its process.
        pid: String,
    },
    /// The proxy did not stop.
    #[error(transparent)]
    Proxy(#[from] ProcessError),
    /// The dataplane could not be taken down.
    #[error("the dataplane could not be removed")]
    Teardown(#[source] causeway_dataplane::BackendError),
    /// The uplink's name is not one.
    #[error("`uplink.interface` cannot be used")]
    Interface(#[from] causeway_dataplane::desired::InterfaceNameError),
}

impl CliError {
    /// What to do about it.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Client(error) => error.help(),
            Self::Node(error) => Some(error.help()),
            Self::Start(error) => error.help(),
            Self::Config(_) => Some("correct the configuration; nothing was changed".to_owned()),
            Self::SecretFromTerminal => Some(
                "pipe it in, so that it is neither shown nor kept in the shell's history: \
                 `causeway secret set NAME --tenant T < FILE`"
                    .to_owned(),
            ),
            Self::AgentStays { pid } => Some(format!("end it with `kill -9 {pid}`, and try again")),
            Self::Teardown(_) => Some("try again; what is left is named above".to_owned()),
            _ => None,
        }
    }

    /// A word for programs.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Client(ClientError::Refused { error, .. }) => &error.code,
            Self::Client(ClientError::Connect { .. }) => "no_agent",
            Self::Client(ClientError::Silent { .. }) => "silent_agent",
            Self::Policy { .. } | Self::PolicyTwice { .. } => "policy_invalid",
            Self::Cases { .. } => "cases_failed",
            Self::Config(_) => "config_invalid",
            Self::Node(NodeError::AlreadyRunning { .. }) => "already_running",
            _ => "failed",
        }
    }

    /// More of it.
    pub(crate) fn details(&self) -> Option<serde_json::Value> {
        match self {
            Self::Client(ClientError::Refused { error, .. }) => error.details.clone(),
            Self::Policy { problems, .. } => Some(problems.clone()),
            _ => None,
        }
    }
}
