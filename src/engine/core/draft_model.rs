//! A draft model beside the model: what it has computed of which sequence, and what it drafts.
//!
//! It runs between two steps, for all sequences that are to get its drafts in one batch: first what it
//! has yet to compute of their tokens, then one row each for every further token. Nothing that it
//! computes decides about a token, so it may lag behind: what the prefix cache, a prompt's chunks or steps
//! without drafts left out is computed once its drafts are wanted.
//!
//! Its part of a block is valid by the hash of the tokens up to the block's end, whoever computed it and
//! whatever the pool thinks of the block: blocks that come back from the prefix cache keep theirs, and
//! one that was given to somebody else, copied or read from disk has another hash than is asked for.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use candle_core::Result;

use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::BlockHash;
use crate::runner::DraftRunner;
use crate::sampling::most_likely::most_likely;
use crate::scheduler::Scheduler;
use crate::scheduler::drafts::DraftedText;
use crate::scheduler::output::PlannedSequence;
use crate::scheduler::sequence::{Sequence, SequenceId};

/// Most tokens that it catches up with between two steps: streams wait for it.
const MOST_CAUGHT_UP: usize = 256;

/// A draft model and how far it is.
pub(in crate::engine) struct DraftModel {
    runner: DraftRunner,
    /// Tokens that the model knows as well.
    vocab_size: usize,
    /// For each block the hash of the tokens up to its end that this model's part of it is for.
    blocks: Vec<Option<BlockHash>>,
    progress: HashMap<SequenceId, Progress>,
}

/// What is computed of a sequence.
#[derive(Clone, Debug, Default)]
struct Progress {
    starts: u32,
    /// Its first tokens.
    computed: usize,
    /// Drafts behind those that are computed too.
    drafts: Vec<u32>,
}

/// A sequence that gets drafts.
#[derive(Clone, Debug)]
pub(super) struct ModelDraft {
    pub(super) id: SequenceId,
    /// Most tokens to draft.
    pub(super) depth: usize,
    /// Those that were drafted, with the probabilities that the draft model gives them.
    pub(super) tokens: Vec<(u32, f32)>,
    /// The chance that all of them are right.
    chance: f32,
}

/// Rows of a sequence in a batch: `count` tokens from position `first` on.
struct Part {
    /// Index of the draft.
    draft: usize,
    first: usize,
    token_ids: Vec<u32>,
    /// Whether the last row's logits are wanted.
    samples: bool,
}

impl ModelDraft {
    /// Nothing drafted yet.
    pub(super) fn new(id: SequenceId, depth: usize) -> Self {
        Self { id, depth, tokens: Vec::new(), chance: 1.0 }
    }
}

impl DraftModel {
    /// Nothing computed. The model that verifies its drafts knows `vocab_size` tokens and has
    /// `num_blocks` blocks.
    pub(in crate::engine) fn new(
        runner: DraftRunner,
        vocab_size: usize,
        num_blocks: usize,
    ) -> Self {
        let vocab_size = vocab_size.min(runner.vocab_size());
        Self { runner, vocab_size, blocks: vec![None; num_blocks], progress: HashMap::new() }
    }

    /// Whether it can draft what follows a sequence.
    pub(super) fn can_draft(&self, sequence: &Sequence) -> bool {
        // Behind the last token there must be room for a draft.
        sequence.tokens().len() < self.runner.max_len() && sequence.pictures().is_empty()
    }

    /// Drafts tokens; `chance` is asked how likely a sequence's token with a probability is right, and
    /// below `least_chance` a sequence gets no more. Returns the rows and the time of each step.
    pub(super) fn draft(
        &mut self,
        scheduler: &mut Scheduler,
        drafts: &mut Vec<ModelDraft>,
        least_chance: f32,
        chance: impl Fn(SequenceId, f32) -> f32,
    ) -> Result<Vec<(usize, Duration)>> {
        self.progress.retain(|id, _| scheduler.sequence(*id).is_some());
        for draft in drafts.iter_mut() {
            let room = scheduler.reserve_drafts(draft.id, draft.depth);
            let length = scheduler.sequence(draft.id).map_or(0, |s| s.tokens().len());
            draft.depth = draft.depth.min(room).min(self.runner.max_len().saturating_sub(length));
        }
        drafts.retain(|draft| draft.depth > 0);
        let (mut parts, mut steps) = (self.catch_up(scheduler, drafts), Vec::new());
        while !parts.is_empty() {
            let began = Instant::now();
            let rows = parts.iter().map(|part| part.token_ids.len()).sum();
            let told = self.run(scheduler, drafts, &parts)?;
            steps.push((rows, began.elapsed()));
            let mut next = Vec::new();
            for (part, told) in parts.into_iter().zip(told) {
                let draft = &mut drafts[part.draft];
                let Some((token, probability)) = told else { continue };
                draft.tokens.push((token, probability));
                draft.chance *= chance(draft.id, probability);
                if draft.tokens.len() < draft.depth && draft.chance >= least_chance {
                    let first = part.first + part.token_ids.len();
                    next.push(Part { first, token_ids: vec![token], samples: true, ..part });
                }
            }
            parts = next;
        }
        Ok(steps)
    }

