//! Drafts: tokens that may follow a sequence's last one, computed in the same step and kept as far as
//! the sampler draws the same ones.
//!
//! Keys and values of drafts that turn out wrong are overwritten when their positions are computed
//! again. A recurrent state can't be taken back that way: before the step it is copied to a slot that
//! nobody uses, and if a draft turns out wrong, the sequence goes on with the copy; its right tokens are
//! computed again. Drafts preempt nobody, and get what is left of a step.

use std::collections::HashMap;

use super::Scheduler;
use super::output::{Copies, SchedulerOutput, num_accepted};
use super::sequence::{Sequence, SequenceId};
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::BlockHash;

/// What a draft model needs of a running sequence.
#[derive(Clone, Copy, Debug)]
pub struct DraftedText<'a> {
    /// The prompt, and what was sampled after it.
    pub tokens: &'a [u32],
    /// Blocks in order of position, enough for all tokens and what was reserved.
    pub blocks: &'a [u32],
    /// Hashes of the blocks that tokens fill.
    pub hashes: &'a [BlockHash],
    /// Times the sequence was given other blocks.
    pub starts: u32,
}

/// What came of a sequence's drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The first drafts, which were sampled.
    pub(super) accepted: usize,
    /// Tokens of the step that count as computed.
    pub(super) advanced: usize,
}

impl Scheduler {
    /// The sequences that get their next token in the next step whatever else is in it, and that can
    /// have drafts. `None` where prompts are computed as well: their rows take the time that drafts
    /// would.
    pub fn decoding(&self) -> Option<Vec<&Sequence>> {
        let running = self.running.iter().map(|id| &self.sequences[id]);
        let running: Vec<_> = running.filter(|sequence| sequence.num_pending() > 0).collect();
        // Those that yield are the last, and have no drafts beside others.
        let yielding = running.first().is_some_and(|sequence| sequence.yields());
        let mut decoding = Vec::new();
        for sequence in running.into_iter().filter(|sequence| sequence.yields() == yielding) {
            if !sequence.decodes() {
                return None;
            }
            if !sequence.is_beam() && !sequence.is_pooled() {
                decoding.push(sequence);
            }
        }
        Some(decoding)
    }

    /// Offers tokens that may follow a sequence's last one, to be computed in the next step if there is
    /// room for them: those before the first that would end the sequence.
    pub fn offer_drafts(&mut self, id: SequenceId, mut drafts: Vec<u32>) {
        let Some(sequence) = self.sequences.get(&id) else { return };
        let ends = |(index, token): (usize, &u32)| {
            sequence.stop.check(*token, sequence.num_output() + index + 1).is_some()
        };
        let end = drafts.iter().enumerate().position(ends);
        drafts.truncate(end.unwrap_or(usize::MAX).min(self.most_drafts(sequence)));
        self.sequences.get_mut(&id).expect("it was just seen").drafts = drafts;
    }

    /// Makes room behind a running sequence's last token for up to `count` drafts that are still to be
    /// computed by a draft model, and returns for how many. A free block is left to each running
    /// sequence, so that drafts take none that a token needs.
    pub fn reserve_drafts(&mut self, id: SequenceId, count: usize) -> usize {
        let spare = self.kv_cache.num_free().saturating_sub(self.running.len());
        let Some(sequence) = self.sequences.get(&id) else { return 0 };
        let (length, most) = (sequence.tokens.len(), self.most_drafts(sequence));
        let room = (sequence.table.capacity() + spare * BLOCK_SIZE).saturating_sub(length);
        let count = count.min(most).min(room);
        let Self { sequences, kv_cache, .. } = self;
        let table = sequences.get_mut(&id).map(|sequence| &mut sequence.table);
        if table.is_some_and(|table| kv_cache.grow(table, length + count)) { count } else { 0 }
    }

