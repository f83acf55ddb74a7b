//! Runs a draft model: a second model over the block tables of the first one.
//!
//! It has tensors of its own with a block for each of the first model's, so whoever has a block has both.
//! Which of them hold what, the engine knows.

use candle_core::{Device, Result, Tensor, bail};

use super::batch::{self, narrow};
use super::cache_sizes::CacheSizes;
use super::decode_graphs::DecodeBounds;
use super::hidden::{HeadInput, HiddenStates};
use super::local::{self, LargestSteps, Local, Partner};
use super::logits::HostLogits;
use crate::layers::forward::{KvFormat, PreviousHidden};
use crate::models::{CausalLm, DraftedBlock, ForwardOutput};
use crate::scheduler::output::{Copies, PlannedSequence};

/// A draft model with its KV cache.
pub struct DraftRunner {
    local: Local,
    /// Most tokens of a sequence that it computes.
    max_len: usize,
    vocab_size: usize,
    input: HeadInput,
    block: Option<DraftedBlock>,
    /// Most tokens of a step that is captured.
    captured: usize,
}

impl DraftRunner {
    /// Takes the model and allocates `num_blocks` blocks.
    ///
    /// # Errors
    ///
    /// Memory doesn't suffice; the model has recurrent states, which wrong drafts would spoil.
    pub fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        num_blocks: usize,
        kv_format: KvFormat,
    ) -> Result<Self> {
        if !model.kv_shape().states.is_empty() || !model.gives_logits() {
            bail!("a draft model has an output head and no recurrent layers");
        }
        // Past this length all of it would have to be computed again.
        let longest = model.fixed_rope_length().unwrap_or(usize::MAX);
        let max_len = longest.min(model.max_position_embeddings());
        let (vocab_size, input) = (model.vocab_size(), HeadInput::of(&*model));
        let block = model.block();
        let sizes = CacheSizes { num_blocks, kv_format, num_slots: 0, num_snapshots: 0 };
        // A head has few kernels, and other tensors to read each time.
        let captures = input == HeadInput::Nothing;
        let local = Local::new(model, device, sizes, captures)?;
        Ok(Self { local, max_len, vocab_size, input, block, captured: 0 })
    }

    /// Computes the largest steps of a drafter that no runner has yet, beside a model with hidden states of
    /// `hidden_size`: its device's free memory shows what they take.
    ///
    /// # Errors
    ///
    /// A step takes more memory than there is.
    pub fn rehearse(
        drafter: &dyn CausalLm,
        hidden_size: usize,
        device: &Device,
        largest: LargestSteps,
        kv_format: KvFormat,
    ) -> Result<()> {
        let none = HeadInput::Nothing;
        let rehearse =
            |largest, partner| local::rehearse(drafter, device, largest, kv_format, partner);
        let Some(width) = HeadInput::of(drafter).width(hidden_size) else {
            return rehearse(largest, Partner::Head(&none));
        };
        let remembers = drafter.block().is_some();
        rehearse(largest, Partner::Model { width, remembers })?;
        if remembers {
            rehearse(LargestSteps { tokens: largest.rows, ..largest }, Partner::Blocks)?;
        }
        Ok(())
    }

    /// Captures steps of single tokens up to these bounds, where they are captured. The thread that calls
    /// this is the one that computes.
    ///
    /// # Errors
    ///
    /// No memory for what all of them share.
    pub fn capture(&mut self, bounds: DecodeBounds) -> Result<()> {
        self.captured = if self.local.captures() { bounds.tokens } else { 0 };
        self.local.capture(bounds, &HeadInput::Nothing).map(drop)
    }

    /// Most tokens of a sequence that the model computes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Number of logits; tokens with higher ids are unknown to the model.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Whether it is a head, which needs the model's hidden states.
    pub fn is_head(&self) -> bool {
        self.input != HeadInput::Nothing
    }

    /// What it needs of the model.
    pub fn input(&self) -> &HeadInput {
        &self.input
    }

    /// What it drafts at once, if that is more than a token.
    pub fn block(&self) -> Option<DraftedBlock> {
        self.block
    }

    /// Copies blocks as the model's are copied.
    pub fn copy(&self, copies: &[Copies]) -> Result<()> {
        let blocks: Vec<_> = copies.iter().filter_map(|copies| copies.block).collect();
        self.local.copy(&blocks, &[])
    }

    /// Computes the planned sequences, which have no adapters, pictures or states here. Gives a row of
    /// logits for each that samples. A head is given the `hidden` states of all rows one after the other,
    /// all of one width, from which their tokens were predicted, and gives such for each row of logits; one
    /// that drafts blocks remembers them instead, or is given none and drafts.
    pub fn run<'a>(
        &self,
        plan: impl Iterator<Item = PlannedSequence<'a>>,
        hidden: Vec<f32>,
    ) -> Result<(HostLogits, HiddenStates)> {
        let adapter = |_| unreachable!("the plan of a draft model has no adapters");
        let features = |_: &_| bail!("a draft model sees no pictures");
        let mut batch = batch::flatten(plan, adapter, features)?;
        let rows = batch.step.input_ids.len();
        if self.is_head() && !hidden.is_empty() {
            let shape = (rows, hidden.len() / rows.max(1));
            let hidden = Tensor::from_vec(hidden, shape, self.local.device())?;
            batch.previous_hidden = Some(PreviousHidden(hidden));
            batch.hidden_rows.clone_from(&batch.logits_rows);
        }
        // A step where all tokens have logits is one of single tokens.
        let widened = rows <= self.captured && (1..rows).contains(&batch.logits_rows.len());
        let wanted =
            widened.then(|| std::mem::replace(&mut batch.logits_rows, (0..narrow(rows)).collect()));
        let ForwardOutput { mut logits, hidden, .. } = self.local.forward(&batch, None)?;
        if let Some(wanted) = wanted {
            logits = logits.index_select(&Tensor::new(wanted, logits.device())?, 0)?;
        }
        Ok((HostLogits::from_tensor(logits)?, HiddenStates::from_tensor(hidden)?))
    }
}
