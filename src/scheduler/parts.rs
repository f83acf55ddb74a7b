//! Reuse of a part of a block: a sequence resumes behind any number of tokens that are cached, not
//! only where a block ends. The block that has the tokens is copied, since others may share it.

use super::Scheduler;
use super::output::{Copies, SchedulerOutput};
use super::sequence::{Sequence, SequenceId};
use crate::kv_cache::BLOCK_SIZE;

impl Scheduler {
    /// Whether parts of blocks are reused. A recurrent state is kept at ends of blocks alone.
    pub(super) fn reuses_parts(&self) -> bool {
        self.kv_cache.shares_prefixes() && !self.config.keeps_state
    }

    /// Has an admitted sequence reuse the first tokens of a cached block behind those that it shares.
    pub(super) fn reuse_part(&mut self, id: SequenceId, output: &mut SchedulerOutput) {
        if !self.reuses_parts() {
            return;
        }
        let sequence = self.sequences.get_mut(&id).expect("it was just planned");
        let start = sequence.num_computed;
        let end = sequence.num_reusable().min(start + BLOCK_SIZE);
        if end <= start {
            return;
        }
        let tokens = sequence.comparable(start, end);
        let found = self.kv_cache.match_part(sequence.chain_before(start / BLOCK_SIZE), tokens);
        if let Some((from, common)) = found {
            let to = sequence.table.blocks()[start / BLOCK_SIZE];
            output.copied.push(Copies { block: Some((from, to)), state: None });
            sequence.num_computed += common;
        }
    }

    /// Makes the last block of a sequence that ends known, if it is not full. Those of beams are many,
    /// and nearly all of no use.
    pub(super) fn keep_part(&mut self, sequence: &Sequence) {
        let Sequence { num_computed, .. } = *sequence;
        // What a step was to copy or compute, and has not, is not there.
        let is_written = sequence.num_written == num_computed;
        if !self.reuses_parts() || sequence.is_beam() || !is_written {
            return;
        }
        let full = num_computed / BLOCK_SIZE;
        let tokens = sequence.comparable(full * BLOCK_SIZE, num_computed);
        if !tokens.is_empty() {
            let parent = sequence.chain_before(full);
            self.kv_cache.publish_part(&sequence.table, full, parent, tokens);
        }
    }
}
