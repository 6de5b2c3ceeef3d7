//! Whether VPP has room for another sandbox.
//!
//! VPP allocates its heap, its counters' segment and its packet buffers once, and aborts, with every
//! sandbox on it, when one of them runs out. So a sandbox that might be one too many is refused
//! before anything is made for it.
//!
//! VPP writes down how much is left every ten seconds only. Between two such moments what was
//! admitted is counted, at more than it takes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use vpp_config::startup::share;
use vpp_config::stats::{Stats, StatsError, Value};

/// What can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The main heap, in bytes.
    Heap,
    /// The segment of counters, in bytes.
    Counters,
    /// Packet buffers.
    Buffers,
}

impl Resource {
    const ALL: [Self; 3] = [Self::Heap, Self::Counters, Self::Buffers];

    /// What one sandbox is counted at, where VPP has so many threads. Too much costs room for a
    /// few sandboxes until VPP writes down what they took, too little costs VPP.
    pub const fn sandbox(self, threads: u64) -> u64 {
        match self {
            Self::Heap => share::HEAP,
            Self::Counters => share::stats(threads),
            Self::Buffers => share::BUFFERS,
        }
    }

    /// What has to be left for everything else. An estimate as well.
    pub const fn margin(self) -> u64 {
        match self {
            Self::Heap => 16 << 20,
            Self::Counters => 1 << 20,
            // One burst of each of a few interfaces.
            Self::Buffers => 1024,
        }
    }

    /// What VPP takes for the first bridge, whatever it is for: 30 MB were measured.
    const fn first(self) -> u64 {
        match self {
            Self::Heap => 32 << 20,
            Self::Counters | Self::Buffers => 0,
        }
    }

    /// The key in VPP's start-up configuration that gives more.
    const fn key(self) -> &'static str {
        match self {
            Self::Heap => "memory { main-heap-size }",
            Self::Counters => "statseg { size }",
            Self::Buffers => "buffers { buffers-per-numa }",
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heap => "heap",
            Self::Counters => "room for counters",
            Self::Buffers => "packet buffers",
        })
    }
}

/// VPP has no room for another sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "VPP is short of {resource}: {left} left, {needed} needed. Delete sandboxes, or give VPP more \
     ({}; `causeway vpp config --sandboxes N` works it out) and restart it",
    resource.key()
)]
pub struct Shortage {
    /// What is short.
    pub resource: Resource,
    /// What is left, in the resource's unit, less what was admitted since VPP wrote it down.
    pub left: u64,
    /// What has to be left for another sandbox.
    pub needed: u64,
}

/// What is left of each resource; none of one that VPP does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    heap: Option<u64>,
    counters: Option<u64>,
    buffers: Option<u64>,
    /// Threads besides the main one.
    workers: u64,
    /// Interfaces that went, whose counters others will have: the segment does not shrink.
    spare: u64,
}

impl Gauges {
    /// Reads them.
    pub(super) fn read(stats: &Stats) -> Result<Self, StatsError> {
        let free = |name: &str| Ok::<_, StatsError>(stats.get(name)?.map(|value| value.total(0)));
        let pools = stats
            .read(|name| name.starts_with("/buffer-pools/") && name.ends_with("/available"))?;
        Ok(Self {
            heap: free("/mem/main heap/free")?,
            counters: free("/mem/stat segment/free")?,
            // The poorest: which one an interface takes from depends on its thread.
            buffers: pools.iter().map(|(_, value)| value.total(0)).min(),
            workers: free("/sys/num_worker_threads")?.unwrap_or(0),
            spare: stats.get("/if/names")?.map_or(0, |names| spare(&names)),
        })
    }

    const fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Heap => self.heap,
            Resource::Counters => self.counters,
            Resource::Buffers => self.buffers,
        }
    }
}

/// VPP gives the counters of an interface that went this name.
fn spare(names: &Value) -> u64 {
    match names {
        Value::Names(names) => names.iter().filter(|name| *name == "deleted").count() as u64,
        _ => 0,
    }
}

/// What was admitted since VPP last wrote down what is left.
#[derive(Debug, Default)]
pub(super) struct Admission {
    last: Gauges,
    since: u64,
}

impl Admission {
    /// Admits one sandbox more, or says what is short. `now` is what VPP says is left, and
    /// `first` whether there was no sandbox before.
    pub(super) fn admit(&mut self, now: Gauges, first: bool) -> Result<(), Shortage> {
        // Only the heap says when it was written down: it never stays as it is for long.
        // The names of interfaces are no gauge: they are always as they are.
        let written = Gauges { spare: 0, ..now };
        if self.last != written {
            self.last = written;
            self.since = 0;
        }
        for resource in Resource::ALL {
            let Some(free) = now.of(resource) else {
                continue;
            };
            // Each sandbox has two interfaces.
            if resource == Resource::Counters && now.spare > 2 * self.since + 1 {
                continue;
            }
            let each = resource.sandbox(1 + now.workers);
            let left = free.saturating_sub(self.since * each);
            let once = if first { resource.first() } else { 0 };
            let needed = resource.margin() + each + once;
            if left < needed {
                return Err(Shortage {
                    resource,
                    left,
                    needed,
                });
            }
        }
        self.since += 1;
        Ok(())
    }
}

