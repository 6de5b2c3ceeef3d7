//! Logs: for people on a terminal, JSON lines otherwise.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// Libraries that carry requests after secrets were written into them, and log their heads in
/// detail. Whatever the filter says, nothing of them is logged below `info`.
const CARRIERS: [&str; 5] = ["h2", "hyper", "hyper_util", "rustls", "tokio_rustls"];

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
    let shown = parsed.and(filter_fn(may_be_shown));
    let layer = fmt::layer().with_writer(std::io::stderr);
    // A second call in one process, as tests make, leaves the first log in place.
    let registry = tracing_subscriber::registry();
    let started = if std::io::stderr().is_terminal() {
        let layer = layer.with_target(false).with_filter(shown);
        registry.with(layer).try_init()
    } else {
        let layer = layer.json().flatten_event(true).with_filter(shown);
        registry.with(layer).try_init()
    };
    drop(started);
    Ok(())
}

fn may_be_shown(event: &Metadata<'_>) -> bool {
    *event.level() <= Level::INFO || !carries_requests(event.target())
}

fn carries_requests(target: &str) -> bool {
    let library = target.split("::").next().unwrap_or(target);
    CARRIERS.contains(&library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_requests_is_known_by_its_library() {
        for target in [
            "h2",
            "h2::codec::framed_write",
            "hyper::proto::h1::io",
            "rustls::conn",
        ] {
            assert!(carries_requests(target), "{target}");
        }
        for target in ["causeway::agent", "h2o", "causeway_egress::engine", ""] {
            assert!(!carries_requests(target), "{target}");
        }
    }
}
