//! Beams of a search: sequences that are held once their logits are computed, until the search has
//! chosen which of them go on, and with which tokens.

use super::Scheduler;
use super::output::Copies;
use super::sequence::SequenceId;
use crate::kv_cache::BLOCK_SIZE;

impl Scheduler {
    /// Appends a token to a beam, which then runs again.
    pub fn extend(&mut self, id: SequenceId, token_id: u32) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.tokens.push(token_id);
            self.shares.serve(sequence.share, 1);
            sequence.held = false;
        }
        self.restart_if_outgrown(id);
    }

    /// Forks a beam that is held: the copy has its tokens, its rank and its full blocks. The last
    /// block, and the state if there is one, are to be copied; where no block is free, the tokens of
    /// the last block are computed again, or all of them if there is a state.
    pub fn fork(&mut self, beam: SequenceId, id: SequenceId) -> Copies {
        let Some(parent) = self.sequences.get(&beam) else { return Copies::default() };
        let may_run = self.running.len() < self.config.max_num_seqs;
        let runs = may_run && self.running.contains(&beam);
        let computed = if runs { parent.num_computed } else { 0 };
        let keeps_state = self.config.keeps_state;
        let rest = computed % BLOCK_SIZE;
        let can_copy = rest == 0 || self.kv_cache.num_used() < self.kv_cache.num_blocks();
        let computed = if keeps_state && !can_copy { 0 } else { computed };
        let (full, rest) = (computed / BLOCK_SIZE, computed % BLOCK_SIZE);
        let (table, block) = self.kv_cache.fork(&parent.table, full, rest > 0);
        let reused = if block.is_some() { computed } else { full * BLOCK_SIZE };
        let from = parent.slot.filter(|_| keeps_state && reused > 0);
        let forked = parent.forked(id, table, reused);
        let (rank, share, unserved) = (super::rank(&forked), forked.share, forked.unserved());
        self.shares.enter(share);
        self.sequences.insert(id, forked);
        if runs {
            self.start_running(rank);
        } else {
            self.waiting.insert(share, rank, unserved);
        }
        Copies { block, state: from.zip(self.sequences[&id].slot) }
    }
}
