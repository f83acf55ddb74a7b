//! Who runs in the next step, and how many tokens of each. Pure integers: no clock, no tensor.
//!
//! There is no prefill phase and no decode phase (as in vLLM's v1 scheduler): a sequence has
//! tokens whose KV is pending, and each step computes some of them.

use std::collections::{BTreeSet, HashMap, HashSet};

mod admission;
mod beams;
pub mod drafts;
mod load_table;
mod loads;
mod media;
pub mod output;
mod parts;
mod publish;
pub mod queue;
pub mod sequence;
pub mod shares;
mod snapshot_plan;
mod snapshots;
pub mod stop;

use load_table::Loads;
use output::{Finished, PlannedSequence, SchedulerOutput};
use queue::{Rank, WaitingQueue};
use sequence::{AdapterId, Sequence, SequenceId};
use shares::Shares;
use snapshot_plan::spacing;
use stop::FinishReason;

use crate::kv_cache::KvCacheManager;
use crate::kv_cache::content::Content;
use crate::kv_cache::events::CacheEvent;
use crate::kv_cache::snapshots::SnapshotId;

/// Fewest prompt tokens of a step, however many streams decode in it: prompts must make progress.
const LEAST_PROMPT_TOKENS: usize = 32;

/// For so many steps after one with tokens of others, those of sequences that yield are short: the next
/// one who comes must not wait long for the end of such a step,
const LATELY: usize = 256;
/// which has this part of the tokens that prompts would have beside a stream,
const SHORT_PART: usize = 4;
/// or so many.
const LEAST_SHORT: usize = 16;

/// The bounds of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Most sequences in a step, at least 1.
    pub max_num_seqs: usize,
    /// Recurrent states of sequences, at least `max_num_seqs`: those beyond are for states from before
    /// drafts, as are those of sequences that don't run.
    pub num_slots: usize,
    /// Most tokens in a step, at least `max_num_seqs`, so that every decode fits.
    pub max_num_batched_tokens: usize,
    /// Most tokens of a sequence; the whole pool holds at least that many.
    pub max_model_len: usize,
    /// Longest sequence that the model computes as a short one. Once a sequence has more tokens, all
    /// of them are computed again, and its blocks are shared only with others that are as long.
    pub fixed_rope_length: Option<usize>,
    /// Besides blocks a sequence has a recurrent state, which stands for all of its computed tokens:
    /// it resumes only where there is a snapshot of it.
    pub keeps_state: bool,
    /// A sequence that decodes gets a slot for one token more than it computes, if there is one, so
    /// that the next step can begin before this one's tokens are known.
    pub lookahead: bool,
}

/// What a step may have beside tokens that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Most tokens of a step in which someone decodes: what decodes leave of them is for prompts.
    pub decodes: usize,
    /// Most tokens of sequences that yield in a step that has tokens of others.
    pub others: usize,
}

impl Beside {
    /// As many as fit.
    pub const ANY: Self = Self { decodes: usize::MAX, others: usize::MAX };
}

/// What came of planning some sequences of a step.
#[derive(Clone, Copy, Debug)]
struct Filled {
    /// How many of them decode.
    decodes: usize,
    /// Whether one of them found no room.
    is_short: bool,
}

/// Owns every sequence and its blocks.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    kv_cache: KvCacheManager,
    sequences: HashMap<SequenceId, Sequence>,
    waiting: WaitingQueue,
    shares: Shares,
    // In order of rank.
    running: Vec<SequenceId>,
    // State slots that no running sequence holds.
    free_slots: Vec<u32>,
    // Tokens between two snapshots of a long prompt; 0 if none are taken.
    snapshot_spacing: usize,
    // Snapshots that the last step's states are to be copied to, `(from, to)`.
    snapshots: Vec<(u32, SnapshotId)>,
    loads: Loads,
    arrivals: u64,
    // Steps since one that had tokens of sequences that don't yield.
    since_others: usize,
}

impl Scheduler {
    /// A scheduler over an empty cache.
    pub fn new(config: SchedulerConfig, kv_cache: KvCacheManager) -> Self {
        let rows = if config.keeps_state { kv_cache.num_snapshots() } else { 0 };
        let spacing = spacing(rows, config.max_model_len, config.max_num_batched_tokens);
        Self {
            snapshot_spacing: if rows > 0 { spacing } else { 0 },
            snapshots: Vec::new(),
            loads: Loads::default(),
            config,
            kv_cache,
            sequences: HashMap::new(),
            waiting: WaitingQueue::default(),
            shares: Shares::default(),
            running: Vec::new(),
            free_slots: (0..).take(config.num_slots).collect(),
            arrivals: 0,
            since_others: LATELY,
        }
    }