/// Admission to the VPP that there is at the time.
#[derive(Debug, Default)]
pub(super) struct Gate {
    admission: Admission,
    /// The reader, for the connection of this generation; none where there are no counters.
    reader: Option<(u64, Option<Arc<Stats>>)>,
    /// The connection through which there was a sandbox.
    bridged: Option<u64>,
}

impl Gate {
    /// Notes that VPP has a sandbox.
    pub(super) fn bridged(&mut self, generation: u64) {
        self.bridged = Some(generation);
    }

    /// Admits one sandbox more to the VPP of this generation, whose counters are at `path`.
    /// Where they cannot be read everybody is admitted, and the log says so once.
    pub(super) async fn admit(&mut self, path: &Path, generation: u64) -> Result<(), Shortage> {
        let Some(stats) = self.reader(path, generation).await else {
            return Ok(());
        };
        let first = self.bridged != Some(generation);
        // Reading may have to wait for VPP, up to a second.
        match spawn_blocking(move || Gauges::read(&stats)).await {
            Ok(Ok(gauges)) => self.admission.admit(gauges, first),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a sandbox is admitted without a look at VPP's room");
                Ok(())
            }
            // The runtime is going down.
            Err(_) => Ok(()),
        }
    }

    async fn reader(&mut self, path: &Path, generation: u64) -> Option<Arc<Stats>> {
        if let Some((of, reader)) = &self.reader
            && *of == generation
        {
            return reader.clone();
        }
        let reader = match Stats::open(path).await {
            Ok(stats) => Some(Arc::new(stats)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "VPP's room cannot be watched: sandboxes are admitted until it runs out"
                );
                None
            }
        };
        self.admission = Admission::default();
        self.reader = Some((generation, reader.clone()));
        reader
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Gauges = Gauges {
        heap: Some(1 << 30),
        counters: Some(64 << 20),
        buffers: Some(16_384),
        workers: 0,
        spare: 0,
    };

    #[test]
    fn with_plenty_of_everything_many_are_admitted() {
        let mut admission = Admission::default();
        for _ in 0..400 {
            admission.admit(PLENTY, false).unwrap();
        }
    }

    #[test]
    fn whatever_is_short_is_named_with_its_remedy() {
        let cases = [
            (
                Gauges {
                    heap: Some(16 << 20),
                    ..PLENTY
                },
                Resource::Heap,
                "main-heap-size",
            ),
            (
                Gauges {
                    counters: Some(9),
                    ..PLENTY
                },
                Resource::Counters,
                "statseg",
            ),
            (
                Gauges {
                    buffers: Some(0),
                    ..PLENTY
                },
                Resource::Buffers,
                "buffers-per-numa",
            ),
        ];
        for (gauges, resource, remedy) in cases {
            let mut admission = Admission::default();
            let shortage = admission.admit(gauges, false).unwrap_err();
            assert_eq!(shortage.resource, resource);
            let said = shortage.to_string();
            assert!(
                said.contains(remedy) && said.contains("--sandboxes"),
                "{said}"
            );
            // Less is admitted again when there is more.
            admission.admit(PLENTY, false).unwrap();
        }
    }

    #[test]
    fn between_two_readings_what_was_admitted_counts() {
        let room = 5;
        let heap = Resource::Heap.margin() + room * Resource::Heap.sandbox(1);
        let gauges = Gauges {
            heap: Some(heap),
            ..PLENTY
        };
        let mut admission = Admission::default();
        for _ in 0..room {
            admission.admit(gauges, false).unwrap();
        }
        let shortage = admission.admit(gauges, false).unwrap_err();
        assert_eq!(shortage.left, Resource::Heap.margin());
        // VPP writes down that they took less than they were counted at.
        let later = Gauges {
            heap: Some(heap - 4096),
            ..PLENTY
        };
        admission.admit(later, false).unwrap();
    }

    #[test]
    fn counters_of_interfaces_that_went_are_used_again() {
        let full = Gauges {
            counters: Some(9),
            ..PLENTY
        };
        let after_two_went = Gauges { spare: 4, ..full };
        let mut admission = Admission::default();
        admission.admit(full, false).unwrap_err();
        admission.admit(after_two_went, false).unwrap();
        admission.admit(after_two_went, false).unwrap();
        admission.admit(after_two_went, false).unwrap_err();
    }

    #[test]
    fn the_first_needs_what_vpp_takes_for_all() {
        let gauges = Gauges {
            heap: Some(24 << 20),
            ..PLENTY
        };
        Admission::default().admit(gauges, true).unwrap_err();
        Admission::default().admit(gauges, false).unwrap();
    }

    #[test]
    fn what_vpp_does_not_tell_stops_nobody() {
        Admission::default()
            .admit(Gauges::default(), false)
            .unwrap();
    }
}
