//! Epochs: how long a judgement of a flow lasts.
//!
//! The rules stamp a permitted flow with the number of the current epoch (in its `ct mark`), and
//! let the packets of a flow with that stamp pass without judging them again. A change that takes
//! a right away ends the epoch in its own transaction: from then on there is none, no stamp
//! counts, and every packet is judged by the new contents of the sets. A change that only gives
//! rights leaves the epoch alone.
//!
//! A packet that is on its way through the rules in that very moment may have been met by the
//! old contents of one set. It must not stamp its flow with a number that counts afterwards.
//! So a new epoch begins only when every such packet has left: rules run inside a read-side
//! critical section of RCU, and `membarrier(2)` waits for all of those. That takes some
//! milliseconds, which nobody waits for: meanwhile flows are judged packet by packet.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::{io, time::Duration};

use nix::time::{ClockId, clock_gettime};

use super::message::{Action, Family};
use super::set::{Entry, Key, KeyReader, Set};
use super::{Filter, NftError};

mod grace;

/// The number of an epoch; never 0, which is the stamp of a flow that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// The epoch that begins after this much time since the machine started.
    ///
    /// A number must not come back while a flow has a stamp of its former life. In whole
    /// milliseconds it comes back after 49 days, ten times as long as connection tracking
    /// remembers a silent flow, also when the process that counts is another one.
    pub fn at(since_boot: Duration) -> Self {
        // Cut off on purpose.
        let low = since_boot.as_millis() & u128::from(u32::MAX);
        Self(u32::try_from(low).unwrap_or_default().max(1))
    }

    /// This one, or the next number behind `last` where the clock has not gone on since.
    #[must_use]
    pub fn behind(self, last: Option<Self>) -> Self {
        match last {
            // Numbers go round: half of them are behind any other.
            Some(last) if self.0.wrapping_sub(last.0).wrapping_sub(1) >= 1 << 31 => {
                Self(last.0.wrapping_add(1).max(1))
            }
            _ => self,
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The changes that end the epoch, to stand in front of the change that makes it necessary.
pub(super) fn end() -> [(Action, Family, Entry); 2] {
    [Set::Epoch, Set::Fresh].map(|set| (Action::Empty, Family::Inet, entry(set, Epoch(0))))
}

/// The changes that begin an epoch.
pub(super) fn begin(epoch: Epoch) -> Vec<(Action, Family, Entry)> {
    let add = |set| (Action::Add, Family::Inet, entry(set, epoch));
    end()
        .into_iter()
        .chain([add(Set::Epoch), add(Set::Fresh)])
        .collect()
}

/// The epoch that an entry of [`Set::Fresh`] stands for.
pub(super) fn read(entry: &Entry) -> Option<Epoch> {
    KeyReader(&entry.first).number().map(Epoch)
}

fn entry(set: Set, epoch: Epoch) -> Entry {
    // The rule that stamps asks the map for the key 0.
    let (key, mark) = match set {
        Set::Epoch => (0, Some(epoch.0)),
        _ => (epoch.0, None),
    };
    let key = Key::default().number(key).done();
    Entry {
        set,
        last: key.clone(),
        first: key,
        mark,
    }
}

/// A thread that begins a new epoch when one was ended. It stops when this is dropped.
#[derive(Debug)]
pub struct Epochs {
    wake: SyncSender<()>,
}

impl Epochs {
    /// Starts the thread, and with it the first epoch.
    pub fn start(filter: &Arc<Mutex<Filter>>) -> io::Result<Self> {
        // One wish that waits is enough: it stands for all that came before.
        let (wake, wishes) = sync_channel(1);
        let filter = Arc::clone(filter);
        let thread = thread::Builder::new().name("causeway-epochs".to_owned());
        thread.spawn(move || serve(&filter, &wishes))?;
        let epochs = Self { wake };
        epochs.ended();
        Ok(epochs)
    }

    /// Says that a change may have ended the epoch. Does not wait.
    pub fn ended(&self) {
        // Full: the thread will look after the change that this is about. Gone: it said why.
        let _ = self.wake.try_send(());
    }
}

fn serve(filter: &Mutex<Filter>, wishes: &Receiver<()>) {
    let (mut served, mut last) = (None, None);
    while wishes.recv().is_ok() {
        let endings = lock(filter).endings();
        if served == Some(endings) {
            continue;
        }
        if let Err(error) = grace::wait() {
            tracing::warn!(
                %error,
                "the kernel does not say when packets have left the packet filter: every packet \
                 is judged anew, which costs speed"
            );
            return;
        }
        match renew(&mut lock(filter), endings, last) {
            Ok(Some(epoch)) => (served, last) = (Some(endings), Some(epoch)),
            // Whoever ended it once more has said so.
            Ok(None) => {}
            // Slower and as safe. Setting up the router anew tries again.
            Err(error) => tracing::warn!(%error, "no new epoch: every packet is judged anew"),
        }
    }
}

/// Begins an epoch, unless there was another ending since `endings` were counted.
fn renew(
    filter: &mut Filter,
    endings: u64,
    last: Option<Epoch>,
) -> Result<Option<Epoch>, NftError> {
    if filter.endings() != endings {
        return Ok(None);
    }
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_err(|errno| NftError::socket("read the time")(errno.into()))?;
    let epoch = Epoch::at(now.into()).behind(last);
    filter.begin_epoch(epoch)?;
    Ok(Some(epoch))
}

fn lock(filter: &Mutex<Filter>) -> std::sync::MutexGuard<'_, Filter> {
    filter.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_never_nought_and_follows_the_clock() {
        assert_eq!(Epoch::at(Duration::ZERO).number(), 1);
        assert_eq!(Epoch::at(Duration::from_millis(1 << 32)).number(), 1);
        assert_eq!(Epoch::at(Duration::from_millis(7)).number(), 7);
        assert_eq!(Epoch::at(Duration::from_micros(7_999)).number(), 7);
    }

    #[test]
    fn no_epoch_has_the_number_of_the_last() {
        let next = |now, last| Epoch(now).behind(Some(Epoch(last))).number();
        assert_eq!(Epoch(5).behind(None).number(), 5);
        assert_eq!(next(6, 5), 6);
        assert_eq!(next(5, 5), 6);
        assert_eq!(next(4, 5), 6);
        assert_eq!(next(u32::MAX, u32::MAX), 1);
        assert_eq!(next(3, u32::MAX), 3);
    }

    #[test]
    fn packets_leave_the_packet_filter() {
        grace::wait().unwrap();
    }
}
