//! One sequence as the scheduler sees it: ids, counts and a block table.

use std::sync::Arc;

use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

use super::media::{self, MediaSpan};
use super::shares::ShareId;
use super::snapshot_plan::SnapshotPlan;
use super::stop::StopConditions;

/// The priority of sequences that run when no other one needs the engine; their keys come last, too.
pub const YIELDS: i32 = i32::MAX;

/// Most tokens of a prompt that are scored in one step: each has a row of logits of its own.
const SCORED_AT_A_TIME: usize = 64;

/// Identifies a sequence; chosen by the caller, unique in one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// Identifies one load of an adapter: the same files loaded again have another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u64);

/// The tokens of a text whose hidden states become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledTokens {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// Whether a sequence that waits may be admitted, as far as loads are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LoadState {
    /// It has to be looked at.
    #[default]
    Open,
    /// It waits for a load, its own or one that somebody else waits for.
    Awaited,
    /// Its load has ended, or there was nothing to load.
    Ended,
}

/// A prompt, the tokens sampled after it, and how much of both is in the KV cache.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Identifies the sequence.
    pub id: SequenceId,
    /// Lower is served first, among those of one key.
    pub priority: i32,
    /// The key that it is served for.
    pub share: ShareId,
    pub(super) stop: StopConditions,
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    pub(super) num_computed: usize,
    // Tokens that may follow, computed in the next step besides.
    pub(super) drafts: Vec<u32>,
    pub(super) table: BlockTable,
    // The slot of its recurrent state, while it runs.
    pub(super) slot: Option<u32>,
    // The slot that has this state from before the drafts.
    pub(super) backup: Option<u32>,
    // Where that state is kept for others while the prompt is computed.
    pub(super) snapshots: SnapshotPlan,
    // The block behind which it was kept last, of those of the answer.
    pub(super) answer_snapshot: Option<BlockHash>,
    // Hashes of the full blocks of `tokens`, as far as they were needed.
    hashes: Vec<BlockHash>,
    root: BlockHash,
    // What the root stands for, as it is told to others.
    pub(super) cache_salt: Option<Arc<str>>,
    pub(super) adapter_name: Option<Arc<str>>,
    // In order of position; they don't overlap.
    pub(super) media: Arc<[MediaSpan]>,
    // Tokens at its beginning that see each other, those behind them too: none, or all of the prompt.
    pub(super) prefix_len: usize,
    pub(super) adapter: Option<AdapterId>,
    pub(super) num_published: usize,
    // Equal to `num_computed` once a step that computed or copied that many has run.
    pub(super) num_written: usize,
    pub(super) num_cached: usize,
    // Tokens of the prompt whose logits are wanted: all but the first, or none.
    num_to_score: usize,
    num_scored: usize,
    // For a sequence that is embedded and never samples.
    pooled: Option<PooledTokens>,
    // The hidden states of positions below this one are pooled.
    num_pooled: usize,
    // One of the beams of a search, which choose their tokens together.
    beam: bool,
    // A beam whose logits are computed and whose next token isn't chosen yet.
    pub(super) held: bool,
    pub(super) preemptions: u32,
    // Whether it waits for content that is loaded.
    pub(super) load: LoadState,
    // Longer than the model computes as a short sequence.
    long: bool,
    // Times it was computed from its first token on.
    starts: u32,
    // Order of arrival, for queues.
    pub(super) arrival: u64,
}

