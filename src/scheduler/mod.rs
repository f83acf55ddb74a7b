//! Who runs in the next step, and how many tokens of each. Pure integers: no clock, no tensor.
//!
//! There is no prefill phase and no decode phase (as in vLLM's v1 scheduler): a sequence has
//! tokens whose KV is pending, and each step computes some of them.

use std::collections::{BTreeSet, HashMap, HashSet};

mod beams;
pub mod drafts;
mod load_table;
mod loads;
pub mod output;
mod parts;
mod pictures;
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
use shares::{ShareId, Shares};
use snapshot_plan::spacing;
use stop::FinishReason;

use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;
use crate::kv_cache::events::CacheEvent;
use crate::kv_cache::snapshots::SnapshotId;
use crate::kv_cache::{BLOCK_SIZE, BlockTable, KvCacheManager};

/// Fewest prompt tokens of a step, however many streams decode in it: prompts must make progress.
const LEAST_PROMPT_TOKENS: usize = 32;

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

    /// The digests of the pictures of all sequences.
    pub fn pictures(&self) -> HashSet<[u8; 16]> {
        let all = self.sequences.values().flat_map(Sequence::pictures);
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
    /// If someone decodes, prompts get what is left of `tokens_beside_decodes`, so that the next
    /// tokens don't wait long; if nobody does, they get the whole step. Where prompts are cut
    /// changes no result, so the number may come from a clock.
    pub fn schedule(&mut self, tokens_beside_decodes: usize) -> SchedulerOutput {
        let anybody = |_, _| Some(true);
        let mut output = SchedulerOutput::default();
        let mut budget = self.config.max_num_batched_tokens;
        let mut decodes = 0;
        // Decodes before chunks: a long prompt must not hold up a stream.
        for catching_up in [false, true] {
            let candidates = if catching_up && self.shares.are_several() {
                self.admit_overtaking(&mut budget, &mut output);
                self.catching_up(&output)
            } else {
                self.running.clone()
            };
            for id in candidates {
                self.schedule_running(id, catching_up, &mut budget, &mut output);
            }
            if !catching_up {
                decodes = output.scheduled.len();
            }
            if !catching_up && decodes > 0 {
                let rest = tokens_beside_decodes.saturating_sub(decodes);
                budget = budget.min(rest.max(LEAST_PROMPT_TOKENS));
            }
        }
        if output.preempted.is_empty() {
            self.admit_waiting(anybody, &mut budget, &mut output);
        }
        // Beams that only hold their blocks must not keep others from the token they wait for.
        while output.scheduled.is_empty()
            && !self.has_loads()
            && let Some(holder) = self.last_held()
        {
            self.preempt(holder, &mut budget, &mut output);
            self.admit_waiting(anybody, &mut budget, &mut output);
        }
        // Beside prompts the rows of drafts would cost as much as theirs.
        let most = if output.scheduled.len() > decodes { 0 } else { budget };
        self.schedule_drafts(most, &mut output);
        output
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
                pictures: &sequence.pictures,
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

    /// Admits sequences of which keys were served less than of any whose prompt is being computed, so that
    /// they don't wait for the end of a long one.
    fn admit_overtaking(&mut self, budget: &mut usize, output: &mut SchedulerOutput) {
        let catching_up = self.running.iter().map(|id| &self.sequences[id]);
        let keys: HashSet<ShareId> = catching_up
            .filter(|sequence| !sequence.decodes())
            .map(|sequence| sequence.share)
            .collect();
        let served = keys.iter().map(|key| self.shares.served(*key)).min();
        if let Some(served) = served.filter(|_| output.preempted.is_empty()) {
            let may = |key, before| (before <= served).then(|| !keys.contains(&key));
            self.admit_waiting(may, budget, output);
        }
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
            (sequence.priority == i32::MAX, self.shares.served(sequence.share))
        };
        // Of equal ones that is the last.
        self.running.iter().max_by_key(place).copied()
    }

    /// Admits waiting sequences in their order. What `may` says of a key, and of what was served of it
    /// before its sequence, is whether that one may be admitted; `None` ends it.
    fn admit_waiting(
        &mut self,
        may: impl Fn(ShareId, u64) -> Option<bool>,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) {
        self.waiting.order(&self.shares);
        let mut in_flight = self.blocks_in_flight();
        let (mut after, mut no_blocks) = (None, false);
        loop {
            let may_run = self.running.len() < self.config.max_num_seqs;
            let full = no_blocks || *budget == 0 || !may_run;
            // Where snapshots are taken, those that can't run yet still say where they will resume.
            if full && self.snapshot_spacing == 0 {
                return;
            }
            let Some((key, at, before)) = self.waiting.next(after) else { return };
            let Some(is_its_turn) = may(key, before) else { return };
            after = Some(at);
            if !is_its_turn {
                continue;
            }
            let id = at.2;
            let held = self.sequences[&id].held || self.awaits_load(id);
            if held || self.waits_for_snapshot(id, budget, output) || full {
                continue;
            }
            let sequence = self.sequences.get_mut(&id).expect("waiting sequences exist");
            let hashes = sequence.reusable_hashes();
            let known = self.kv_cache.match_prefix(hashes);
            let (reused, next) = if self.config.keeps_state {
                (self.kv_cache.match_snapshot(&hashes[..known]), None)
            } else {
                (known, hashes.get(known))
            };
            // The block this one would compute next is being computed by another sequence: wait
            // for it rather than compute it twice.
            if next.is_some_and(|hash| in_flight.contains(hash)) {
                continue;
            }
            if !self.allocate(at, reused) {
                no_blocks = true;
                continue;
            }
            if self.kv_cache.shares_prefixes() && !self.config.keeps_state {
                let hashes = self.sequences[&id].known_reusable_hashes();
                in_flight.extend(hashes[reused..].iter().copied());
            }
            self.waiting.remove(key, at);
            self.admit(at, [known, reused], budget, output);
        }
    }

    /// Fills a waiting sequence's table, the first `reused` blocks from the cache. Returns false where
    /// there are too few blocks, even without those that are held for sequences behind it.
    fn allocate(&mut self, at: Rank, reused: usize) -> bool {
        let (id, mut table) = (at.2, BlockTable::default());
        loop {
            let sequence = &self.sequences[&id];
            let prefix = &sequence.known_reusable_hashes()[..reused];
            if self.kv_cache.allocate(&mut table, prefix, sequence.tokens.len()) {
                break;
            }
            // Its own blocks are in the way where it resumes before them.
            if !self.give_up_loads(Some(at)) && !self.release_load(id) {
                return false;
            }
        }
        self.release_load(id);
        self.sequences.get_mut(&id).expect("waiting sequences exist").table = table;
        true
    }

    /// Has a sequence with blocks run from behind the first `reused` of them on, of which the cache
    /// had `known`.
    fn admit(
        &mut self,
        at: Rank,
        [known, reused]: [usize; 2],
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) {
        self.start_running(at);
        let sequence = self.sequences.get_mut(&at.2).expect("it was just planned");
        sequence.num_computed = reused * BLOCK_SIZE;
        sequence.num_published = reused;
        self.reuse_part(at.2, output);
        self.resume(at.2, known * BLOCK_SIZE, output);
        let sequence = self.sequences.get_mut(&at.2).expect("it was just planned");
        if sequence.is_new() {
            sequence.num_cached = sequence.num_computed;
            self.shares.admit(sequence.share, sequence.tokens.len() - sequence.num_computed);
            output.admitted.push((at.2, sequence.num_computed));
        }
        let num_tokens = self.sequences[&at.2].tokens_of_step(*budget, self.room(output));
        if num_tokens > 0 {
            *budget = budget.saturating_sub(num_tokens);
            output.scheduled.push((at.2, num_tokens));
        }
    }

    /// Tokens that a step has room for beside those that are planned, whatever they should be.
    fn room(&self, output: &SchedulerOutput) -> usize {
        self.config.max_num_batched_tokens.saturating_sub(output.num_tokens())
    }

    fn start_running(&mut self, at: Rank) {
        let slot = self.free_slots.pop().expect("as many slots as sequences may run");
        self.sequences.get_mut(&at.2).expect("it was just planned").slot = Some(slot);
        let index = self.running.partition_point(|other| rank(&self.sequences[other]) < at);
        self.running.insert(index, at.2);
    }

    /// The running beam that is held and has the last rank.
    fn last_held(&self) -> Option<SequenceId> {
        self.running.iter().rev().find(|id| self.sequences[id].held).copied()
    }

    /// Full prompt blocks that running sequences have yet to compute.
    fn blocks_in_flight(&mut self) -> HashSet<BlockHash> {
        let mut in_flight = HashSet::new();
        let shares = self.kv_cache.shares_prefixes() && !self.config.keeps_state;
        if self.waiting.is_empty() || !shares {
            return in_flight;
        }
        for id in &self.running {
            let sequence = self.sequences.get_mut(id).expect("running sequences exist");
            let from = sequence.num_published;
            if sequence.num_pending() > 1 {
                in_flight.extend(sequence.hashes().iter().skip(from).copied());
            }
        }
        in_flight
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
