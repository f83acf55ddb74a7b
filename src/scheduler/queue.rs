//! The queue of waiting sequences: by priority, then by arrival.

use std::collections::BTreeSet;

use super::sequence::SequenceId;

/// Where a sequence stands in the queue: by priority, arrival and id; lower comes first.
pub type Rank = (i32, u64, SequenceId);

/// Sequences that wait for blocks, or for a step with fewer sequences.
#[derive(Clone, Debug, Default)]
pub struct WaitingQueue {
    ranks: BTreeSet<Rank>,
}

impl WaitingQueue {
    /// Adds a sequence at its rank; a preempted one returns to the rank that it had.
    pub fn insert(&mut self, rank: Rank) {
        self.ranks.insert(rank);
    }

    /// Removes a sequence.
    pub fn remove(&mut self, rank: Rank) {
        self.ranks.remove(&rank);
    }

    /// The first rank after `after`, or the very first.
    pub fn next(&self, after: Option<Rank>) -> Option<Rank> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.ranks.range((from, Unbounded)).next().copied()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_by_priority_then_arrival() {
        let mut queue = WaitingQueue::default();
        let ranks = [(0, 2, SequenceId(9)), (1, 0, SequenceId(0)), (0, 1, SequenceId(1))];
        for rank in ranks {
            queue.insert(rank);
        }
        let mut order = Vec::new();
        while let Some(rank) = queue.next(order.last().copied()) {
            order.push(rank);
        }
        assert_eq!(order, [ranks[2], ranks[0], ranks[1]]);
        queue.remove(ranks[2]);
        assert_eq!(queue.next(None), Some(ranks[0]));
    }

    #[test]
    fn sequences_that_came_together_stand_together() {
        let mut queue = WaitingQueue::default();
        queue.insert((0, 3, SequenceId(4)));
        queue.insert((0, 3, SequenceId(7)));
        queue.insert((0, 4, SequenceId(5)));
        assert_eq!(queue.next(Some((0, 3, SequenceId(4)))), Some((0, 3, SequenceId(7))));
        assert_eq!(queue.len(), 3);
    }
}
