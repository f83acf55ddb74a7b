//! A draft model beside the model, or a head of the model's checkpoint: what it has computed of which
//! sequence, and what it drafts.
//!
//! It runs between two steps, for all sequences that are to get its drafts in one batch: first what it
//! has yet to compute of their tokens, then one row each for every further token. Nothing that it
//! computes decides about a token, so it may lag behind: what the prefix cache, a prompt's chunks or steps
//! without drafts left out is computed once its drafts are wanted.
//!
//! Its part of a block is valid by the hash of the tokens up to the block's end, whoever computed it and
//! whatever the pool thinks of the block: blocks that come back from the prefix cache keep theirs, and
//! one that was given to somebody else, copied or read from disk has another hash than is asked for.
//!
//! A head computes a position from the model's hidden states of it and the token behind it, so it can't
//! go back: it has what was computed in its time, its part of a block is shared and copied with the
//! model's, and what is missing or was computed before another token than now follows stays so. That
//! makes some drafts worse and no answer different. One that drafts blocks takes what it knows of a
//! position from the model's hidden states of it alone.

mod block;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use candle_core::Result;

use super::hidden_queue::HiddenQueue;
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::BlockHash;
use crate::runner::{DecodeBounds, DraftRunner, HeadInput, HiddenStates, HostLogits};
use crate::sampling::most_likely::most_likely;
use crate::scheduler::Scheduler;
use crate::scheduler::drafts::DraftedText;
use crate::scheduler::output::{Copies, PlannedSequence};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::speculation::LARGEST_STEP;

/// Most tokens that it catches up with between two steps: streams wait for it.
const MOST_CAUGHT_UP: usize = 256;

/// Positions whose hidden states wait for a head at most until it is asked.
const MOST_HELD: usize = 64;

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
    /// What a head has yet to compute.
    hidden: HiddenQueue,
    /// Whether a head is told the sequence's hidden states.
    followed: bool,
}

impl Progress {
    /// Forgets what was computed if the sequence was given other blocks.
    fn begin(&mut self, starts: u32) {
        if self.starts != starts {
            *self = Self { starts, followed: self.followed, ..Self::default() };
        }
    }
}

/// A sequence that gets drafts.
#[derive(Clone, Debug)]
pub(super) struct ModelDraft {
    pub(super) id: SequenceId,
    /// Most tokens to draft.
    pub(super) depth: usize,
    /// Places for tokens behind the last.
    room: usize,
    /// Those that were drafted, with the probabilities that the draft model gives them.
    pub(super) tokens: Vec<(u32, f32)>,
    /// The chance that all of them are right.
    chance: f32,
}

/// Rows of a sequence in a batch: `count` tokens from position `first` on.
struct Part {
    id: SequenceId,
    /// Index of its draft.
    draft: usize,
    first: usize,
    token_ids: Vec<u32>,
    /// Masks behind them, for a block of drafts.
    masks: Vec<u32>,
    /// What a head needs besides, `[token_ids, width]`.
    hidden: Vec<f32>,
    /// Whether the last row's logits are wanted.
    samples: bool,
}

/// The most likely next token of a sequence.
struct Told {
    token: u32,
    probability: f32,
    /// What stands for the model's hidden states before it, where a head tells.
    hidden: Vec<f32>,
}

impl ModelDraft {
    /// Nothing drafted yet.
    pub(super) fn new(id: SequenceId, depth: usize) -> Self {
        Self { id, depth, room: depth, tokens: Vec::new(), chance: 1.0 }
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
        let told = || self.progress.get(&sequence.id).is_some_and(|progress| progress.followed);
        // Behind the last token there must be room for a draft.
        sequence.tokens().len() < self.runner.max_len()
            && sequence.media().is_empty()
            && !sequence.is_prefix_lm()
            && (!self.is_head() || told())
    }

