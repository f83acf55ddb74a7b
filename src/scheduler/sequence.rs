//! One sequence as the scheduler sees it: ids, counts and a block table.

use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

use super::stop::StopConditions;

/// Tokens of a prompt that are scored in one step: each has a row of logits of its own.
const SCORED_AT_A_TIME: usize = 64;

/// Names a sequence; given by whoever submits it, unique in one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// Names one load of an adapter: the same files loaded again have another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u64);

/// The tokens of a prompt whose hidden states become its embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledTokens {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// A prompt, what was sampled behind it, and how much of both is in the KV cache.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Its name.
    pub id: SequenceId,
    /// Lower is served first.
    pub priority: i32,
    pub(super) stop: StopConditions,
    pub(super) tokens: Vec<u32>,
    pub(super) prompt_len: usize,
    pub(super) num_computed: usize,
    pub(super) table: BlockTable,
    // While it runs: the place of its state.
    pub(super) slot: Option<u32>,
    // Hashes of the full blocks of `tokens`, as far as anyone asked.
    hashes: Vec<BlockHash>,
    root: BlockHash,
    pub(super) adapter: Option<AdapterId>,
    pub(super) num_published: usize,
    pub(super) num_cached: usize,
    // Tokens of the prompt whose logits are wanted: all but the first, or none.
    num_to_score: usize,
    num_scored: usize,
    // For a sequence that is embedded and never samples.
    pooled: Option<PooledTokens>,
    // Positions below this one have given their hidden states.
    num_pooled: usize,
    // One of the beams of a search, which choose their tokens together.
    beam: bool,
    // A beam whose logits were given and whose token isn't chosen yet.
    pub(super) held: bool,
    pub(super) preemptions: u32,
    // Too long for the way in which short ones are computed.
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
            stop,
            prompt_len: prompt.len(),
            tokens: prompt,
            num_computed: 0,
            table: BlockTable::default(),
            slot: None,
            hashes: Vec::new(),
            root: BlockHash::root(cache_salt),
            adapter: None,
            num_published: 0,
            num_cached: 0,
            num_to_score: 0,
            num_scored: 0,
            pooled: None,
            num_pooled: 0,
            beam: false,
            held: false,
            preemptions: 0,
            long: false,
            starts: 0,
            arrival: 0,
        }
    }

    /// The same, computed with an adapter. Blocks are shared only with sequences of the same one.
    #[must_use]
    pub fn with_adapter(self, adapter: Option<AdapterId>) -> Self {
        let Some(AdapterId(id)) = adapter else { return self };
        Self { root: self.root.under_adapter(id), adapter, ..self }
    }

    /// The same, with the logits wanted that predict each token of the prompt but the first.
    /// Blocks of other sequences have no logits, so none is shared before they are there.
    #[must_use]
    pub fn with_scored_prompt(self) -> Self {
        Self { num_to_score: self.prompt_len - 1, ..self }
    }

    /// The same, to be embedded instead of continued: the hidden states of these tokens are wanted,
    /// each once, and nothing is sampled. Blocks of other sequences have no hidden states, so none
    /// with a wanted token is shared before that one is there.
    #[must_use]
    pub fn with_pooled(self, tokens: PooledTokens) -> Self {
        Self { pooled: Some(tokens), ..self }
    }

    /// The same, as one of the beams of a search: whenever its logits were given, it waits for
    /// [`Scheduler::extend`](super::Scheduler::extend).
    #[must_use]
    pub fn as_beam(self) -> Self {
        Self { beam: true, ..self }
    }

    /// Whether it is a beam.
    pub(super) fn is_beam(&self) -> bool {
        self.beam
    }

    /// Another sequence with the same tokens and the first `num_computed` of them in `table`.
    pub(super) fn forked(&self, id: SequenceId, table: BlockTable, num_computed: usize) -> Self {
        Self {
            id,
            table,
            slot: None,
            num_computed,
            num_published: self.num_published.min(num_computed / BLOCK_SIZE),
            num_cached: 0,
            held: false,
            preemptions: 0,
            starts: 0,
            stop: self.stop.clone(),
            tokens: self.tokens.clone(),
            hashes: self.hashes.clone(),
            ..*self
        }
    }

    /// Tokens whose KV is not in the cache yet; at least 1, but for a beam that is held.
    pub fn num_pending(&self) -> usize {
        self.tokens.len() - self.num_computed
    }

    /// Whether only tokens behind the prompt are pending, which no stream should wait for.
    pub(super) fn decodes(&self) -> bool {
        self.num_pending() == 1 || self.num_computed >= self.prompt_len
    }

    /// Most tokens it may have in a step.
    pub(super) fn most_tokens(&self) -> usize {
        if self.num_scored < self.num_to_score { SCORED_AT_A_TIME } else { usize::MAX }
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

    /// Books computed tokens.
    pub(super) fn advance(&mut self, num_tokens: usize) {
        self.num_computed += num_tokens;
        self.num_scored = self.num_scored.max(self.num_computed.min(self.num_to_score));
        self.num_pooled = self.num_pooled.max(self.num_computed);
    }

    /// Whether it has just become longer than sequences that are computed as short ones. What was
    /// computed of it is of no use then, to it or to others that are as long.
    pub(super) fn outgrows(&mut self, longest_unchanged: Option<usize>) -> bool {
        let longer = longest_unchanged.is_some_and(|longest| self.tokens.len() > longest);
        if self.long || !longer {
            return false;
        }
        self.long = true;
        self.root = self.root.of_long();
        self.hashes.clear();
        true
    }

    /// Forgets that anything was computed; its blocks are another's already.
    pub(super) fn start_over(&mut self) {
        self.num_computed = 0;
        self.num_published = 0;
        self.starts += 1;
    }

    /// Whether it never ran.
    pub(super) fn is_new(&self) -> bool {
        self.starts == 0
    }

    /// Tokens sampled so far.
    pub fn num_output(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Prompt tokens whose KV came from the prefix cache when the sequence first ran.
    pub fn num_cached(&self) -> usize {
        self.num_cached
    }

    /// Times it lost its blocks to another sequence.
    pub fn preemptions(&self) -> u32 {
        self.preemptions
    }

    /// Hashes of all full blocks.
    pub(super) fn hashes(&mut self) -> &[BlockHash] {
        let full = self.tokens.len() / BLOCK_SIZE;
        while self.hashes.len() < full {
            let start = self.hashes.len() * BLOCK_SIZE;
            let parent = self.hashes.last().copied().unwrap_or(self.root);
            self.hashes.push(parent.chain(&self.tokens[start..start + BLOCK_SIZE]));
        }
        &self.hashes
    }

    /// Hashes of the blocks that may come from the cache: all full ones, but for the block of the
    /// last token, which is always recomputed since its logits are wanted, and those behind the
    /// first token that something else is wanted of.
    pub(super) fn reusable_hashes(&mut self) -> &[BlockHash] {
        let mut most = self.tokens.len() - 1;
        if self.num_scored < self.num_to_score {
            most = most.min(self.num_scored);
        }
        let (first, end) = self.unpooled();
        if first < end {
            most = most.min(first);
        }
        let usable = most / BLOCK_SIZE;
        &self.hashes()[..usable]
    }
}
