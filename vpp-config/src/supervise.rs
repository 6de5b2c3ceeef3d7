//! Keeps a VPP running: starts one where none listens, and another when it ended or hangs.
//!
//! A VPP that runs is taken as it is, whoever started it, and stays when its supervisor goes: it is
//! found again by its socket.

mod process;

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::connection::{ConnectError, PeerProcess};
use crate::{Client, Status};
use process::Process;

/// How often is looked whether it lives.
const LOOK: Duration = Duration::from_millis(100);
/// How long it may take to listen.
const START: Duration = Duration::from_secs(60);
/// One that lived this long is started again at once.
const HEALTHY: Duration = Duration::from_secs(60);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How a VPP is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub program: PathBuf,
    /// Its start-up configuration.
    pub startup: PathBuf,
    /// The API socket that the configuration names.
    pub socket: PathBuf,
    /// The file that its output is appended to.
    pub log: PathBuf,
}

/// A VPP could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its output has no place.
    #[error("the log {} cannot be opened", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The program does not start.
    #[error("{} cannot be started", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended before it listened.
    #[error("VPP ended at its start ({status}): {} says why", log.display())]
    Ended {
        /// How.
        status: ExitStatus,
        /// Where its output is.
        log: PathBuf,
    },
    /// It did not listen in time, and was ended.
    #[error("VPP did not listen on {} within {START:?}", socket.display())]
    Silent {
        /// The socket.
        socket: PathBuf,
    },
}

/// Keeps one VPP running for as long as this value lives. VPP outlives it.
#[derive(Debug)]
pub struct Supervisor {
    task: AbortHandle,
    hangs: Arc<Notify>,
}

impl Supervisor {
    /// Begins. A VPP that `client` does not reach for `patience` although its socket is there hangs,
    /// and is ended.
    pub fn start(program: Program, client: Client, patience: Duration) -> Self {
        let hangs = Arc::new(Notify::new());
        let task = tokio::spawn(keep(program, client, patience, Arc::clone(&hangs)));
        Self {
            task: task.abort_handle(),
            hangs,
        }
    }

    /// Says that VPP hangs: it is ended, and another started.
    pub fn hangs(&self) {
        self.hangs.notify_one();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends the VPP that listens on a socket, if there is one.
pub async fn end(socket: &std::path::Path) -> io::Result<()> {
    match PeerProcess::listening(socket).await.map(Process::open) {
        Some(Ok(process)) => {
            process.kill();
            ended(&process).await;
            Ok(())
        }
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Some(Err(_)) | None => Ok(()),
    }
}

async fn keep(program: Program, client: Client, patience: Duration, hangs: Arc<Notify>) {
    let mut backoff = Duration::ZERO;
    loop {
        let begun = Instant::now();
        match obtain(&program).await {
            Ok(process) => {
                tokio::select! {
                    () = ended(&process) => tracing::error!("VPP ended"),
                    () = unreachable(&client, patience) => {
                        tracing::error!("VPP is not reached for {patience:?}: it is ended");
                        process.kill();
                    }
                    () = hangs.notified() => {
                        tracing::error!("VPP hangs: it is ended");
                        process.kill();
                    }
                }
                ended(&process).await;
            }
            Err(error) => {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, ?why, "VPP is not started");
            }
        }
        if begun.elapsed() > HEALTHY {
            backoff = Duration::ZERO;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).clamp(FIRST_BACKOFF, MAX_BACKOFF);
    }
}

async fn ended(process: &Process) {
    while process.is_alive() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Completes when VPP was not reached for this long. One that answers, but lacks what is needed, is
/// reached: another would not be better.
async fn unreachable(client: &Client, patience: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < patience {
        tokio::time::sleep(LOOK).await;
        let reached = match &*client.status().borrow() {
            Status::Connected { .. } => true,
            Status::Failed { error, .. } => matches!(
                **error,
                ConnectError::Missing { .. } | ConnectError::Refused { .. }
            ),
            Status::Closed { .. } | Status::Starting => false,
        };
        if reached {
            since = Instant::now();
        }
    }
}

/// The VPP that runs, or a new one.
async fn obtain(program: &Program) -> Result<Process, StartError> {
    if let Some(process) = running(program).await {
        tracing::info!(pid = process.pid(), "VPP runs already");
        return Ok(process);
    }
    let mut child = spawn(program)?;
    let deadline = Instant::now() + START;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(process) = running(program).await {
            tracing::info!(pid = process.pid(), "VPP was started");
            return Ok(process);
        }
        // One that goes into the background by itself has ended well.
        if let Ok(Some(status)) = child.try_wait()
            && !status.success()
        {
            return Err(StartError::Ended {
                status,
                log: program.log.clone(),
            });
        }
        if Instant::now() > deadline {
            // It fails only when the process is gone already.
            let _gone = child.start_kill();
            return Err(StartError::Silent {
                socket: program.socket.clone(),
            });
        }
    }
}

async fn running(program: &Program) -> Option<Process> {
    let peer = PeerProcess::listening(&program.socket).await?;
    Process::open(peer).ok()
}

/// Starts one in a process group of its own, so that what ends the supervisor's terminal does not
/// end it. The runtime reaps it when it ends.
fn spawn(program: &Program) -> Result<Child, StartError> {
    let log = |source| StartError::Log {
        path: program.log.clone(),
        source,
    };
    let output = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&program.log)
        .map_err(log)?;
    Command::new(&program.program)
        .arg("-c")
        .arg(&program.startup)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(log)?)
        .stderr(output)
        .current_dir("/")
        .process_group(0)
        .kill_on_drop(false)
        .spawn()
        .map_err(|source| StartError::Spawn {
            program: program.program.clone(),
            source,
        })
}
