//! Content of the cache that is kept on a slower tier too: what is told to the tier, and how waiting
//! sequences get it back.
//!
//! A sequence that arrives, or waits again after a preemption, is looked at once: if the tier has what
//! follows the blocks that are cached, a load is begun, and the sequence waits for its end while others
//! run. Blocks that arrive become ordinary cached blocks. They and the cached ones before them are held
//! for the sequence until it is admitted, so that they are not evicted for each other; when somebody who
//! runs needs blocks, these loads are given up first.
//!
//! Loads change no result: whether something was cached or computed has the same bits.

use std::collections::HashSet;

use super::load_table::Load;
use super::queue::Rank;
use super::sequence::{LoadState, SequenceId};
use super::{Scheduler, rank};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

impl Scheduler {
    /// The same, with a slower tier that content comes from and goes to.
    #[must_use]
    pub fn with_tier(mut self) -> Self {
        self.loads.enabled = true;
        self
    }

    /// Content that was computed and cached since the last call.
    pub fn take_added(&mut self) -> Vec<Content> {
        std::mem::take(&mut self.loads.added)
    }

    /// Chains that were used by sequences which ended since the last call.
    pub fn take_released(&mut self) -> Vec<Vec<BlockHash>> {
        std::mem::take(&mut self.loads.released)
    }

    /// Looks at sequences that wait: for whom what is to be loaded, in this order, of that which
    /// `is_stored`. Returns also how many tokens were looked up for each that is looked at for the first
    /// time.
    pub fn plan_loads(
        &mut self,
        is_stored: impl Fn(Content) -> bool,
    ) -> (Vec<(SequenceId, Vec<Content>)>, usize) {
        let (mut planned, mut looked_up) = (Vec::new(), 0);
        if !self.kv_cache.shares_prefixes() {
            return (planned, looked_up);
        }
        let mut coming: HashSet<Content> =
            self.loads.of.values().flat_map(|load| load.left.iter().copied()).collect();
        let mut after = None;
        self.waiting.order(&self.shares);
        while let Some((_, rank, _)) = self.waiting.next(after) {
            after = Some(rank);
            let id = rank.2;
            let state = self.sequences[&id].load;
            if state == LoadState::Ended || self.loads.of.contains_key(&id) {
                continue;
            }
            let (wanted, missing) = self.wanted(id, &is_stored);
            let state = if wanted.is_empty() {
                LoadState::Ended
            } else if wanted.iter().any(|content| coming.contains(content)) {
                LoadState::Awaited
            } else if self.has_blocks_for(id, &wanted, coming.len()) {
                coming.extend(&wanted);
                self.begin_load(id, &wanted);
                planned.push((id, wanted));
                LoadState::Awaited
            } else {
                // Nor has it room to run, so it is looked at again.
                LoadState::Open
            };
            let sequence = self.sequences.get_mut(&id).expect("waiting sequences exist");
            if state == LoadState::Ended || self.loads.of.contains_key(&id) {
                looked_up += missing;
            }
            sequence.load = state;
            if state == LoadState::Open {
                break;
            }
        }
        (planned, looked_up)
    }

    /// What a sequence could resume behind if it were loaded, and how many of its tokens are in full
    /// blocks that are not cached.
    fn wanted(
        &mut self,
        id: SequenceId,
        is_stored: impl Fn(Content) -> bool,
    ) -> (Vec<Content>, usize) {
        let sequence = self.sequences.get_mut(&id).expect("waiting sequences exist");
        let (hashes, cache) = (sequence.reusable_hashes(), &self.kv_cache);
        let is_there = |content| cache.contains(content) || is_stored(content);
        let reach = hashes.iter().take_while(|hash| is_there(Content::Block(**hash))).count();
        let missing = hashes.len() - cache.match_prefix(hashes);
        let mut wanted = Vec::new();
        let mut end = reach;
        if self.config.keeps_state {
            let has_snapshot = |hash: &BlockHash| is_there(Content::Snapshot(*hash));
            end = hashes[..reach].iter().rposition(has_snapshot).map_or(0, |last| last + 1);
            // What resumes no farther than without a load is not worth one.
            let known = cache.match_prefix(&hashes[..end]);
            if cache.match_snapshot(&hashes[..known]) == end {
                return (Vec::new(), missing * BLOCK_SIZE);
            }
        }
        wanted.extend(hashes[..end].iter().map(|hash| Content::Block(*hash)));
        if self.config.keeps_state && end > 0 {
            wanted.push(Content::Snapshot(hashes[end - 1]));
        }
        wanted.retain(|content| !cache.contains(*content));
        (wanted, missing * BLOCK_SIZE)
    }