    /// What a draft model needs of a sequence whose tokens are all in blocks but the last.
    pub fn drafted_text(&mut self, id: SequenceId) -> Option<DraftedText<'_>> {
        let sequence = self.sequences.get_mut(&id)?;
        sequence.hashes();
        Some(DraftedText {
            tokens: &sequence.tokens,
            blocks: sequence.table.blocks(),
            hashes: sequence.known_hashes(),
            starts: sequence.starts(),
        })
    }

    /// Most drafts of a sequence in its next step.
    fn most_drafts(&self, sequence: &Sequence) -> usize {
        let length = sequence.tokens.len();
        // One token more is sampled than is drafted.
        let mut end = self.config.max_model_len - 1;
        if let Some(longest) = self.config.fixed_rope_length.filter(|_| !sequence.is_long()) {
            end = end.min(longest);
        }
        if self.config.keeps_state {
            // A state is kept where a block ends, and what a prompt's chunks leave is not drafted on.
            end = end.min(length.next_multiple_of(BLOCK_SIZE));
            if sequence.num_computed < sequence.prompt_len {
                end = length;
            }
        }
        end.saturating_sub(length)
    }

    /// Takes the drafts of the first `drafted` sequences of the step whose pending tokens are all planned,
    /// `most` in all, as far as there are blocks and slots.
    pub(super) fn schedule_drafts(
        &mut self,
        drafted: usize,
        mut most: usize,
        output: &mut SchedulerOutput,
    ) {
        for (index, (id, num_tokens)) in output.scheduled.iter().enumerate() {
            if index == drafted {
                most = 0;
            }
            let sequence = self.sequences.get_mut(id).expect("running sequences exist");
            let complete = *num_tokens == sequence.num_pending();
            let mut count = if complete { sequence.drafts.len().min(most) } else { 0 };
            if count > 0 && !self.kv_cache.grow(&mut sequence.table, sequence.tokens.len() + count)
            {
                count = 0;
            }
            if count > 0 && self.config.keeps_state {
                sequence.backup = self.free_slots.pop();
                let copied = sequence.slot.zip(sequence.backup);
                output
                    .copied
                    .extend(copied.map(|state| Copies { block: None, state: Some(state) }));
                count = if copied.is_some() { count } else { 0 };
            }
            sequence.drafts.truncate(count);
            most -= count;
        }
    }

    /// Takes the drafts that were sampled as tokens of their sequences, and drops the others.
    pub(super) fn settle_drafts(
        &mut self,
        output: &SchedulerOutput,
        sampled: &[(SequenceId, Vec<u32>)],
    ) -> HashMap<SequenceId, Settled> {
        let mut settled = HashMap::new();
        for (id, num_tokens) in &output.scheduled {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            if sequence.drafts.is_empty() {
                continue;
            }
            let drafts = std::mem::take(&mut sequence.drafts);
            let tokens = sampled.iter().find(|(other, _)| other == id);
            let accepted = num_accepted(&drafts, tokens.map_or(&[], |(_, tokens)| tokens));
            sequence.tokens.extend(&drafts[..accepted]);
            let mut advanced = num_tokens + accepted;
            if let Some(backup) = sequence.backup.take() {
                let unused = if accepted < drafts.len() {
                    advanced = 0;
                    sequence.slot.replace(backup)
                } else {
                    Some(backup)
                };
                self.free_slots.extend(unused);
            }
            settled.insert(*id, Settled { accepted, advanced });
        }
        settled
    }

    /// Takes back a step that was given up before its end: nothing of it counts as computed, and tokens
    /// may be drafted anew.
    pub fn give_up(&mut self, output: &SchedulerOutput) {
        for (id, _) in &output.scheduled {
            if let Some(mut sequence) = self.sequences.remove(id) {
                self.drop_drafts(&mut sequence);
                self.sequences.insert(*id, sequence);
            }
        }
    }

    /// Forgets the drafts of a sequence that stops running, or whose step was given up.
    pub(super) fn drop_drafts(&mut self, sequence: &mut Sequence) {
        sequence.drafts.clear();
        self.free_slots.extend(sequence.backup.take());
    }
}
