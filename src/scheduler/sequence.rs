//! One sequence as the scheduler sees it: ids, counts and a block table.

use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

use super::stop::StopConditions;

/// Tokens of a prompt that are scored in one step: each has a row of logits of its own.
const SCORED_AT_A_TIME: usize = 64;

/// Names a sequence; given by whoever submits it, unique in one scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

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
    // Hashes of the full blocks of `tokens`, as far as anyone asked.
    hashes: Vec<BlockHash>,
    root: BlockHash,
    pub(super) num_published: usize,
    pub(super) num_cached: usize,
    // Tokens of the prompt whose logits are wanted: all but the first, or none.
    num_to_score: usize,
    num_scored: usize,
    pub(super) preemptions: u32,
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
            hashes: Vec::new(),
            root: BlockHash::root(cache_salt),
            num_published: 0,
            num_cached: 0,
            num_to_score: 0,
            num_scored: 0,
            preemptions: 0,
            arrival: 0,
        }
    }

    /// The same, with the logits wanted that predict each token of the prompt but the first.
    /// Blocks of other sequences have no logits, so none is shared before they are there.
    #[must_use]
    pub fn with_scored_prompt(self) -> Self {
        Self { num_to_score: self.prompt_len - 1, ..self }
    }

    /// Tokens whose KV is not in the cache yet; at least 1.
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

    /// Books computed tokens.
    pub(super) fn advance(&mut self, num_tokens: usize) {
        self.num_computed += num_tokens;
        self.num_scored = self.num_scored.max(self.num_computed.min(self.num_to_score));
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
    /// last token, which is always recomputed since its logits are wanted.
    pub(super) fn reusable_hashes(&mut self) -> &[BlockHash] {
        let unscored = self.num_scored < self.num_to_score;
        let usable = if unscored { self.num_scored } else { self.tokens.len() - 1 } / BLOCK_SIZE;
        &self.hashes()[..usable]
    }
}