    /// Queues a sequence, which fits `max_model_len`.
    pub fn add(&mut self, mut sequence: Sequence) {
        sequence.outgrows(self.config.fixed_rope_length);
        sequence.arrival = self.arrivals;
        self.arrivals += 1;
        self.shares.enter(sequence.share);
        self.waiting.insert(sequence.share, rank(&sequence), sequence.unserved());
        self.sequences.insert(sequence.id, sequence);
    }

    /// Removes a sequence, whether it runs or waits, and frees its blocks.
    pub fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let mut sequence = self.sequences.remove(&id)?;
        self.waiting.remove(sequence.share, rank(&sequence));
        self.stop_running(&mut sequence);
        self.shares.leave(sequence.share);
        Some(sequence)
    }

    /// Sequences that hold blocks.
    pub fn num_running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The adapters of sequences that hold blocks, and of those that wait.
    pub fn adapters(&self) -> [BTreeSet<AdapterId>; 2] {
        let mut adapters = [BTreeSet::new(), BTreeSet::new()];
        let running: HashSet<SequenceId> = self.running.iter().copied().collect();
        for sequence in self.sequences.values() {
            let waits = usize::from(!running.contains(&sequence.id));
            adapters[waits].extend(sequence.adapter);
        }
        adapters
    }

    /// The digests of the pictures and sounds of all sequences.
    pub fn media(&self) -> HashSet<[u8; 16]> {
        let all = self.sequences.values().flat_map(Sequence::media);
        all.map(|span| span.digest).collect()
    }

    /// The blocks and who shares them.
    pub fn kv_cache(&self) -> &KvCacheManager {
        &self.kv_cache
    }

    /// What can be reused since the last call and what can't any more, in order; nothing if the cache
    /// keeps no such record.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        self.kv_cache.take_events()
    }

    /// A sequence that was added and has not ended.
    pub fn sequence(&self, id: SequenceId) -> Option<&Sequence> {
        self.sequences.get(&id)
    }

    /// Plans the next step: running sequences that decode, then running ones that still catch up, then
    /// waiting ones. Those of several keys take turns by what was served of each. Empty only when there
    /// are no sequences, or only beams that are held.
    ///
    /// If someone decodes, prompts get what is left of the tokens that may stand beside, so that the next
    /// tokens don't wait long; if nobody does, they get the whole step. Those that yield have the step
    /// when no other one has a token in it, and keep it short if one had lately; else they get a few, and
    /// give up their room when others need it. Where prompts are cut and when a token comes changes no result, so the numbers may come from a
    /// clock.
    pub fn schedule(&mut self, beside: Beside) -> SchedulerOutput {
        let mut output = SchedulerOutput::default();
        let mut budget = self.config.max_num_batched_tokens;
        let mut filled = self.fill(false, beside.decodes, &mut budget, &mut output);
        let others = output.scheduled.len();
        self.since_others = if others > 0 { 0 } else { self.since_others.saturating_add(1) };
        if others == 0 && self.has_yielding() {
            if self.since_others <= LATELY {
                budget = budget.min((beside.decodes / SHORT_PART).max(LEAST_SHORT));
            }
            filled = self.fill(true, beside.decodes, &mut budget, &mut output);
        } else if self.has_yielding() && !filled.is_short {
            let mut own = budget.min(beside.others);
            self.fill(true, usize::MAX, &mut own, &mut output);
            let yielding = output.scheduled[others..].iter();
            output.num_yielding = yielding.map(|(_, num_tokens)| num_tokens).sum();
            budget = budget.saturating_sub(output.num_yielding);
        }
        // Beams that only hold their blocks must not keep others from the token they wait for.
        while output.scheduled.is_empty()
            && !self.has_loads()
            && let Some(holder) = self.last_held()
        {
            self.preempt(holder, &mut budget, &mut output);
            for yielding in [false, true] {
                self.admit_waiting(yielding, |_, _| Some(true), &mut budget, &mut output);
            }
        }
        let drafted = if others > 0 { others } else { output.scheduled.len() };
        // Beside prompts the rows of drafts would cost as much as theirs.
        let most = if drafted > filled.decodes { 0 } else { budget };
        self.schedule_drafts(drafted, most, &mut output);
        output
    }

    /// Plans the sequences that yield, or those that don't, behind what is planned.
    fn fill(
        &mut self,
        yielding: bool,
        tokens_beside_decodes: usize,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) -> Filled {
        let anybody = |_, _| Some(true);
        let first = output.scheduled.len();
        let mut decodes = 0;
        // Decodes before chunks: a long prompt must not hold up a stream.
        for catching_up in [false, true] {
            let mut candidates = if catching_up && self.shares.are_several() {
                self.admit_overtaking(yielding, budget, output);
                self.catching_up(output)
            } else {
                self.running.clone()
            };
            candidates.retain(|id| self.sequences[id].yields() == yielding);
            for id in candidates {
                self.schedule_running(id, catching_up, budget, output);
            }
            if !catching_up {
                decodes = output.scheduled.len() - first;
            }
            if !catching_up && decodes > 0 {
                let rest = tokens_beside_decodes.saturating_sub(decodes);
                *budget = (*budget).min(rest.max(LEAST_PROMPT_TOKENS));
            }
        }
        let mut is_short = false;
        if output.preempted.is_empty() {
            is_short = self.admit_waiting(yielding, anybody, budget, output);
            while is_short && !yielding && self.preempt_yielding(budget, output) {
                is_short = self.admit_waiting(yielding, anybody, budget, output);
            }
        }
        Filled { decodes, is_short }
    }

    /// Whether any sequence yields.
    fn has_yielding(&self) -> bool {
        let last = self.running.last().map(|id| &self.sequences[id]);
        last.is_some_and(Sequence::yields) || self.waiting.has_yielding()
    }

    /// Preempts the last of those that yield, if one runs.
    fn preempt_yielding(&mut self, budget: &mut usize, output: &mut SchedulerOutput) -> bool {
        let last = self.running.last().copied().filter(|id| self.sequences[id].yields());
        last.inspect(|id| self.preempt(*id, budget, output)).is_some()
    }

    /// What the runner needs of a planned step, in the order of its rows.
    pub fn plan<'a>(
        &'a self,
        output: &'a SchedulerOutput,
    ) -> impl Iterator<Item = PlannedSequence<'a>> {
        output.scheduled.iter().map(|(id, num_tokens)| {
            let sequence = &self.sequences[id];
            let end = sequence.num_computed + num_tokens;
            PlannedSequence {
                id: *id,
                token_ids: &sequence.tokens[sequence.num_computed..end],
                drafts: &sequence.drafts,
                first_position: sequence.num_computed,
                sequence_len: sequence.tokens.len(),
                block_table: sequence.table.blocks(),
                slot: sequence.slot.expect("running sequences have a slot"),
                scored: sequence.scored_by(end),
                samples: end == sequence.tokens.len() && !sequence.is_pooled(),
                pooled: sequence.pooled_by(end),
                tapped: false,
                adapter: sequence.adapter,
                media: &sequence.media,
                prefix_len: sequence.prefix_len,
            }
        })
    }

    /// Applies a step that ran: `sampled` has the next tokens of every planned sequence that samples,
    /// at least one more than its drafts that they begin with. Returns the sequences that ended; they
    /// are gone, their blocks free.
    pub fn update(
        &mut self,
        output: &SchedulerOutput,
        sampled: &[(SequenceId, Vec<u32>)],
    ) -> Vec<(Finished, Sequence)> {
        let adds_tokens = self.reuses_parts();
        let accepted = self.settle_drafts(output, sampled);
        for (id, num_tokens) in &output.scheduled {
            if let Some(sequence) = self.sequences.get_mut(id) {
                sequence.advance(accepted.get(id).map_or(*num_tokens, |drafted| drafted.advanced));
                sequence.held = sequence.is_beam() && sequence.num_pending() == 0;
                publish::full_blocks(sequence, &mut self.kv_cache, &mut self.loads, adds_tokens);
            }
        }
        self.keep_states(output);
        let mut finished = Vec::new();
        for (id, tokens) in sampled {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let new = &tokens[accepted.get(id).map_or(0, |drafted| drafted.accepted)..];
            let before = sequence.num_output();
            let end = append(sequence, new, self.config.max_model_len);
            self.shares.serve(sequence.share, sequence.num_output() - before);
            if let Some((reason, dropped)) = end
                && let Some(sequence) = self.remove(*id)
            {
                finished.push((Finished { id: *id, reason, dropped }, sequence));
            }
            self.restart_if_outgrown(*id);
        }
        finished
    }

    /// Whether all that is planned yields.
    pub fn is_yielding(&self, output: &SchedulerOutput) -> bool {
        let mut ids = output.scheduled.iter().map(|(id, _)| id);
        ids.all(|id| self.sequences.get(id).is_some_and(Sequence::yields))
    }

    /// Has a sequence computed from its first token on, if it is now too long for what was computed.
    fn restart_if_outgrown(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        if sequence.outgrows(self.config.fixed_rope_length) && self.running.contains(&id) {
            self.wait_again(id);
        }
    }

    /// Frees a running sequence's blocks and its slot, and queues it again.
    fn wait_again(&mut self, id: SequenceId) -> &mut Sequence {
        let mut sequence = self.sequences.remove(&id).expect("running sequences exist");
        self.stop_running(&mut sequence);
        sequence.start_over();
        self.waiting.insert(sequence.share, rank(&sequence), sequence.unserved());
        self.sequences.entry(id).or_insert(sequence)
    }

    /// Frees the blocks and the slot of a sequence.
    fn stop_running(&mut self, sequence: &mut Sequence) {
        self.running.retain(|other| *other != sequence.id);
        self.release_load(sequence.id);
        if let Some(hash) = sequence.answer_snapshot {
            self.loads.add(Content::Snapshot(hash));
        }
        let used = sequence.known_hashes().get(..sequence.num_published);
        // Of one that is too long for what was computed nothing is of use.
        self.loads.release(used.unwrap_or_default());
        self.keep_part(sequence);
        self.kv_cache.release(&mut sequence.table);
        self.free_slots.extend(sequence.slot.take());
        self.drop_drafts(sequence);
    }

    fn schedule_running(
        &mut self,
        id: SequenceId,
        catching_up: bool,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) {
        let sequence = self.running.contains(&id).then(|| &self.sequences[&id]);
        let Some(sequence) = sequence.filter(|sequence| sequence.decodes() != catching_up) else {
            return;
        };
        let num_tokens = sequence.tokens_of_step(*budget, self.room(output));
        if num_tokens == 0 {
            return;
        }
        loop {
            let sequence = self.sequences.get_mut(&id).expect("running sequences exist");
            let end = sequence.num_computed + num_tokens;
            if self.kv_cache.grow(&mut sequence.table, end) {
                if self.config.lookahead && !catching_up && end < self.config.max_model_len {
                    self.kv_cache.grow(&mut sequence.table, end + 1);
                }
                *budget = budget.saturating_sub(num_tokens);
                output.scheduled.push((id, num_tokens));
                return;
            }
            if self.give_up_loads(None) {
                continue;
            }
            let victim = self.victim().expect("at least `id` is running");
            self.preempt(victim, budget, output);
            if victim == id {
                return;
            }
        }
    }

    /// Preempts a running sequence: frees its blocks and keeps the tokens that it sampled.
    fn preempt(&mut self, id: SequenceId, budget: &mut usize, output: &mut SchedulerOutput) {
        self.wait_again(id).preemptions += 1;
        output.scheduled.retain(|(other, num_tokens)| {
            if *other == id {
                *budget += num_tokens;
            }
            *other != id
        });
        output.preempted.push(id);
    }

    /// Running sequences that this step has no tokens of yet, those of keys first of which less was served.
    fn catching_up(&self, output: &SchedulerOutput) -> Vec<SequenceId> {
        let planned: HashSet<SequenceId> = output.scheduled.iter().map(|(id, _)| *id).collect();
        let mut rest: Vec<SequenceId> =
            self.running.iter().filter(|id| !planned.contains(id)).copied().collect();
        // The order within a key stays.
        rest.sort_by_key(|id| self.shares.served(self.sequences[id].share));
        rest
    }

    /// The running sequence that gives up its blocks: the last one, of the key that was served most.
    fn victim(&self) -> Option<SequenceId> {
        if !self.shares.are_several() {
            return self.running.last().copied();
        }
        let place = |id: &&SequenceId| {
            let sequence = &self.sequences[*id];
            (sequence.yields(), self.shares.served(sequence.share))
        };
        // Of equal ones that is the last.
        self.running.iter().max_by_key(place).copied()
    }

    /// Tokens that a step has room for beside those that are planned, whatever they should be.
    fn room(&self, output: &SchedulerOutput) -> usize {
        self.config.max_num_batched_tokens.saturating_sub(output.num_tokens())
    }

    /// The running beam that is held and has the last rank.
    fn last_held(&self) -> Option<SequenceId> {
        self.running.iter().rev().find(|id| self.sequences[id].held).copied()
    }
}

/// Appends tokens up to the one that ends the sequence, if one does: why, and how many were left.
fn append(
    sequence: &mut Sequence,
    tokens: &[u32],
    max_model_len: usize,
) -> Option<(FinishReason, usize)> {
    for (index, token) in tokens.iter().enumerate() {
        sequence.tokens.push(*token);
        let full = sequence.tokens.len() >= max_model_len;
        let reason = sequence.stop.check(*token, sequence.num_output());
        if let Some(reason) = reason.or(full.then_some(FinishReason::Length)) {
            return Some((reason, tokens.len() - index - 1));
        }
    }
    None
}

fn rank(sequence: &Sequence) -> Rank {
    (sequence.priority, sequence.arrival, sequence.id)
}

#[cfg(test)]
mod tests;