    /// Whether a head is told a sequence's hidden states, from its first step on: all of its drafts need
    /// them. Where drafting does not pay and so the head `rests`, only one sequence at a time is followed,
    /// which shows when it pays again.
    pub(super) fn follows(&mut self, id: SequenceId, rests: bool) -> bool {
        if let Some(progress) = self.progress.get(&id) {
            return progress.followed;
        }
        let followed = !rests || !self.progress.values().any(|progress| progress.followed);
        self.progress.insert(id, Progress { followed, ..Progress::default() });
        followed
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
            // A block is drafted whole: it was trained so.
            let wanted = self.runner.block().map_or(draft.depth, |block| block.tokens);
            let room = scheduler.reserve_drafts(draft.id, wanted);
            let length = scheduler.sequence(draft.id).map_or(0, |s| s.tokens().len());
            draft.room = room.min(self.runner.max_len().saturating_sub(length));
            draft.depth = draft.depth.min(draft.room);
        }
        drafts.retain(|draft| draft.depth > 0);
        let (mut parts, mut steps) = (self.catch_up(scheduler, drafts), Vec::new());
        if let Some(block) = self.runner.block() {
            return self.draft_blocks(scheduler, block, parts, drafts, least_chance, chance);
        }
        while !parts.is_empty() {
            let began = Instant::now();
            let rows = parts.iter().map(|part| part.token_ids.len()).sum();
            let told = self.run(scheduler, &parts)?;
            steps.push((rows, began.elapsed()));
            let mut next = Vec::new();
            for (part, told) in parts.into_iter().zip(told) {
                let draft = &mut drafts[part.draft];
                let Some(Told { token, probability, hidden }) = told else { continue };
                draft.tokens.push((token, probability));
                draft.chance *= chance(draft.id, probability);
                if draft.tokens.len() < draft.depth && draft.chance >= least_chance {
                    let first = part.first + part.token_ids.len();
                    next.push(Part { first, token_ids: vec![token], hidden, ..part });
                }
            }
            parts = next;
        }
        Ok(steps)
    }

    /// The tokens that are yet to be computed before drafts can follow, as many as may be at a time.
    fn catch_up(&mut self, scheduler: &mut Scheduler, drafts: &[ModelDraft]) -> Vec<Part> {
        let (mut parts, mut left, mut written) = (Vec::new(), MOST_CAUGHT_UP, HashSet::new());
        for (index, ModelDraft { id, .. }) in drafts.iter().enumerate() {
            let Some(text) = scheduler.drafted_text(*id) else { continue };
            let part = self.pending(*id, index, &text, left);
            let blocks = &text.blocks[part.first / BLOCK_SIZE..part.end().div_ceil(BLOCK_SIZE)];
            // Two sequences that share a block have the same content for it: one writes it, and the
            // other finds it the next time.
            let shared = blocks.iter().any(|block| written.contains(block));
            let known = part.token_ids.iter().all(|token| (*token as usize) < self.vocab_size);
            // One that drafts blocks may know all there is to know.
            let idle =
                part.token_ids.is_empty() && !(part.samples && self.runner.block().is_some());
            if idle || shared || !known {
                continue;
            }
            written.extend(blocks.iter().copied());
            left -= part.token_ids.len();
            parts.push(part);
        }
        parts
    }

    /// What is yet to be computed of a sequence, at most `most` rows.
    fn pending(
        &mut self,
        id: SequenceId,
        draft: usize,
        text: &DraftedText<'_>,
        most: usize,
    ) -> Part {
        let length = text.tokens.len();
        if self.is_head() {
            let progress = self.progress.entry(id).or_default();
            progress.begin(text.starts);
            let (queue, last) = (&progress.hidden, length - 1);
            let first = queue.first().min(last);
            let count = queue.len().min(last - first).min(most);
            // The token behind each position.
            let token_ids = text.tokens[first + 1..=first + count].to_vec();
            let (hidden, masks) = (queue.front(count).to_vec(), Vec::new());
            let samples = first + count == last;
            return Part { id, draft, first, token_ids, masks, hidden, samples };
        }
        let first = self.update(id, text);
        let end = length.min(first + most);
        let token_ids = text.tokens[first..end].to_vec();
        let (masks, hidden) = (Vec::new(), Vec::new());
        Part { id, draft, first, token_ids, masks, hidden, samples: end == length }
    }

    /// Whether it is a head, which needs the model's hidden states.
    pub(super) fn is_head(&self) -> bool {
        self.runner.is_head()
    }

    /// What metrics call it.
    pub(super) fn source(&self) -> &'static str {
        match (self.runner.block(), self.input()) {
            (Some(block), _) => block.name,
            (None, HeadInput::Nothing) => "draft_model",
            (None, HeadInput::Hidden) => "mtp",
            (None, HeadInput::Layers(_)) => "eagle3",
        }
    }

    /// What it needs of the model.
    pub(in crate::engine) fn input(&self) -> &HeadInput {
        self.runner.input()
    }

    /// Captures its steps, where they are captured, before the first one.
    pub(super) fn capture(&mut self, bounds: DecodeBounds) -> Result<()> {
        let tokens = bounds.tokens.min(LARGEST_STEP);
        self.runner.capture(DecodeBounds { tokens, ..bounds })
    }

    /// Most tokens that it computes at a time, if its `input` is this and the model computes so many.
    pub(in crate::engine) fn most_tokens(input: &HeadInput, of_model: usize) -> usize {
        if *input == HeadInput::Nothing { MOST_CAUGHT_UP } else { of_model + MOST_HELD }
    }

    /// Copies a head's parts of blocks as the model's are copied; a draft model computes what it needs.
    pub(super) fn copy(&self, copies: &[Copies]) -> Result<()> {
        if self.is_head() { self.runner.copy(copies) } else { Ok(()) }
    }

    /// Most tokens that it drafts at once, if that is more than one.
    pub(in crate::engine) fn block_tokens(&self) -> Option<usize> {
        self.runner.block().map(|block| block.tokens)
    }

    /// Keeps the hidden states that the model had at positions from `first` on of a sequence.
    pub(super) fn keep<'a>(
        &mut self,
        sequence: &Sequence,
        first: usize,
        rows: impl Iterator<Item = &'a [f32]>,
    ) {
        let starts = sequence.starts();
        let progress = self.progress.entry(sequence.id).or_default();
        progress.begin(starts);
        let (mut values, mut width) = (Vec::new(), 0);
        for row in rows {
            width = row.len();
            values.extend(row);
        }
        progress.hidden.add(first, &values, width);
    }

    /// Computes what many positions of a sequence wait for, without any drafts.
    pub(super) fn absorb(&mut self, scheduler: &mut Scheduler) -> Result<()> {
        self.progress.retain(|id, _| scheduler.sequence(*id).is_some());
        let many = |(_, progress): &(&SequenceId, &Progress)| progress.hidden.len() > MOST_HELD;
        let ids: Vec<_> = self.progress.iter().filter(many).map(|(id, _)| *id).collect();
        for id in ids {
            let Some(text) = scheduler.drafted_text(id) else { continue };
            let part = Part { samples: false, ..self.pending(id, 0, &text, usize::MAX) };
            if !part.token_ids.is_empty() {
                self.run(scheduler, &[part])?;
            }
        }
        Ok(())
    }

    /// Brings what is known of a sequence up to date; returns how many of its tokens are computed, never
    /// the last one, whose logits are wanted.
    fn update(&mut self, id: SequenceId, text: &DraftedText<'_>) -> usize {
        let Self { progress, blocks, .. } = self;
        let progress = progress.entry(id).or_default();
        progress.begin(text.starts);
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
    fn run(&mut self, scheduler: &mut Scheduler, parts: &[Part]) -> Result<Vec<Option<Told>>> {
        let (mut logits, hidden) = self.compute(scheduler, parts)?;
        let (mut rows, mut hidden) = (logits.rows_mut(), hidden.rows());
        let told = parts.iter().map(|part| {
            let row = if part.samples { rows.next() } else { None };
            let hidden = if part.samples { hidden.next() } else { None };
            let (token, probability) = most_likely(&row?[..self.vocab_size])?;
            Some(Told { token, probability, hidden: hidden.unwrap_or_default().to_vec() })
        });
        Ok(told.collect())
    }

    /// Computes a batch; gives the rows of logits of the parts that sample, and hidden states of as many.
    fn compute(
        &mut self,
        scheduler: &mut Scheduler,
        parts: &[Part],
    ) -> Result<(HostLogits, HiddenStates)> {
        let mut tables = Vec::with_capacity(parts.len());
        for part in parts {
            let text = scheduler.drafted_text(part.id);
            let table = text.map(|text| text.blocks.to_vec()).unwrap_or_default();
            for block in &table[part.first / BLOCK_SIZE..part.end().div_ceil(BLOCK_SIZE)] {
                self.blocks[*block as usize] = None;
            }
            tables.push(table);
        }
        let plan = parts.iter().zip(&tables).map(|(part, block_table)| part.plan(block_table));
        let hidden = parts.iter().flat_map(|part| part.hidden.iter().copied()).collect();
        let output = self.runner.run(plan, hidden)?;
        for part in parts {
            self.count(scheduler, part);
        }
        Ok(output)
    }

    /// Counts a part as computed.
    fn count(&mut self, scheduler: &mut Scheduler, part: &Part) {
        let is_head = self.is_head();
        let Some(text) = scheduler.drafted_text(part.id) else { return };
        let progress = self.progress.entry(part.id).or_default();
        let is_text = part.first + usize::from(is_head) < text.tokens.len();
        match (is_head, is_text) {
            (true, true) => progress.hidden.take(part.token_ids.len()),
            // The model's own hidden states will be there for it.
            (true, false) => {}
            (false, true) => {
                progress.computed = part.end();
                publish(&mut self.blocks, &text, part.first, part.end());
            }
            (false, false) => progress.drafts.extend(&part.token_ids),
        }
    }
}

impl Part {
    /// The position behind the last.
    fn end(&self) -> usize {
        self.first + self.token_ids.len() + self.masks.len()
    }

    fn plan<'a>(&'a self, block_table: &'a [u32]) -> PlannedSequence<'a> {
        PlannedSequence {
            id: self.id,
            token_ids: &self.token_ids,
            drafts: &self.masks,
            first_position: self.first,
            sequence_len: self.end(),
            block_table,
            slot: 0,
            scored: &[],
            samples: self.samples,
            pooled: (0, 0),
            tapped: false,
            adapter: None,
            media: &[],
            prefix_len: 0,
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
