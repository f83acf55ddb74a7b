//! The queue of waiting sequences. Those of one key stand by priority, then by arrival; keys take turns by
//! the tokens that they were served.

use std::collections::{BTreeMap, HashMap};

use super::sequence::{SequenceId, YIELDS};
use super::shares::{ShareId, Shares};

/// Where a sequence stands among those of its key: by priority, arrival and id; lower comes first.
pub type Rank = (i32, u64, SequenceId);

/// When a key's next sequence is due: those that yield last, then by what was served of the key, then by
/// arrival.
type Due = (bool, u64, u64, SequenceId);

/// Sequences that wait for blocks, or for a step with fewer sequences.
#[derive(Clone, Debug, Default)]
pub struct WaitingQueue {
    /// By key; what each sequence will be served once it is admitted.
    lines: BTreeMap<ShareId, BTreeMap<Rank, usize>>,
    /// What is known of the order so far.
    order: Vec<(ShareId, Rank, u64)>,
    /// Places in there.
    places: HashMap<SequenceId, usize>,
    /// The next sequence of each key behind those.
    due: BTreeMap<Due, (ShareId, Rank)>,
    len: usize,
}

impl WaitingQueue {
    /// Adds a sequence at its rank; a preempted one returns to the rank that it had. Once it is admitted,
    /// `tokens` are computed for its key that were not before.
    pub fn insert(&mut self, key: ShareId, rank: Rank, tokens: usize) {
        let before = self.lines.entry(key).or_default().insert(rank, tokens);
        self.len += usize::from(before.is_none());
        // It may stand before others.
        self.forget_order();
    }

    /// Removes a sequence.
    pub fn remove(&mut self, key: ShareId, rank: Rank) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        if line.remove(&rank).is_some() {
            self.len -= 1;
        }
        if line.is_empty() {
            self.lines.remove(&key);
        }
    }

    /// Orders anew by what was served of the keys by now.
    pub fn order(&mut self, shares: &Shares) {
        self.forget_order();
        for (key, line) in &self.lines {
            if let Some(first) = line.keys().next() {
                self.due.insert(due(*first, shares.served(*key)), (*key, *first));
            }
        }
    }

    fn forget_order(&mut self) {
        self.order.clear();
        self.places.clear();
        self.due.clear();
    }

    /// The first sequence after `after`, or the very first, and what its key will have been served before.
    /// The order is that of the last call of [`order`](Self::order), without sequences that are gone;
    /// those that came since are not in it.
    pub fn next(&mut self, after: Option<Rank>) -> Option<(ShareId, Rank, u64)> {
        let mut place = match after {
            None => 0,
            Some(after) => self.places.get(&after.2)? + 1,
        };
        loop {
            while place >= self.order.len() {
                self.go_on()?;
            }
            let (key, rank, _) = self.order[place];
            if self.lines.get(&key).is_some_and(|line| line.contains_key(&rank)) {
                return Some(self.order[place]);
            }
            place += 1;
        }
    }

    /// Whether one stands behind another, which is in the order.
    pub fn is_behind(&self, one: Rank, other: Rank) -> bool {
        match (self.places.get(&one.2), self.places.get(&other.2)) {
            (Some(one), Some(other)) => one > other,
            (None, Some(_)) => true,
            _ => one > other,
        }
    }

    /// Finds the next place of the order.
    fn go_on(&mut self) -> Option<()> {
        use std::ops::Bound::{Excluded, Unbounded};
        let ((_, served, ..), (key, rank)) = self.due.pop_first()?;
        let line = self.lines.get(&key);
        let tokens = line.and_then(|line| line.get(&rank)).copied().unwrap_or_default();
        self.places.insert(rank.2, self.order.len());
        self.order.push((key, rank, served));
        let next = line.and_then(|line| line.range((Excluded(rank), Unbounded)).next());
        if let Some((next, _)) = next {
            self.due.insert(due(*next, served + tokens as u64), (key, *next));
        }
        Some(())
    }

    /// Whether one of them yields.
    pub fn has_yielding(&self) -> bool {
        let mut last = self.lines.values().filter_map(|line| line.keys().next_back());
        last.any(|(priority, ..)| *priority == YIELDS)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn due(rank: Rank, served: u64) -> Due {
    let (priority, arrival, id) = rank;
    (priority == YIELDS, served, arrival, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ShareId = ShareId(1);
    const B: ShareId = ShareId(2);

    fn order(queue: &mut WaitingQueue, shares: &Shares) -> Vec<u64> {
        queue.order(shares);
        let (mut ids, mut after) = (Vec::new(), None);
        while let Some((_, rank, _)) = queue.next(after) {
            after = Some(rank);
            ids.push(rank.2.0);
        }
        ids
    }

    #[test]
    fn one_key_is_served_by_priority_then_arrival() {
        let (mut queue, shares) = (WaitingQueue::default(), Shares::default());
        for (priority, arrival, id) in [(0, 2, 9), (1, 0, 0), (0, 1, 1), (0, 3, 4), (0, 3, 7)] {
            queue.insert(A, (priority, arrival, SequenceId(id)), 10);
        }
        assert_eq!(order(&mut queue, &shares), [1, 9, 4, 7, 0]);
        queue.remove(A, (0, 1, SequenceId(1)));
        queue.remove(A, (0, 1, SequenceId(1)));
        assert_eq!((order(&mut queue, &shares), queue.len()), (vec![9, 4, 7, 0], 4));
    }

    #[test]
    fn keys_take_turns_by_tokens() {
        let (mut queue, mut shares) = (WaitingQueue::default(), Shares::default());
        for key in [A, B] {
            shares.enter(key);
        }
        (0..4).for_each(|id| queue.insert(A, (0, id, SequenceId(id)), 10));
        (4..7).for_each(|id| queue.insert(B, (0, id, SequenceId(id)), 25));
        // A was served 0, 10, 20 and 30 before each of its own, B 0, 25 and 50.
        assert_eq!(order(&mut queue, &shares), [0, 4, 1, 2, 5, 3, 6]);
        shares.serve(A, 100);
        assert_eq!(order(&mut queue, &shares), [4, 5, 6, 0, 1, 2, 3]);
        // A priority counts within its key alone.
        queue.insert(A, (-5, 7, SequenceId(7)), 10);
        assert_eq!(order(&mut queue, &shares), [4, 5, 6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn what_yields_comes_behind_all_keys() {
        let (mut queue, mut shares) = (WaitingQueue::default(), Shares::default());
        for key in [A, B] {
            shares.enter(key);
        }
        shares.serve(B, 1000);
        queue.insert(A, (YIELDS, 0, SequenceId(0)), 10);
        queue.insert(B, (0, 1, SequenceId(1)), 10);
        queue.insert(A, (9, 2, SequenceId(2)), 10);
        assert_eq!(order(&mut queue, &shares), [2, 1, 0]);
    }

    #[test]
    fn who_goes_meanwhile_is_passed_over() {
        let (mut queue, shares) = (WaitingQueue::default(), Shares::default());
        let ranks = [0, 1, 2, 3].map(|id| (0, id, SequenceId(id)));
        for rank in ranks {
            queue.insert(A, rank, 1);
        }
        queue.order(&shares);
        assert_eq!(queue.next(None).unwrap().1, ranks[0]);
        queue.remove(A, ranks[0]);
        queue.remove(A, ranks[1]);
        assert_eq!(queue.next(Some(ranks[0])).unwrap().1, ranks[2]);
        assert!(queue.is_behind(ranks[3], ranks[2]) && !queue.is_behind(ranks[0], ranks[2]));
    }
}
