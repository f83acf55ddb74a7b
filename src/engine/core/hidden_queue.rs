//! Hidden states of a sequence that a head which drafts has yet to compute.

use std::collections::HashSet;

use crate::scheduler::output::PlannedSequence;
use crate::scheduler::sequence::SequenceId;

/// Hidden states of consecutive positions, all of one width.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HiddenQueue {
    first: usize,
    width: usize,
    values: Vec<f32>,
}

impl HiddenQueue {
    /// The position of the first of them.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Number of positions.
    pub(super) fn len(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    /// Adds those of positions from `first` on, `[positions, width]`. They replace what was there of
    /// these positions and later ones, which wrong drafts had; positions that were taken already stay
    /// so, and behind a gap the queue begins anew.
    pub(super) fn add(&mut self, first: usize, values: &[f32], width: usize) {
        self.width = width;
        if first > self.first + self.len() {
            self.first = first;
            self.values.clear();
        }
        let taken = self.first.saturating_sub(first) * width;
        self.values.truncate(first.saturating_sub(self.first) * width);
        self.values.extend(values.get(taken..).unwrap_or_default());
    }

    /// Those of the first `count` positions.
    pub(super) fn front(&self, count: usize) -> &[f32] {
        &self.values[..count * self.width]
    }

    /// Takes those of the first `count` positions away.
    pub(super) fn take(&mut self, count: usize) {
        self.values.drain(..count * self.width);
        self.first += count;
    }
}

/// The sequences of a step whose hidden states a head that drafts is told, of all of their tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) ids: HashSet<SequenceId>,
    /// Whether it is told the inputs of layers, not the last hidden states.
    pub(super) taps: bool,
}

impl Told {
    /// A sequence's part of a step, with what the head is told of it.
    pub(super) fn with_hidden<'a>(&self, planned: PlannedSequence<'a>) -> PlannedSequence<'a> {
        if !self.ids.contains(&planned.id) {
            return planned;
        }
        if self.taps {
            return PlannedSequence { tapped: true, ..planned };
        }
        PlannedSequence { pooled: (0, planned.num_tokens()), ..planned }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_states_replace_wrong_ones_and_gaps_begin_anew() {
        let mut queue = HiddenQueue::default();
        assert_eq!((queue.first(), queue.len()), (0, 0));
        queue.add(0, &[0.0, 0.5, 1.0, 1.5, 9.0, 9.5], 2);
        queue.add(2, &[2.0, 2.5], 2);
        assert_eq!(queue.front(3), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        queue.take(2);
        assert_eq!((queue.first(), queue.len(), queue.front(1)), (2, 1, &[2.0, 2.5][..]));
        // Computed again from before what was taken.
        queue.add(1, &[1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2);
        assert_eq!((queue.first(), queue.front(2)), (2, &[2.0, 2.5, 3.0, 3.5][..]));
        queue.add(0, &[0.0, 0.5], 2);
        assert_eq!((queue.first(), queue.len()), (2, 0), "nothing but what was taken");
        queue.add(10, &[10.0, 10.5], 2);
        assert_eq!((queue.first(), queue.len()), (10, 1));
    }
}
