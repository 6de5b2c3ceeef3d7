//! Where records go: a file, and the agent.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use super::AuditRecord;
use crate::metrics::Metrics;

/// Records that wait for the file. More are dropped and counted, so that a slow disk stops
/// nobody.
const FILE_QUEUE: usize = 16 * 1024;
/// Records that wait for the agent.
const EVENT_QUEUE: usize = 4096;
/// How often the writer looks whether the file was moved away.
const ROTATION_CHECK: Duration = Duration::from_secs(1);
/// After a write, records gather for this long: under load one write carries many. A machine
/// that loses power loses more than that, whatever is waited for here.
const PAUSE: Duration = Duration::from_millis(5);
/// Lines are written together up to this many bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// Takes records from everywhere and never waits.
#[derive(Debug, Clone)]
pub(crate) struct AuditLog {
    file: Option<SyncSender<Arc<AuditRecord>>>,
    events: broadcast::Sender<Arc<AuditRecord>>,
    metrics: Arc<Metrics>,
}

impl AuditLog {
    /// A log that writes to `path`, when there is one. The writer must be run on a thread.
    pub(crate) fn open(
        path: Option<&Path>,
        metrics: Arc<Metrics>,
    ) -> io::Result<(Self, Option<AuditWriter>)> {
        let (events, _none_yet) = broadcast::channel(EVENT_QUEUE);
        let (file, writer) = match path {
            None => (None, None),
            Some(path) => {
                let (sender, receiver) = sync_channel(FILE_QUEUE);
                let writer = AuditWriter::open(path, receiver, Arc::clone(&metrics))?;
                (Some(sender), Some(writer))
            }
        };
        let log = Self {
            file,
            events,
            metrics,
        };
        Ok((log, writer))
    }

    /// Notes one decision.
    pub(crate) fn record(&self, record: AuditRecord) {
        self.metrics.decided(record.protocol, record.decision);
        let followed = self.events.receiver_count() > 0;
        if self.file.is_none() && !followed {
            return;
        }
        let record = Arc::new(record);
        if let Some(file) = &self.file
            && file.try_send(Arc::clone(&record)).is_err()
        {
            self.metrics.audit_dropped.add(1);
        }
        if followed {
            // Whoever followed may just have gone.
            drop(self.events.send(record));
        }
    }

    /// Every record from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<AuditRecord>> {
        self.events.subscribe()
    }
}

/// Appends records to a file, and opens it anew when it was moved away.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    path: PathBuf,
    file: File,
    checked: Instant,
    records: Receiver<Arc<AuditRecord>>,
    metrics: Arc<Metrics>,
}

impl AuditWriter {
    fn open(
        path: &Path,
        records: Receiver<Arc<AuditRecord>>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: open_append(path)?,
            checked: Instant::now(),
            records,
            metrics,
        })
    }

    /// The open file, so that it can be given to another owner before privileges are dropped.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes until every [`AuditLog`] is gone.
    pub(crate) fn run(mut self) {
        let mut lines = Vec::with_capacity(BATCH_BYTES);
        while let Ok(first) = self.records.recv() {
            lines.clear();
            let mut count = append_line(&mut lines, &first);
            while lines.len() < BATCH_BYTES
                && let Ok(record) = self.records.try_recv()
            {
                count += append_line(&mut lines, &record);
            }
            self.reopen_when_moved();
            if let Err(error) = self.file.write_all(&lines) {
                self.metrics.audit_dropped.add(count);
                tracing::error!(path = %self.path.display(), %error, "audit records were lost");
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn reopen_when_moved(&mut self) {
        if self.checked.elapsed() < ROTATION_CHECK {
            return;
        }
        self.checked = Instant::now();
        let same = match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(open)) => named.ino() == open.ino() && named.dev() == open.dev(),
            _ => false,
        };
        if same {
            return;
        }
        match open_append(&self.path) {
            Ok(file) => self.file = file,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error,
                    "the audit log was moved and cannot be opened anew: going on with the old file");
            }
        }
    }
}

fn append_line(lines: &mut Vec<u8>, record: &AuditRecord) -> u64 {
    let start = lines.len();
    if let Err(error) = serde_json::to_writer(&mut *lines, record) {
        lines.truncate(start);
        tracing::error!(%error, "an audit record cannot be written");
        return 0;
    }
    lines.push(b'\n');
    1
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::SystemTime;

    use causeway_types::Generation;

    use super::super::{Outcome, Protocol};
    use super::*;

    fn record(generation: u64) -> AuditRecord {
        AuditRecord::new(
            SystemTime::now(),
            Generation(generation),
            Ipv6Addr::LOCALHOST,
            None,
            Protocol::Tcp,
            Outcome::Deny,
        )
    }

    fn generations(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| {
                serde_json::from_str::<AuditRecord>(line)
                    .unwrap()
                    .generation
                    .0
            })
            .collect()
    }

    #[test]
    fn records_are_lines_and_survive_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit"), folder.path().join("audit.1"));
        let metrics = Arc::new(Metrics::default());
        let (log, writer) = AuditLog::open(Some(&path), metrics).unwrap();
        let mut writer = writer.unwrap();
        log.record(record(1));
        std::fs::rename(&path, &moved).unwrap();
        writer.checked = Instant::now().checked_sub(2 * ROTATION_CHECK).unwrap();
        log.record(record(2));
        drop(log);
        writer.run();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "");
        assert_eq!(generations(&path), [1, 2]);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Arc::new(Metrics::default());
        let path = folder.path().join("audit");
        let (log, writer) = AuditLog::open(Some(&path), Arc::clone(&metrics)).unwrap();
        for generation in 0..FILE_QUEUE as u64 + 3 {
            log.record(record(generation));
        }
        drop(log);
        writer.unwrap().run();
        assert_eq!(metrics.audit_dropped.get(), 3);
        assert_eq!(generations(&path).len(), FILE_QUEUE);
    }
}
