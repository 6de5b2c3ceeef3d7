//! Running programs with a deadline, and waiting for something to become true.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

/// The longest that a program of the lab may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a program ended, and what it said.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output, as text.
    pub stdout: String,
    /// Standard error, as text.
    pub stderr: String,
}

impl Finished {
    /// Whether it ended with status 0.
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// Both outputs, for a message.
    pub fn output(&self) -> String {
        let mut text = self.stdout.trim().to_owned();
        if !self.stderr.trim().is_empty() {
            let separator = if text.is_empty() { "" } else { " / " };
            let _infallible = write!(text, "{separator}{}", self.stderr.trim());
        }
        text
    }
}

/// Runs a program without standard input; an error only when it cannot be run at all or takes
/// longer than half a minute.
pub fn run(command: &mut Command) -> anyhow::Result<Finished> {
    run_with_input(command, None)
}

/// The same, with `input` on its standard input.
pub(crate) fn run_with_input(
    command: &mut Command,
    input: Option<&str>,
) -> anyhow::Result<Finished> {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        use std::io::Write as _;
        pipe.write_all(text.as_bytes())
            .context("cannot write to the program")?;
    }
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait(&mut child).with_context(|| shown(command))?;
    let joined = |reader: thread::JoinHandle<String>| {
        reader
            .join()
            .map_err(|_panic| anyhow!("a reader of the program's output panicked"))
    };
    Ok(Finished {
        status,
        stdout: joined(stdout)?,
        stderr: joined(stderr)?,
    })
}

/// Runs a program that has to succeed, and returns what it printed.
pub fn run_ok(command: &mut Command) -> anyhow::Result<String> {
    let finished = run(command)?;
    if !finished.ok() {
        bail!(
            "{} failed ({}): {}",
            shown(command),
            finished.status,
            finished.output()
        );
    }
    Ok(finished.stdout)
}

/// Asks `question` until it answers with a value or `patience` is over.
pub fn poll<T>(
    what: &str,
    patience: Duration,
    mut question: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        let last = match question() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if start.elapsed() > patience {
            let error = last.unwrap_or_else(|| anyhow!("it never became true"));
            return Err(error.context(format!("waited {patience:?} for: {what}")));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let ended = poll("the program's end", PATIENCE, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill().context("cannot end the program")?;
        child.wait().context("cannot wait for the program")?;
    }
    ended
}

fn drain(pipe: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks has said what it had to say.
            let _partial = pipe.by_ref().take(16 << 20).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
