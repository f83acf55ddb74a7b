//! Beams of a search: sequences that hold still once their logits were given, until whoever
//! searches has chosen which of them go on, and with what.

use super::Scheduler;
use super::sequence::SequenceId;
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_pool::BlockId;

impl Scheduler {
    /// Appends a token to a beam, which then runs again.
    pub fn extend(&mut self, id: SequenceId, token_id: u32) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.tokens.push(token_id);
            sequence.held = false;
        }
        self.restart_if_outgrown(id);
    }

    /// Makes a second sequence of a beam that is held: with its tokens, its place in the line and
    /// its full blocks. The content of its last block has to be copied from one block to another
    /// before the next step, if this says so; where there is no room, it is computed again.
    pub fn fork(&mut self, beam: SequenceId, id: SequenceId) -> Option<(BlockId, BlockId)> {
        let parent = self.sequences.get(&beam)?;
        let has_place = self.running.len() < self.config.max_num_seqs;
        let runs = has_place && self.running.contains(&beam);
        let computed = if runs { parent.num_computed } else { 0 };
        let (full, rest) = (computed / BLOCK_SIZE, computed % BLOCK_SIZE);
        let (table, copy) = self.kv_cache.fork(&parent.table, full, rest > 0);
        let kept = if copy.is_some() { computed } else { full * BLOCK_SIZE };
        let forked = parent.forked(id, table, kept);
        let rank = super::rank(&forked);
        self.sequences.insert(id, forked);
        if runs {
            self.start_running(rank);
        } else {
            self.waiting.insert(rank);
        }
        copy
    }
}
