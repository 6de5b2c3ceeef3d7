//! Order statistics of what was measured.

use std::time::{Duration, Instant};

/// Values of one quantity, each measured once. Kept sorted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Times in milliseconds.
    pub(crate) fn milliseconds(times: &[Duration]) -> Self {
        times.iter().map(|time| time.as_secs_f64() * 1e3).collect()
    }

    /// Times in microseconds.
    pub(crate) fn microseconds(times: &[Duration]) -> Self {
        times.iter().map(|time| time.as_secs_f64() * 1e6).collect()
    }

    /// The smallest value that `percent` of a hundred values do not exceed (nearest rank);
    /// none when nothing was measured.
    pub(crate) fn percentile(&self, percent: f64) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "there are far fewer samples than 2^52, and the rank is clamped"
        )]
        let rank = (percent / 100.0 * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank.min(self.0.len()).checked_sub(1)?).copied()
    }

    /// The value in the middle; of an even number of values the mean of the two in the middle.
    pub(crate) fn median(&self) -> Option<f64> {
        let upper = *self.0.get(self.0.len() / 2)?;
        if self.0.len() % 2 == 1 {
            return Some(upper);
        }
        Some(f64::midpoint(*self.0.get(self.0.len() / 2 - 1)?, upper))
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }
}

/// How long `work` takes.
pub(crate) fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples: Samples = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(0.0, 1.0), (50.0, 50.0), (99.0, 99.0), (100.0, 100.0)] {
            assert_eq!(samples.percentile(percent), Some(expected), "{percent}");
        }
        let three: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!(three.percentile(99.0), Some(3.0));
        assert_eq!(three.percentile(50.0), Some(2.0));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let median = |values: &[f64]| values.iter().copied().collect::<Samples>().median();
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[7.0]), Some(7.0));
    }

    #[test]
    fn nothing_has_no_statistics() {
        let empty = Samples::default();
        assert_eq!((empty.median(), empty.percentile(99.0)), (None, None));
    }

    #[test]
    fn durations_are_converted() {
        let times = [Duration::from_micros(1500)];
        assert_eq!(Samples::milliseconds(&times).median(), Some(1.5));
        assert_eq!(Samples::microseconds(&times).median(), Some(1500.0));
    }
}
