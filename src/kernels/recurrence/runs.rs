//! Which rows belong to which sequence, and the checks of that.

use std::ops::Range;

use candle_core::{Result, bail};

use crate::step::{NO_SLOT, Step};

/// The rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) rows: Range<usize>,
    pub(super) slot: usize,
    /// Whether the state is all zeros, whatever it holds.
    pub(super) starts: bool,
}

impl Step {
    /// The runs of `rows` rows that are not empty.
    ///
    /// # Errors
    ///
    /// Ranges that don't cover the rows, a slot of two sequences or behind the last of `num_slots`.
    pub(super) fn runs(&self, operation: &str, rows: usize, num_slots: usize) -> Result<Vec<Run>> {
        self.check_runs(operation, rows, num_slots)?;
        let run = |(bounds, slot): (&[u32], &u32)| {
            let rows = bounds[0] as usize..bounds[1] as usize;
            let starts = self.positions.get(rows.start) == Some(&0);
            Run { rows, slot: *slot as usize, starts }
        };
        let runs: Vec<Run> = self.runs_and_slots().map(run).collect();
        match runs.iter().find(|run| run.slot >= num_slots) {
            Some(Run { slot, .. }) => bail!("{operation}: slot {slot} of {num_slots}"),
            None => Ok(runs),
        }
    }

    /// Bounds and slot of each sequence that has rows.
    fn runs_and_slots(&self) -> impl Iterator<Item = (&[u32], &u32)> {
        self.cu_seqlens_q
            .windows(2)
            .zip(&self.state_slots)
            .filter(|(bounds, _)| bounds[0] < bounds[1])
    }

    /// Checks the runs as [`Self::runs`] does, but allows sequences of [`NO_SLOT`].
    pub(super) fn check_runs(&self, operation: &str, rows: usize, num_slots: usize) -> Result<()> {
        let Self { cu_seqlens_q: bounds, positions, state_slots: slots, .. } = self;
        let covers = bounds.first() == Some(&0)
            && bounds.last().is_some_and(|last| *last as usize == rows)
            && bounds.is_sorted();
        if !covers || bounds.len() != slots.len() + 1 || positions.len() != rows {
            bail!(
                "{operation}: {} sequences with bounds {bounds:?} and {} positions, of {rows} rows",
                slots.len(),
                positions.len()
            );
        }
        let mut taken = vec![false; num_slots];
        for (_, slot) in self.runs_and_slots().filter(|(_, slot)| **slot != NO_SLOT) {
            match taken.get_mut(*slot as usize) {
                None => bail!("{operation}: slot {slot} of {num_slots}"),
                Some(true) => bail!("{operation}: slot {slot} is given to two sequences"),
                Some(free) => *free = true,
            }
        }
        Ok(())
    }
}

/// A sequence of two tokens from its start on, whose state is at `slot`.
#[cfg(test)]
pub(super) fn two_tokens(slot: u32) -> Step {
    Step {
        cu_seqlens_q: vec![0, 2],
        positions: vec![0, 1],
        state_slots: vec![slot],
        ..Step::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_do_not_fit_are_errors() {
        let of = |bounds: &[u32], positions: &[u32], slots: &[u32], rows, num_slots| {
            let step = Step {
                cu_seqlens_q: bounds.to_vec(),
                positions: positions.to_vec(),
                state_slots: slots.to_vec(),
                ..Step::default()
            };
            step.runs("it", rows, num_slots)
        };
        let runs = of(&[0, 2, 2, 3], &[0, 1, 7], &[4, 9, 1], 3, 5).unwrap();
        let expected =
            [Run { rows: 0..2, slot: 4, starts: true }, Run { rows: 2..3, slot: 1, starts: false }];
        assert_eq!(runs, expected);
        assert!(of(&[0, 2], &[0, 1], &[5], 2, 5).is_err());
        assert!(of(&[0, 2], &[0, 1], &[NO_SLOT], 2, 5).is_err());
        assert!(of(&[0, 1, 2], &[0, 0], &[3, 3], 2, 5).is_err());
        assert!(of(&[0, 1], &[0, 1], &[3], 2, 5).is_err());
        assert!(of(&[0, 2, 1, 2], &[0, 1], &[3, 2, 1], 2, 5).is_err());
        assert!(of(&[0, 2], &[0], &[3], 2, 5).is_err());
    }
}