    /// The tokens that are yet to be computed before drafts can follow, as many as may be at a time.
    fn catch_up(&mut self, scheduler: &mut Scheduler, drafts: &[ModelDraft]) -> Vec<Part> {
        let (mut parts, mut left, mut written) = (Vec::new(), MOST_CAUGHT_UP, HashSet::new());
        for (index, draft) in drafts.iter().enumerate() {
            let Some(text) = scheduler.drafted_text(draft.id) else { continue };
            let first = self.update(draft.id, &text);
            let end = text.tokens.len().min(first + left);
            let token_ids = text.tokens[first..end].to_vec();
            let blocks = &text.blocks[first / BLOCK_SIZE..end.div_ceil(BLOCK_SIZE)];
            // Two sequences that share a block have the same content for it: one writes it, and the
            // other finds it the next time.
            let shared = blocks.iter().any(|block| written.contains(block));
            let known = token_ids.iter().all(|token| (*token as usize) < self.vocab_size);
            if token_ids.is_empty() || shared || !known {
                continue;
            }
            written.extend(blocks.iter().copied());
            left -= token_ids.len();
            let samples = end == text.tokens.len();
            parts.push(Part { draft: index, first, token_ids, samples });
        }
        parts
    }

    /// Brings what is known of a sequence up to date; returns how many of its tokens are computed, never
    /// the last one, whose logits are wanted.
    fn update(&mut self, id: SequenceId, text: &DraftedText<'_>) -> usize {
        let Self { progress, blocks, .. } = self;
        let progress = progress.entry(id).or_default();
        if progress.starts != text.starts {
            *progress = Progress { starts: text.starts, ..Progress::default() };
        }
        let new = &text.tokens[progress.computed.min(text.tokens.len())..];
        let drafts = std::mem::take(&mut progress.drafts);
        let right = drafts.iter().zip(new).take_while(|(draft, token)| draft == token).count();
        let before = progress.computed;
        progress.computed += right;
        publish(blocks, text, before, progress.computed);
        let is_valid = |index: usize| {
            let (hash, block) = (text.hashes.get(index), text.blocks.get(index));
            hash.zip(block).is_some_and(|(hash, block)| blocks[*block as usize] == Some(*hash))
        };
        while is_valid(progress.computed / BLOCK_SIZE) {
            progress.computed = (progress.computed / BLOCK_SIZE + 1) * BLOCK_SIZE;
        }
        progress.computed = progress.computed.min(text.tokens.len() - 1);
        progress.computed
    }

    /// Computes a batch; gives for each part the most likely next token, if it is wanted and there is one.
    fn run(
        &mut self,
        scheduler: &mut Scheduler,
        drafts: &[ModelDraft],
        parts: &[Part],
    ) -> Result<Vec<Option<(u32, f32)>>> {
        let mut tables = Vec::with_capacity(parts.len());
        for part in parts {
            let text = scheduler.drafted_text(drafts[part.draft].id);
            let table = text.map(|text| text.blocks.to_vec()).unwrap_or_default();
            let end = part.first + part.token_ids.len();
            for index in part.first / BLOCK_SIZE..end.div_ceil(BLOCK_SIZE) {
                self.blocks[table[index] as usize] = None;
            }
            tables.push(table);
        }
        let plan = parts.iter().zip(&tables).map(|(part, block_table)| PlannedSequence {
            id: drafts[part.draft].id,
            token_ids: &part.token_ids,
            drafts: &[],
            first_position: part.first,
            sequence_len: part.first + part.token_ids.len(),
            block_table,
            slot: 0,
            scored: &[],
            samples: part.samples,
            pooled: (0, 0),
            adapter: None,
            pictures: &[],
        });
        let mut logits = self.runner.run(plan)?;
        let mut rows = logits.rows_mut();
        let told = parts.iter().map(|part| {
            let row = if part.samples { rows.next() } else { None };
            row.and_then(|row| most_likely(&row[..self.vocab_size]))
        });
        let told: Vec<_> = told.collect();
        for part in parts {
            self.count(scheduler, drafts[part.draft].id, part);
        }
        Ok(told)
    }

    /// Counts a part as computed.
    fn count(&mut self, scheduler: &mut Scheduler, id: SequenceId, part: &Part) {
        let Some(text) = scheduler.drafted_text(id) else { return };
        let progress = self.progress.entry(id).or_default();
        if part.first < text.tokens.len() {
            progress.computed = part.first + part.token_ids.len();
            publish(&mut self.blocks, &text, part.first, progress.computed);
        } else {
            progress.drafts.extend(&part.token_ids);
        }
    }
}

/// Makes the full blocks valid that the tokens from `first` up to `end` complete.
fn publish(blocks: &mut [Option<BlockHash>], text: &DraftedText<'_>, first: usize, end: usize) {
    for index in first / BLOCK_SIZE..end / BLOCK_SIZE {
        if let (Some(hash), Some(block)) = (text.hashes.get(index), text.blocks.get(index)) {
            blocks[*block as usize] = Some(*hash);
        }
    }
}
