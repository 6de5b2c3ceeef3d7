//! A set of numbers kept as runs.

use std::collections::BTreeMap;

/// A set of numbers, kept as runs of neighbours: the first free number from some place on is
/// one step away, however many numbers are taken before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IndexSet {
    /// First number of each run to its last. Runs neither overlap nor touch.
    runs: BTreeMap<u128, u128>,
}

impl IndexSet {
    /// Adds a number. False when it was there.
    pub(crate) fn insert(&mut self, index: u128) -> bool {
        let before = self.run_from(index);
        if before.is_some_and(|(_, last)| index <= last) {
            return false;
        }
        let joins_before =
            before.filter(|(_, last)| last.checked_add(1).is_some_and(|next| next == index));
        let first = joins_before.map_or(index, |(first, _)| first);
        let after = index
            .checked_add(1)
            .and_then(|next| self.runs.remove(&next));
        self.runs.insert(first, after.unwrap_or(index));
        true
    }

    /// Takes a number out. False when it was not there.
    pub(crate) fn remove(&mut self, index: u128) -> bool {
        let Some((first, last)) = self.run_from(index).filter(|(_, last)| index <= *last) else {
            return false;
        };
        self.runs.remove(&first);
        if first < index {
            self.runs.insert(first, index - 1);
        }
        if index < last {
            self.runs.insert(index + 1, last);
        }
        true
    }

    /// The first number from `index` up that is not in the set; none when that run goes up to
    /// the largest number there is.
    pub(crate) fn next_free(&self, index: u128) -> Option<u128> {
        match self.run_from(index) {
            Some((_, last)) if index <= last => last.checked_add(1),
            _ => Some(index),
        }
    }

    /// The last run that begins at or before `index`.
    fn run_from(&self, index: u128) -> Option<(u128, u128)> {
        let (first, last) = self.runs.range(..=index).next_back()?;
        Some((*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_number_has_no_successor() {
        let mut set = IndexSet::default();
        assert!(set.insert(u128::MAX));
        assert_eq!(set.next_free(u128::MAX), None);
        assert!(set.insert(u128::MAX - 1));
        assert_eq!(set.next_free(u128::MAX - 1), None);
        assert!(set.remove(u128::MAX));
        assert_eq!(set.next_free(u128::MAX - 1), Some(u128::MAX));
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_plain_set(steps in prop::collection::vec((any::<bool>(), 0..24_u128), 0..200)) {
            let mut set = IndexSet::default();
            let mut model = BTreeSet::new();
            for (insert, index) in steps {
                if insert {
                    prop_assert_eq!(set.insert(index), model.insert(index));
                } else {
                    prop_assert_eq!(set.remove(index), model.remove(&index));
                }
                for from in 0..25 {
                    let free = (from..=25).find(|n| !model.contains(n));
                    prop_assert_eq!(set.next_free(from), free);
                }
                let runs: Vec<_> = set.runs.iter().collect();
                prop_assert!(runs.windows(2).all(|w| w[0].1 + 1 < *w[1].0));
            }
        }
    }
}
