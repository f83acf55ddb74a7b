//! Snapshots of recurrent states: where they are taken, and how sequences resume from them.
//!
//! A recurrent layer's state stands for all tokens before it, so a sequence can resume only where
//! somebody kept a copy. States are made token by token, so a copy at the end of a block has the bits
//! that any sequence with the same tokens would compute. A sequence resumes at the longest cached
//! prefix whose last block has a snapshot; what blocks are cached behind that one it computes again,
//! into blocks of its own.
//!
//! A state is as large as the KV cache of hundreds or thousands of tokens, so snapshots are few. They
//! are taken where others are likely to resume:
//!
//! - at the last end of a block in a prompt, some tokens before the prompt's end, where the next turn
//!   of a conversation may differ: the same prompt sent again is a hit the first time;
//! - where a new prompt leaves what is cached or is being computed: the third of three prompts with a
//!   common beginning is a hit, and so are all that arrive while the first is computed, since they
//!   wait for it to get there;
//! - every so often in a long prompt, so that a prompt that parts from it anywhere resumes near;
//! - at every end of a block of an answer, in place of the one before: when the answer ends, the last
//!   one stays.
//!
//! The first three are ends of blocks inside of prompts, where chunks are cut. That changes no result,
//! but costs a step, so a snapshot must save at least [`LEAST_GAIN`] tokens.
//!
//! The scheduler decides which row of the pool takes the state of which slot; the runner copies.

use super::Scheduler;
use super::output::SchedulerOutput;
use super::sequence::{Sequence, SequenceId};
use super::snapshot_plan::{LEAST_GAIN, SnapshotPlan};
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::num_common;
use crate::kv_cache::content::Content;
use crate::kv_cache::snapshots::SnapshotId;

impl Scheduler {
    /// Which rows of the snapshot pool take the states of which slots, `(from, to)`: to be copied
    /// in this order before anything else changes a slot. Each is told once.
    pub fn take_snapshots(&mut self) -> Vec<(u32, SnapshotId)> {
        std::mem::take(&mut self.snapshots)
    }

    /// Forgets all snapshots, some of which could not be copied.
    pub fn forget_snapshots(&mut self) {
        self.kv_cache.clear_snapshots();
    }

    /// Whether a running sequence is about to compute what a waiting one begins with, so much of it
    /// that the latter should wait. The running one takes a snapshot where they part, even if this
    /// step was to carry it beyond.
    pub(super) fn waits_for_snapshot(
        &mut self,
        id: SequenceId,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) -> bool {
        let Some((other, position)) = self.parting(id) else { return false };
        let hashes = self.sequences[&id].known_reusable_hashes();
        let known = self.kv_cache.match_prefix(hashes);
        let resumed = self.kv_cache.match_snapshot(&hashes[..known]) * BLOCK_SIZE;
        if position < resumed + LEAST_GAIN {
            return false;
        }
        let sequence = self.sequences.get_mut(&other).expect("running sequences exist");
        if !sequence.snapshots.add_branch(position, sequence.num_computed) {
            return true;
        }
        let most = position - sequence.num_computed;
        let scheduled = output.scheduled.iter_mut().find(|(scheduled, _)| *scheduled == other);
        if let Some((_, num_tokens)) = scheduled
            && *num_tokens > most
        {
            *budget += *num_tokens - most;
            *num_tokens = most;
        }
        true
    }

    /// The running sequence that is yet to compute most of what a waiting one begins with, and where
    /// they part.
    fn parting(&mut self, id: SequenceId) -> Option<(SequenceId, usize)> {
        if self.snapshot_spacing == 0 {
            return None;
        }
        self.sequences.get_mut(&id)?.reusable_hashes();
        let own = self.sequences[&id].known_reusable_hashes();
        let yielding = self.sequences[&id].yields();
        let parting = |other: &SequenceId| {
            let sequence = &self.sequences[other];
            let position = num_common(own, sequence.known_hashes()) * BLOCK_SIZE;
            let takes = sequence.snapshots.is_active() && sequence.num_pending() > 1;
            // What one that yields computes may be long in coming, and none that yields holds up others.
            let takes = takes && sequence.yields() == yielding;
            let ahead = position > sequence.num_computed && position >= LEAST_GAIN;
            (takes && ahead).then_some((*other, position))
        };
        self.running.iter().filter_map(parting).max_by_key(|(_, position)| *position)
    }

    /// Has an admitted sequence resume at its `num_computed` tokens, `known` of which are cached.
    pub(super) fn resume(&mut self, id: SequenceId, known: usize, output: &mut SchedulerOutput) {
        let sequence = self.sequences.get_mut(&id).expect("it was just planned");
        let (start, end) = (sequence.num_computed, sequence.tokens.len());
        sequence.snapshots = SnapshotPlan::new(start, end, known, self.snapshot_spacing);
        let behind = (start / BLOCK_SIZE).checked_sub(1);
        let hash = behind.map(|block| sequence.known_hashes()[block]);
        let row = hash.and_then(|hash| self.kv_cache.use_snapshot(hash));
        output.restored.extend(row.zip(sequence.slot));
    }

    /// Decides which states are kept of those that a step has made.
    pub(super) fn keep_states(&mut self, output: &SchedulerOutput) {
        if self.snapshot_spacing == 0 {
            return;
        }
        for (id, _) in &output.scheduled {
            let Some(sequence) = self.sequences.get(id) else { continue };
            let at = sequence.num_computed;
            if at % BLOCK_SIZE != 0 {
                continue;
            }
            let planned = sequence.snapshots.contains(at);
            let of_answer = !planned && sequence.answers();
            let has_row = sequence.answer_snapshot.is_some();
            if planned || of_answer && (has_row || self.has_row_for_answer()) {
                self.keep_state(*id, of_answer);
            }
        }
    }

    /// Running answers keep at most half of the rows, so that prompts have the others.
    fn has_row_for_answer(&self) -> bool {
        let has_row = |id: &&SequenceId| self.sequences[id].answer_snapshot.is_some();
        self.running.iter().filter(has_row).count() * 2 < self.kv_cache.num_snapshots()
    }

    fn keep_state(&mut self, id: SequenceId, of_answer: bool) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        let last = sequence.num_computed / BLOCK_SIZE - 1;
        let hash = sequence.hashes()[last];
        let replaced = sequence.answer_snapshot.filter(|_| of_answer);
        let Some(row) = self.kv_cache.add_snapshot(hash, replaced) else { return };
        if of_answer {
            sequence.answer_snapshot = Some(hash);
        } else {
            self.loads.add(Content::Snapshot(hash));
        }
        self.snapshots.extend(sequence.slot.map(|slot| (slot, row)));
    }
}

impl Sequence {
    /// Whether the sequence decodes an answer, behind the tokens that it was admitted with, in a
    /// conversation that may go on: the beams of a search are many, and nearly all are dropped.
    fn answers(&self) -> bool {
        let known = self.snapshots.num_admitted();
        self.num_computed >= known && !self.is_beam() && !self.is_pooled()
    }
}
