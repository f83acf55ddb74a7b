//! Which waiting sequences run from the next step on, and where they begin.

use std::collections::HashSet;

use super::output::SchedulerOutput;
use super::queue::Rank;
use super::sequence::YIELDS;
use super::shares::ShareId;
use super::{Scheduler, rank};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

impl Scheduler {
    /// Admits sequences of which keys were served less than of any whose prompt is being computed, so that
    /// they don't wait for the end of a long one; of those that yield, or of the others.
    pub(super) fn admit_overtaking(
        &mut self,
        yielding: bool,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) {
        let running = self.running.iter().map(|id| &self.sequences[id]);
        let catching_up = running.filter(|sequence| sequence.yields() == yielding);
        let keys: HashSet<ShareId> = catching_up
            .filter(|sequence| !sequence.decodes())
            .map(|sequence| sequence.share)
            .collect();
        let served = keys.iter().map(|key| self.shares.served(*key)).min();
        if let Some(served) = served.filter(|_| output.preempted.is_empty()) {
            let may = |key, before| (before <= served).then(|| !keys.contains(&key));
            self.admit_waiting(yielding, may, budget, output);
        }
    }

    /// Admits waiting sequences that yield, or those that don't, in their order. What `may` says of a key,
    /// and of what was served of it before its sequence, is whether that one may be admitted; `None` ends
    /// it. Returns whether one found no room: no place among those that run, or too few blocks.
    pub(super) fn admit_waiting(
        &mut self,
        yielding: bool,
        may: impl Fn(ShareId, u64) -> Option<bool>,
        budget: &mut usize,
        output: &mut SchedulerOutput,
    ) -> bool {
        self.waiting.order(&self.shares);
        let mut in_flight = self.blocks_in_flight(yielding);
        let (mut after, mut no_blocks, mut no_place) = (None, false, false);
        while let Some((key, at, before)) = self.waiting.next(after)
            // Those that yield are the last.
            && (yielding || at.0 != YIELDS)
            && let Some(is_its_turn) = may(key, before)
        {
            after = Some(at);
            if !is_its_turn || yielding != (at.0 == YIELDS) {
                continue;
            }
            let id = at.2;
            let held = self.sequences[&id].held || self.awaits_load(id);
            let may_run = self.running.len() < self.config.max_num_seqs;
            no_place |= !may_run && !held;
            let full = no_blocks || *budget == 0 || !may_run;
            // Where snapshots are taken, those that can't run yet still say where they will resume.
            if full && self.snapshot_spacing == 0 {
                break;
            }
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
        no_blocks || no_place
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

    pub(super) fn start_running(&mut self, at: Rank) {
        let slot = self.free_slots.pop().expect("as many slots as sequences may run");
        self.sequences.get_mut(&at.2).expect("it was just planned").slot = Some(slot);
        let index = self.running.partition_point(|other| rank(&self.sequences[other]) < at);
        self.running.insert(index, at.2);
    }

    /// Full prompt blocks that running sequences have yet to compute. Of one that yields they may be long
    /// in coming, so that only those wait for them that yield, too.
    fn blocks_in_flight(&mut self, yielding: bool) -> HashSet<BlockHash> {
        let mut in_flight = HashSet::new();
        let shares = self.kv_cache.shares_prefixes() && !self.config.keeps_state;
        if self.waiting.is_empty() || !shares {
            return in_flight;
        }
        for id in &self.running {
            let sequence = self.sequences.get_mut(id).expect("running sequences exist");
            let from = sequence.num_published;
            if sequence.num_pending() > 1 && (yielding || !sequence.yields()) {
                in_flight.extend(sequence.hashes().iter().skip(from).copied());
            }
        }
        in_flight
    }
}