impl Sequence {
    /// A sequence that starts with `prompt` (not empty).
    pub fn new(
        id: SequenceId,
        prompt: Vec<u32>,
        stop: StopConditions,
        priority: i32,
        cache_salt: Option<&str>,
    ) -> Self {
        Self {
            id,
            priority,
            share: ShareId::default(),
            stop,
            prompt_len: prompt.len(),
            tokens: prompt,
            num_computed: 0,
            drafts: Vec::new(),
            table: BlockTable::default(),
            slot: None,
            backup: None,
            snapshots: SnapshotPlan::default(),
            answer_snapshot: None,
            hashes: Vec::new(),
            root: BlockHash::root(cache_salt),
            cache_salt: cache_salt.map(Arc::from),
            adapter_name: None,
            media: Arc::default(),
            prefix_len: 0,
            adapter: None,
            num_published: 0,
            num_written: 0,
            num_cached: 0,
            num_to_score: 0,
            num_scored: 0,
            pooled: None,
            num_pooled: 0,
            beam: false,
            held: false,
            preemptions: 0,
            load: LoadState::Open,
            long: false,
            starts: 0,
            arrival: 0,
        }
    }

    /// The same, served for a key.
    #[must_use]
    pub fn with_share(self, share: ShareId) -> Self {
        Self { share, ..self }
    }

    /// Whether it runs when no other one needs the engine.
    pub(super) fn yields(&self) -> bool {
        self.priority == YIELDS
    }

    /// Tokens that are computed for its key once it is admitted; those of one that was are served already.
    pub(super) fn unserved(&self) -> usize {
        if self.is_new() { self.tokens.len() } else { 0 }
    }

