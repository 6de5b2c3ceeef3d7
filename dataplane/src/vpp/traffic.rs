//! What passed each sandbox's interface in VPP, from VPP's own counters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_types::{Reason, SandboxUid};
use tokio::sync::Mutex;
use vpp_config::stats::{Combined, Stats, StatsError, Value};

use super::make::Port;
use crate::backend::Counters;

/// Reads VPP's counters, for as long as that VPP lives.
#[derive(Debug)]
pub(super) struct Traffic {
    socket: PathBuf,
    open: Mutex<Option<(u64, Arc<Stats>)>>,
}

impl Traffic {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            open: Mutex::default(),
        }
    }

    /// Puts what VPP counted in the place of what the border counted, which is only a part of
    /// it, and adds what VPP dropped. Where VPP's counters cannot be read, that part stays.
    pub(super) async fn count(
        &self,
        generation: u64,
        ports: &BTreeMap<SandboxUid, Port>,
        counters: &mut Counters,
    ) {
        match self.read(generation).await {
            Ok(([received, sent], drops)) => {
                for (uid, port) in ports {
                    let Some(sandbox) = counters.sandboxes.get_mut(uid) else {
                        continue;
                    };
                    let at = port.inlet.0 as usize;
                    // What VPP receives, the sandbox has sent.
                    let of = |column: &[Combined]| column.get(at).copied().unwrap_or_default();
                    let (from, to) = (of(&received), of(&sent));
                    sandbox.sent_packets = from.packets;
                    sandbox.sent_bytes = from.bytes;
                    sandbox.received_packets = to.packets;
                    sandbox.received_bytes = to.bytes;
                    let dropped = drops.as_ref().map_or(0, |drops| drops.total(at));
                    if dropped > 0 {
                        sandbox.drops.insert(Reason::Forwarder, dropped);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "VPP's counters are not read"),
        }
    }

    async fn read(
        &self,
        generation: u64,
    ) -> Result<([Vec<Combined>; 2], Option<Value>), StatsError> {
        let stats = self.stats(generation).await?;
        let column = |name: &str| -> Result<Vec<Combined>, StatsError> {
            let value = stats.get(name)?;
            let Some(value) = value else {
                return Ok(Vec::new());
            };
            let length = match &value {
                Value::Combined(threads) => threads.iter().map(Vec::len).max().unwrap_or(0),
                _ => 0,
            };
            Ok((0..length).map(|at| value.total_combined(at)).collect())
        };
        // By the interface that a packet came from.
        let drops = stats.get("/if/drops")?;
        Ok(([column("/if/rx")?, column("/if/tx")?], drops))
    }

    async fn stats(&self, generation: u64) -> Result<Arc<Stats>, StatsError> {
        let mut open = self.open.lock().await;
        if let Some((of, stats)) = &*open
            && *of == generation
        {
            return Ok(Arc::clone(stats));
        }
        let stats = Arc::new(Stats::open(&self.socket).await?);
        *open = Some((generation, Arc::clone(&stats)));
        Ok(stats)
    }
}
