//! Where snapshots of a sequence's recurrent state are taken while its prompt is computed.

use crate::kv_cache::BLOCK_SIZE;

/// Fewest tokens that must be computed to get from one snapshot to the next.
pub(super) const LEAST_GAIN: usize = 2 * BLOCK_SIZE;

/// Tokens at the end of a prompt that open the answer (`<|im_start|>assistant\n<think>\n`). Templates
/// may write them otherwise once the answer is there.
const OPENING_TOKENS: usize = 8;

/// Share of the rows that one sequence of full length may take for its prompt: a quarter.
const SHARE_OF_ONE: usize = 4;

/// Where snapshots are taken while the tokens that a sequence was admitted with are computed.
#[derive(Clone, Debug, Default)]
pub(super) struct SnapshotPlan {
    /// Where the sequence resumed.
    start: usize,
    /// Tokens that the sequence was admitted with.
    end: usize,
    /// The last planned position, if it is above `start`.
    last: usize,
    /// Tokens between two of many; 0 where no snapshots are taken.
    spacing: usize,
    /// Where other sequences part from this one.
    branches: Vec<usize>,
}

impl SnapshotPlan {
    /// The plan for a sequence of `end` tokens that resumes at `start`, the first `known` of whose
    /// tokens are in cached blocks.
    pub(super) fn new(start: usize, end: usize, known: usize, spacing: usize) -> Self {
        let last = (end - 1).saturating_sub(OPENING_TOKENS) / BLOCK_SIZE * BLOCK_SIZE;
        let last = if last >= start + LEAST_GAIN { last } else { start };
        // Close behind the last position a branch would save little.
        let branches = known >= start + LEAST_GAIN && (known < last || known >= last + LEAST_GAIN);
        let branches = if branches { vec![known] } else { Vec::new() };
        Self { start, end, last, spacing, branches }
    }

    /// Whether snapshots are taken of this sequence.
    pub(super) fn is_active(&self) -> bool {
        self.spacing > 0
    }

    /// Tokens that the sequence was admitted with.
    pub(super) fn num_admitted(&self) -> usize {
        self.end
    }

    /// Plans a snapshot behind `position` tokens, where another sequence parts from this one, unless
    /// one is planned shortly before that and behind `computed`. Returns whether it is a new one.
    pub(super) fn add_branch(&mut self, position: usize, computed: usize) -> bool {
        let near = computed.max(position.saturating_sub(LEAST_GAIN));
        let is_new = self.next(near).is_none_or(|planned| planned > position);
        if is_new {
            self.branches.push(position);
        }
        is_new
    }

    /// The first planned position behind `computed` tokens.
    pub(super) fn next(&self, computed: usize) -> Option<usize> {
        if self.spacing == 0 {
            return None;
        }
        let worthwhile = (computed + 1).max(self.start + LEAST_GAIN);
        let spaced = worthwhile.next_multiple_of(self.spacing);
        let spaced = Some(spaced).filter(|spaced| spaced + LEAST_GAIN <= self.last);
        let last = Some(self.last).filter(|last| *last > self.start);
        let branches = self.branches.iter().copied();
        branches.chain(spaced).chain(last).filter(|position| *position > computed).min()
    }

    /// Whether a snapshot is planned behind `position` tokens.
    pub(super) fn contains(&self, position: usize) -> bool {
        position > 0 && self.next(position - 1) == Some(position)
    }
}

/// Tokens between two snapshots of a long prompt, a power of two: a chunk at least, and so much that a
/// sequence of `max_model_len` tokens takes its share of the `rows`.
pub(super) fn spacing(rows: usize, max_model_len: usize, chunk: usize) -> usize {
    let of_one = (rows / SHARE_OF_ONE).max(1);
    let blocks = max_model_len.div_ceil(BLOCK_SIZE).div_ceil(of_one);
    blocks.max(chunk.div_ceil(BLOCK_SIZE)).next_power_of_two() * BLOCK_SIZE
}
