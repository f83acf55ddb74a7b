//! The waiting line: by priority, then by arrival.

use std::collections::BTreeMap;

use super::sequence::SequenceId;

/// Place in the line; lower comes first.
pub type Rank = (i32, u64);

/// Sequences that wait for blocks or for a place in a step.
#[derive(Clone, Debug, Default)]
pub struct WaitingQueue {
    line: BTreeMap<Rank, SequenceId>,
}

impl WaitingQueue {
    /// Puts a sequence at its rank; a preempted one returns to where it stood.
    pub fn insert(&mut self, rank: Rank, id: SequenceId) {
        self.line.insert(rank, id);
    }

    /// Takes a sequence out.
    pub fn remove(&mut self, rank: Rank) {
        self.line.remove(&rank);
    }

    /// The first entry behind `after`, or the very first.
    pub fn next(&self, after: Option<Rank>) -> Option<(Rank, SequenceId)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.line.range((from, Unbounded)).next().map(|(rank, id)| (*rank, *id))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_by_priority_then_arrival() {
        let mut queue = WaitingQueue::default();
        queue.insert((0, 2), SequenceId(2));
        queue.insert((1, 0), SequenceId(0));
        queue.insert((0, 1), SequenceId(1));
        let mut order = Vec::new();
        let mut after = None;
        while let Some((rank, id)) = queue.next(after) {
            order.push(id.0);
            after = Some(rank);
        }
        assert_eq!(order, [1, 2, 0]);
        queue.remove((0, 1));
        assert_eq!(queue.next(None), Some(((0, 2), SequenceId(2))));
    }
}
