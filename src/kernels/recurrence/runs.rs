//! Which rows belong to which sequence, and the checks of that.

use std::ops::Range;

use candle_core::{Result, bail};

use crate::step_tensors::{NO_SLOT, StepTensors};

/// Which rows of a step belong to which sequence, and where each sequence's state is.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// `[num_seqs + 1]`: row ranges, ascending from 0 to the number of rows.
    pub cu_seqlens_q: &'a [u32],
    /// `[num_tokens]`: a sequence whose first row here is its first token starts from zeros,
    /// whatever its state holds.
    pub positions: &'a [u32],
    /// `[num_seqs]`: the row of the states that is the sequence's own.
    pub slots: &'a [u32],
    /// The step's plan on the device, if it is there already.
    pub on_device: Option<&'a StepTensors>,
}

/// The rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) rows: Range<usize>,
    pub(super) slot: usize,
    /// Whether the state is all zeros, whatever it holds.
    pub(super) starts: bool,
}

impl Runs<'_> {
    /// The runs of `rows` rows that are not empty.
    ///
    /// # Errors
    ///
    /// Ranges that don't cover the rows, a slot of two sequences or behind the last of `num_slots`.
    pub(super) fn of(&self, operation: &str, rows: usize, num_slots: usize) -> Result<Vec<Run>> {
        self.check(operation, rows, num_slots)?;
        let run = |(bounds, slot): (&[u32], &u32)| {
            let rows = bounds[0] as usize..bounds[1] as usize;
            let starts = self.positions.get(rows.start) == Some(&0);
            Run { rows, slot: *slot as usize, starts }
        };
        let runs: Vec<Run> = self.own().map(run).collect();
        match runs.iter().find(|run| run.slot >= num_slots) {
            Some(Run { slot, .. }) => bail!("{operation}: slot {slot} of {num_slots}"),
            None => Ok(runs),
        }
    }

    /// Bounds and slot of each sequence that has rows.
    fn own(&self) -> impl Iterator<Item = (&[u32], &u32)> {
        self.cu_seqlens_q.windows(2).zip(self.slots).filter(|(bounds, _)| bounds[0] < bounds[1])
    }

    /// Checks the runs as [`Self::of`] does, but allows sequences of [`NO_SLOT`].
    pub(super) fn check(&self, operation: &str, rows: usize, num_slots: usize) -> Result<()> {
        let Self { cu_seqlens_q: bounds, positions, slots, .. } = *self;
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
        for (_, slot) in self.own().filter(|(_, slot)| **slot != NO_SLOT) {
            match taken.get_mut(*slot as usize) {
                None => bail!("{operation}: slot {slot} of {num_slots}"),
                Some(true) => bail!("{operation}: slot {slot} is given to two sequences"),
                Some(free) => *free = true,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_do_not_fit_are_errors() {
        let of = |bounds: &[u32], positions: &[u32], slots: &[u32], rows, num_slots| {
            let runs = Runs { cu_seqlens_q: bounds, positions, slots, on_device: None };
            runs.of("it", rows, num_slots)
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
