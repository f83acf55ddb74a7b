//! Beams of a search: sequences that hold still once their logits were given, until whoever
//! searches has chosen which of them go on, and with what.

use super::Scheduler;
use super::output::Copies;
use super::sequence::SequenceId;
use crate::kv_cache::BLOCK_SIZE;

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
    /// its full blocks. Its last block, and its state if it has one, are to be copied; where there
    /// is no room, what was in the block is computed again, or everything if there is a state.
    pub fn fork(&mut self, beam: SequenceId, id: SequenceId) -> Copies {
        let Some(parent) = self.sequences.get(&beam) else { return Copies::default() };
        let has_place = self.running.len() < self.config.max_num_seqs;
        let runs = has_place && self.running.contains(&beam);
        let computed = if runs { parent.num_computed } else { 0 };
        let keeps_state = self.config.keeps_state;
        let rest = computed % BLOCK_SIZE;
        let has_room = rest == 0 || self.kv_cache.num_used() < self.kv_cache.num_blocks();
        let computed = if keeps_state && !has_room { 0 } else { computed };
        let (full, rest) = (computed / BLOCK_SIZE, computed % BLOCK_SIZE);
        let (table, block) = self.kv_cache.fork(&parent.table, full, rest > 0);
        let kept = if block.is_some() { computed } else { full * BLOCK_SIZE };
        let from = parent.slot.filter(|_| keeps_state && kept > 0);
        let forked = parent.forked(id, table, kept);
        let rank = super::rank(&forked);
        self.sequences.insert(id, forked);
        if runs {
            self.start_running(rank);
        } else {
            self.waiting.insert(rank);
        }
        Copies { block, state: from.zip(self.sequences[&id].slot) }
    }
}
