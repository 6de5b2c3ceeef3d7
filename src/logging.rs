//! Logs: for people on a terminal, JSON lines otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Why the log filter was refused.
#[derive(Debug, thiserror::Error)]
#[error("`{filter}` is not a log level: write error, warn, info, debug or trace")]
pub struct LogFilterError {
    /// The text, as given.
    pub filter: String,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// Sends the log of this process to standard error. `filter` is a level, or a list of
/// `target=level`.
pub fn start(filter: &str) -> Result<(), LogFilterError> {
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| LogFilterError {
            filter: filter.to_owned(),
            source,
        })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr);
    // A second call in one process, as tests make, leaves the first log in place.
    let started = if std::io::stderr().is_terminal() {
        builder.with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
    drop(started);
    Ok(())
}
