//! `causeway up`, `causeway down` and the proxy's own process.

use std::net::SocketAddrV6;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_egress::ProxyArgs;
use causeway_types::{PROXY_PORTS, RESOLVER};
use tokio::signal::unix::{SignalKind, signal};

use super::CliError;
use super::output::Output;
use crate::agent::{self, Agent, Parts};
use crate::config::{BackendChoice, Config, Uplink};
use crate::node;

/// How long a stopping agent may take.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
const STOP_POLL: Duration = Duration::from_millis(20);
/// How long requests that are being served may take once the agent is told to stop.
const DRAIN_DEADLINE: Duration = Duration::from_secs(3);

/// How a node is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Which dataplane carries the packets.
    #[arg(long, value_enum)]
    backend: Option<BackendChoice>,
}

impl Up {
    pub(crate) fn run(self, mut config: Config) -> Result<(), CliError> {
        if let Some(backend) = self.backend {
            config.backend = backend;
        }
        node::check_privileges()?;
        node::check_programs()?;
        node::forbid_core_dumps().map_err(CliError::CoreDumps)?;
        let lock = node::claim(&config.state_dir, &config.runtime_dir)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(CliError::Runtime)?;
        let served = runtime.block_on(serve(config, lock));
        runtime.shutdown_timeout(DRAIN_DEADLINE);
        served
    }
}

async fn serve(config: Config, lock: node::NodeLock) -> Result<(), CliError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Signal)?;
    let socket = config.api_socket();
    let vpp = config.vpp();
    let parts = Parts {
        backend: Box::new(|prefixes, uplink| {
            let config = agent::kernel_config(prefixes, uplink)?;
            agent::backend(config, vpp)
        }),
        proxy: true,
        lock: Some(lock),
    };
    let starting = Agent::start(config, parts);
    let agent = tokio::select! {
        started = starting => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let listener = node::bind_socket(&socket)?;
    tracing::info!(socket = %socket.display(), "ready");
    let router = crate::api::router(Arc::clone(&agent));
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        drop(stopping.await);
    });
    let mut server = tokio::spawn(server.into_future());
    tokio::select! {
        ended = &mut server => {
            return match ended {
                Ok(served) => served.map_err(CliError::Serve),
                Err(panicked) => Err(CliError::Serve(std::io::Error::other(panicked))),
            };
        }
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    drop(stop);
    // Followers of events never end by themselves.
    if tokio::time::timeout(DRAIN_DEADLINE, server).await.is_err() {
        tracing::debug!("some requests were cut off");
    }
    // A next agent that starts meanwhile makes its own.
    if let Err(error) = std::fs::remove_file(&socket) {
        tracing::warn!(%error, "the API socket could not be removed");
    }
    agent.stop();
    tracing::info!(
        "stopped; sandboxes keep their network and the egress proxy goes on: \
         `causeway down` removes them"
    );
    Ok(())
}

/// What is removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {}

impl Down {
    pub(crate) async fn run(self, config: &Config, output: &Output) -> Result<(), CliError> {
        node::check_privileges()?;
        let progress = output.progress("removing the node");
        let done = remove(config).await;
        progress.finish_and_clear();
        done?;
        output.done(&format!(
            "removed the router, its links and rules, and the proxy; what was stored is kept in {}",
            config.state_dir.display()
        ))
    }
}

async fn remove(config: &Config) -> Result<(), CliError> {
    if let Some(pid) = node::running(&config.runtime_dir) {
        stop_agent(config, &pid).await?;
    }
    agent::end_proxy(&config.egress_socket()).await?;
    let uplink = config.uplink.clone().unwrap_or(Uplink::Masquerade);
    let prefixes = config.prefix.into_iter().collect();
    let backend = agent::backend(agent::kernel_config(prefixes, &uplink)?, config.vpp())?;
    backend.teardown().await.map_err(CliError::Teardown)?;
    for leftover in [config.egress_socket(), config.api_socket()] {
        if let Err(error) = std::fs::remove_file(&leftover)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %leftover.display(), "not removed");
        }
    }
    Ok(())
}

async fn stop_agent(config: &Config, pid: &str) -> Result<(), CliError> {
    let stays = || CliError::AgentStays {
        pid: pid.to_owned(),
    };
    let number = pid.parse().map_err(|_not_a_number| stays())?;
    let process = nix::unistd::Pid::from_raw(number);
    if let Err(error) = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM)
        && error != nix::Error::ESRCH
    {
        return Err(stays());
    }
    let deadline = Instant::now() + STOP_DEADLINE;
    while node::running(&config.runtime_dir).is_some() {
        if Instant::now() > deadline {
            return Err(stays());
        }
        tokio::time::sleep(STOP_POLL).await;
    }
    Ok(())
}

/// How the proxy is started by the agent.
#[derive(Debug, clap::Args)]
pub(crate) struct Egress {
    /// Where agents connect.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// The router's network namespace.
    #[arg(long, value_name = "FILE")]
    namespace: PathBuf,
    /// The audit log.
    #[arg(long, value_name = "FILE")]
    audit: PathBuf,
    /// What it calls its build.
    #[arg(long)]
    build: String,
}

impl Egress {
    /// Runs the proxy on this thread, before any other exists.
    pub(crate) fn run(self) -> Result<(), CliError> {
        const RESOLVER_PORT: u16 = 53;
        // In a session of its own, it outlives the terminal of the agent. The agent's child is
        // never a group leader, so that this does not fail.
        if let Err(error) = nix::unistd::setsid() {
            tracing::debug!(%error, "already in a session of its own");
        }
        let any = std::net::Ipv6Addr::UNSPECIFIED;
        let port = causeway_dataplane::kernel::PROXY_PORT;
        causeway_egress::start(ProxyArgs {
            control_socket: self.control,
            listen: SocketAddrV6::new(any, port, 0, 0),
            resolver: SocketAddrV6::new(RESOLVER, RESOLVER_PORT, 0, 0),
            explicit: PROXY_PORTS
                .map(|port| SocketAddrV6::new(RESOLVER, port, 0, 0))
                .to_vec(),
            namespace: Some(self.namespace),
            audit_path: Some(self.audit),
            user: None,
            build: self.build,
        })?;
        Ok(())
    }
}