    /// The same, computed with an adapter. Blocks are shared only with sequences whose adapter has the
    /// same digest.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<(AdapterId, [u8; 16])>) -> Self {
        let Some((id, digest)) = adapter else { return self };
        Self { root: self.root.under_adapter(digest), adapter: Some(id), ..self }
    }

    /// The same, with the name of its adapter, which nothing that is computed depends on.
    #[must_use]
    pub fn with_adapter_name(self, adapter_name: Option<Arc<str>>) -> Self {
        Self { adapter_name, ..self }
    }

    /// The same, with pictures and sounds in its prompt, in order of position and apart from each other. Blocks are
    /// shared only with sequences that see the same there.
    #[must_use]
    pub fn with_media(self, media: Arc<[MediaSpan]>) -> Self {
        Self { media, ..self }
    }

    /// The pictures and sounds in its prompt.
    pub fn media(&self) -> &[MediaSpan] {
        &self.media
    }

    /// The same, of a prefix language model: the prompt's tokens all see each other, so a step that computes
    /// any of them computes all up to the last, and blocks are shared only with sequences whose prompt, with its
    /// pictures and sounds, is the same.
    #[must_use]
    pub fn with_prompt_as_prefix(self) -> Self {
        let prompt = &self.tokens[..self.prompt_len];
        let root = self.root.under_prefix(media::chain(self.root, prompt, 0, &self.media));
        Self { root, prefix_len: self.prompt_len, ..self }
    }

    /// Whether what a token stands for depends on tokens behind it.
    pub fn is_prefix_lm(&self) -> bool {
        self.prefix_len > 0
    }

    /// Tokens from `start` on that say all there is to know of their positions: those up to `end` or
    /// to the next picture or sound.
    pub(super) fn comparable(&self, start: usize, end: usize) -> &[u32] {
        let count = media::before_media(&self.media, start, end);
        &self.tokens[start..start + count]
    }

    /// The same, with the logits wanted that predict each token of the prompt but the first. A block
    /// that is shared gives no logits, so none is shared before these are computed.
    #[must_use]
    pub fn with_scored_prompt(self) -> Self {
        Self { num_to_score: self.prompt_len - 1, ..self }
    }

    /// The same, to be embedded instead of continued: the hidden states of these tokens are wanted,
    /// each once, and nothing is sampled. A block that is shared gives no hidden states, so none with
    /// a wanted token is shared before that one is computed.
    #[must_use]
    pub fn with_pooled(self, tokens: PooledTokens) -> Self {
        Self { pooled: Some(tokens), ..self }
    }

    /// The same, as one of the beams of a search: once its logits are computed, it is held until
    /// [`Scheduler::extend`](super::Scheduler::extend).
    #[must_use]
    pub fn as_beam(self) -> Self {
        Self { beam: true, ..self }
    }

    /// Whether the sequence is a beam of a search.
    pub(super) fn is_beam(&self) -> bool {
        self.beam
    }

    /// Another sequence with the same tokens and the first `num_computed` of them in `table`.
    pub(super) fn forked(&self, id: SequenceId, table: BlockTable, num_computed: usize) -> Self {
        Self {
            id,
            table,
            slot: None,
            backup: None,
            drafts: Vec::new(),
            snapshots: SnapshotPlan::default(),
            answer_snapshot: None,
            num_computed,
            num_published: self.num_published.min(num_computed / BLOCK_SIZE),
            num_written: 0,
            num_cached: 0,
            held: false,
            preemptions: 0,
            starts: 0,
            stop: self.stop.clone(),
            tokens: self.tokens.clone(),
            hashes: self.hashes.clone(),
            media: self.media.clone(),
            cache_salt: self.cache_salt.clone(),
            adapter_name: self.adapter_name.clone(),
            ..*self
        }
    }

    /// Tokens whose KV is not in the cache yet; at least 1, except for a beam that is held.
    pub fn num_pending(&self) -> usize {
        self.tokens.len() - self.num_computed
    }

    /// Whether only sampled tokens are pending, whose stream should not wait.
    pub(super) fn decodes(&self) -> bool {
        self.num_pending() == 1 || self.num_computed >= self.prompt_len
    }

    /// Most tokens of the sequence in one step, which ends where a snapshot of its state is taken.
    pub(super) fn most_tokens(&self) -> usize {
        let next = self.snapshots.next(self.num_computed);
        let before_snapshot = next.map_or(usize::MAX, |next| next - self.num_computed);
        let scored = self.num_scored < self.num_to_score;
        before_snapshot.min(if scored { SCORED_AT_A_TIME } else { usize::MAX })
    }

    /// Tokens of the sequence in a step that has `budget` tokens for it, and more, up to `room`, for a
    /// picture or a prompt that is computed whole. None where there is no room for one.
    pub(super) fn tokens_of_step(&self, budget: usize, room: usize) -> usize {
        let num_tokens = self.num_pending().min(self.most_tokens()).min(budget);
        let (start, end) = (self.num_computed, self.num_computed + num_tokens);
        if num_tokens > 0 && end < self.prefix_len {
            let needed = self.prefix_len - start;
            return if needed <= room { needed } else { 0 };
        }
        media::whole_media(&self.media, start, end, start + room) - start
    }

    /// The prompt's tokens that a step from `num_computed` up to `end` predicts and that are to be
    /// scored.
    pub(super) fn scored_by(&self, end: usize) -> &[u32] {
        let first = self.num_computed.max(self.num_scored);
        let end = end.min(self.num_to_score);
        self.tokens.get(first + 1..end + 1).unwrap_or_default()
    }

    /// Whether it is embedded.
    pub(super) fn is_pooled(&self) -> bool {
        self.pooled.is_some()
    }

    /// Positions whose hidden states are still wanted, as `(start, end)`.
    fn unpooled(&self) -> (usize, usize) {
        let (start, end) = match self.pooled {
            None => (0, 0),
            Some(PooledTokens::First) => (0, 1),
            Some(PooledTokens::Last) => (self.prompt_len - 1, self.prompt_len),
            Some(PooledTokens::All) => (0, self.prompt_len),
        };
        (start.max(self.num_pooled).min(end), end)
    }

    /// Which of the tokens that a step computes from `num_computed` up to `end` are pooled,
    /// counted from the first of them.
    pub(super) fn pooled_by(&self, end: usize) -> (usize, usize) {
        let (first, last) = self.unpooled();
        let (first, last) = (first.max(self.num_computed), last.min(end));
        if first < last { (first - self.num_computed, last - self.num_computed) } else { (0, 0) }
    }

    /// Counts tokens as computed.
    pub(super) fn advance(&mut self, num_tokens: usize) {
        self.num_computed += num_tokens;
        self.num_written = self.num_computed;
        self.num_scored = self.num_scored.max(self.num_computed.min(self.num_to_score));
        self.num_pooled = self.num_pooled.max(self.num_computed);
    }

    /// Whether the sequence has just become longer than the model computes as a short one. Its computed
    /// tokens are of no use then, neither to it nor to others that are as long.
    pub(super) fn outgrows(&mut self, fixed_rope_length: Option<usize>) -> bool {
        let longer = fixed_rope_length.is_some_and(|longest| self.tokens.len() > longest);
        if self.long || !longer {
            return false;
        }
        self.long = true;
        self.root = self.root.of_long();
        self.hashes.clear();
        self.num_written = 0;
        true
    }

    /// Counts all tokens as pending again; the blocks are released already.
    pub(super) fn start_over(&mut self) {
        self.num_computed = 0;
        self.num_published = 0;
        self.num_written = 0;
        self.snapshots = SnapshotPlan::default();
        self.answer_snapshot = None;
        self.load = LoadState::Open;
        self.starts += 1;
    }

    /// Times the sequence was computed from its first token on, each time in other blocks.
    pub fn starts(&self) -> u32 {
        self.starts
    }

    /// Whether the sequence never ran.
    pub(super) fn is_new(&self) -> bool {
        self.starts == 0
    }

    /// The prompt, and what was sampled after it.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// What its blocks begin with: sequences with the same salt and adapter have the same root.
    pub fn root(&self) -> BlockHash {
        self.root
    }

    /// Whether it is longer than the model computes as a short one.
    pub(super) fn is_long(&self) -> bool {
        self.long
    }

    /// Tokens sampled so far.
    pub fn num_output(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Prompt tokens whose KV came from the prefix cache when the sequence first ran.
    pub fn num_cached(&self) -> usize {
        self.num_cached
    }

    /// Times the sequence was preempted.
    pub fn preemptions(&self) -> u32 {
        self.preemptions
    }

    /// Hashes of all full blocks.
    pub(super) fn hashes(&mut self) -> &[BlockHash] {
        let full = self.tokens.len() / BLOCK_SIZE;
        while self.hashes.len() < full {
            let start = self.hashes.len() * BLOCK_SIZE;
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            let tokens = &self.tokens[start..start + BLOCK_SIZE];
            self.hashes.push(media::chain(parent, tokens, start, &self.media));
        }
        &self.hashes
    }

    /// Hashes of full blocks, as far as they were needed.
    pub(super) fn known_hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Hashes of the blocks that may come from the cache: all full ones, except the block of the last
    /// token, which is always recomputed since its logits are wanted, and those after the first token
    /// whose logits or hidden states are still wanted.
    pub(super) fn reusable_hashes(&mut self) -> &[BlockHash] {
        self.hashes();
        self.known_reusable_hashes()
    }

    /// The same, as far as they were needed.
    pub(super) fn known_reusable_hashes(&self) -> &[BlockHash] {
        &self.hashes[..self.hashes.len().min(self.num_reusable() / BLOCK_SIZE)]
    }

    /// The chain that the block at `index` continues.
    pub(super) fn chain_before(&self, index: usize) -> BlockHash {
        index.checked_sub(1).map_or(self.root, |last| self.hashes[last])
    }

    /// Tokens that may come from the cache: all but the last, and none from the first one on whose
    /// logits or hidden states are still wanted.
    pub(super) fn num_reusable(&self) -> usize {
        let mut most = self.tokens.len() - 1;
        if self.num_scored < self.num_to_score {
            most = most.min(self.num_scored);
        }
        let (first, end) = self.unpooled();
        if first < end {
            most = most.min(first);
        }
        most
    }
}