    /// Whether there are free blocks for what is loaded, beside `coming` that others wait for and the
    /// cached ones that are to stay.
    fn has_blocks_for(&self, id: SequenceId, wanted: &[Content], coming: usize) -> bool {
        let cached = self.kv_cache.num_free_among(self.sequences[&id].known_reusable_hashes());
        wanted.len() + cached + coming <= self.kv_cache.num_free()
    }

    fn begin_load(&mut self, id: SequenceId, wanted: &[Content]) {
        let mut held = BlockTable::default();
        self.kv_cache.hold(&mut held, self.sequences[&id].known_reusable_hashes());
        self.loads.of.insert(id, Load { left: wanted.iter().copied().collect(), held });
    }

    /// Puts content that has arrived for a sequence into the cache: `fill` copies it to the block or the
    /// row of this index. Returns false where the sequence does not want it any more, or it could not be
    /// copied; then the load is to be given up.
    pub fn place(
        &mut self,
        id: SequenceId,
        content: Content,
        fill: impl FnOnce(u32) -> bool,
    ) -> bool {
        let Some(load) = self.loads.of.get_mut(&id) else { return false };
        if load.left.front() != Some(&content) {
            return false;
        }
        load.left.pop_front();
        if self.kv_cache.contains(content) {
            // Somebody has computed it meanwhile.
            return true;
        }
        match content {
            Content::Snapshot(hash) => self.kv_cache.fill_snapshot(hash, fill),
            Content::Block(hash) => {
                let filled = self.kv_cache.fill_block(&mut load.held, hash, fill);
                if filled {
                    self.note_loaded(id, hash);
                }
                filled
            }
        }
    }

    /// Tells of a block that was loaded, which is one of this sequence's, and makes its tokens known
    /// where parts of blocks are reused.
    fn note_loaded(&mut self, id: SequenceId, hash: BlockHash) {
        let sequence = &self.sequences[&id];
        let index = sequence.known_hashes().iter().position(|own| *own == hash);
        let Some(index) = index else { return };
        if self.kv_cache.is_untold(hash) {
            self.kv_cache.tell(sequence.stored_block(index));
        }
        if !self.reuses_parts() {
            return;
        }
        let tokens = &sequence.tokens[index * BLOCK_SIZE..(index + 1) * BLOCK_SIZE];
        self.kv_cache.add_tokens(hash, sequence.chain_before(index), tokens);
    }

    /// Lets a sequence run with what was loaded for it until now. Returns whether it still waited.
    pub fn end_load(&mut self, id: SequenceId) -> bool {
        let Some(load) = self.loads.of.get_mut(&id) else { return false };
        load.left.clear();
        let sequence = self.sequences.get_mut(&id).expect("loads are of waiting sequences");
        sequence.load = LoadState::Ended;
        true
    }

    /// Whether a waiting sequence is not to be admitted before a load has ended.
    pub(super) fn awaits_load(&self, id: SequenceId) -> bool {
        self.loads.enabled && self.sequences[&id].load == LoadState::Awaited
    }

    /// Whether any sequence waits for a load.
    pub fn has_loads(&self) -> bool {
        self.loads.of.values().any(|load| !load.left.is_empty())
    }

    /// Gives back what was held for a sequence, which has a table of its own now or is gone. Returns
    /// whether there was anything.
    pub(super) fn release_load(&mut self, id: SequenceId) -> bool {
        let Some(mut load) = self.loads.of.remove(&id) else { return false };
        self.kv_cache.release(&mut load.held);
        true
    }

    /// Gives up the loads of sequences that stand behind this rank, or all of them, so that their
    /// blocks can be used. Returns whether there were any.
    pub(super) fn give_up_loads(&mut self, behind: Option<Rank>) -> bool {
        let is_behind = |id: &&SequenceId| {
            behind.is_none_or(|at| self.waiting.is_behind(rank(&self.sequences[*id]), at))
        };
        let given_up: Vec<SequenceId> = self.loads.of.keys().filter(is_behind).copied().collect();
        for id in &given_up {
            self.release_load(*id);
            let sequence = self.sequences.get_mut(id).expect("loads are of waiting sequences");
            sequence.load = LoadState::Ended;
        }
        !given_up.is_empty()
    }
}
