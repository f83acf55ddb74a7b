//! Runs a draft model: a second model over the block tables of the first one.
//!
//! It has tensors of its own with a block for each of the first model's, so whoever has a block has both.
//! Which of them hold what, the engine knows.

use candle_core::{Device, Result, Tensor, bail};

use super::batch;
use super::cache_sizes::CacheSizes;
use super::hidden::HiddenStates;
use super::local::Local;
use super::logits::HostLogits;
use crate::layers::forward::{KvFormat, PreviousHidden};
use crate::models::{CausalLm, DraftedBlock};
use crate::scheduler::output::{Copies, PlannedSequence};

/// A draft model with its KV cache.
pub struct DraftRunner {
    local: Local,
    /// Most tokens of a sequence that it computes.
    max_len: usize,
    vocab_size: usize,
    is_head: bool,
    taps: Vec<usize>,
    block: Option<DraftedBlock>,
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
        let (vocab_size, is_head) = (model.vocab_size(), model.needs_hidden());
        let (taps, block) = (model.taps().to_vec(), model.block());
        let sizes = CacheSizes { num_blocks, kv_format, num_slots: 0, num_snapshots: 0 };
        let local = Local::new(model, device, sizes, false)?;
        Ok(Self { local, max_len, vocab_size, is_head, taps, block })
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
        self.is_head
    }

    /// The layers of the model whose inputs such a head needs; none: it needs the last hidden states.
    pub fn taps(&self) -> &[usize] {
        &self.taps
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
        if self.is_head && !hidden.is_empty() {
            let rows = batch.step.input_ids.len();
            let shape = (rows, hidden.len() / rows.max(1));
            let hidden = Tensor::from_vec(hidden, shape, self.local.device())?;
            batch.previous_hidden = Some(PreviousHidden(hidden));
            batch.hidden_rows.clone_from(&batch.logits_rows);
        }
        let output = self.local.forward(&batch, None)?;
        let hidden = HiddenStates::from_tensor(output.hidden)?;
        Ok((HostLogits::from_tensor(output.logits)?, hidden))
    }
}
