//! Processor time of processes, which says what a request costs whoever else is running.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// The clock of `/proc`: hundredths of a second (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// What the processes used so far, in user and kernel mode together.
pub(crate) fn used(processes: &[u32]) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for process in processes {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        ticks += ticks_of(&stat).with_context(|| format!("/proc/{process}/stat: {stat}"))?;
    }
    Ok(TICK * ticks)
}

/// Fields 14 and 15 of proc(5), counted behind the program's name, which may hold anything.
fn ticks_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map(str::parse::<u32>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 30 8 9 20 0";
        assert_eq!(ticks_of(stat), Some(280));
        assert_eq!(ticks_of("7 (a) S 1"), None);
        assert_eq!(ticks_of(""), None);
    }

    #[test]
    fn this_process_uses_time() {
        let before = used(&[std::process::id()]).unwrap();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let later = used(&[std::process::id()]).unwrap();
        assert!(later >= before);
        assert!(used(&[u32::MAX]).is_err());
    }
}
