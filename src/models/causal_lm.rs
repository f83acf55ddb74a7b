//! The interface between the runner and a model.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::adapter::AdapterLayout;
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};
use crate::layers::linear::Linear;

/// Logits and hidden states of one step, in f32 on the context's device.
#[derive(Clone, Debug)]
pub struct ForwardOutput {
    /// `[batch.logits_rows.len(), vocab_size]`, in memory that nothing else refers to.
    pub logits: Tensor,
    /// `[batch.hidden_rows.len(), hidden_size]`: hidden states after the final norm, from which
    /// logits are computed. `None` if the batch asks for none.
    pub hidden: Option<Tensor>,
    /// `[batch.taps.rows.len(), batch.taps.layers.len() * hidden_size]`: the inputs of these layers, one
    /// behind the other. `None` if the batch asks for none.
    pub tapped: Option<Tensor>,
}

impl ForwardOutput {
    /// Of a batch that asks for nothing: logits of no rows.
    ///
    /// # Errors
    ///
    /// The device has no memory.
    pub fn of_no_rows(vocab_size: usize, device: &Device) -> Result<Self> {
        let logits = Tensor::zeros((0, vocab_size), DType::F32, device)?;
        Ok(Self { logits, hidden: None, tapped: None })
    }
}

/// The block of tokens that a drafter drafts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftedBlock {
    /// What metrics call such drafters.
    pub name: &'static str,
    /// The token that stands for one that is to be drafted.
    pub mask: u32,
    /// Most tokens that it drafts at once, at least one.
    pub tokens: usize,
    /// Whether the row of the last token drafts the token behind it, so that there is a mask less than
    /// drafts; or only masks draft, each the token in its place.
    pub last_drafts: bool,
}

/// A causal language model over a paged KV cache.
pub trait CausalLm: Send {
    /// Runs one step: writes K and V of every token of the batch and returns the rows it asks for.
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput>;

    /// Whether it is a stage: some of the layers. The first one begins with tokens, the others with the
    /// batch's hidden states; all but the last give the hidden states of all tokens, and the last one those
    /// of the rows that the batch asks for.
    fn is_stage(&self) -> bool {
        false
    }

    /// The rows that the batch asks for, from the `hidden` states of [`ForwardBatch::wanted_rows`] which the
    /// last stage gave. The first stage has the output head.
    fn finish(&self, batch: &ForwardBatch, hidden: &Tensor) -> Result<ForwardOutput> {
        let (wanted, rows) = (batch.wanted_rows().len(), hidden.dim(0)?);
        bail!("{rows} hidden states for {wanted} rows of a model that is no stage")
    }

    /// The KV cache and recurrent states this model needs.
    fn kv_shape(&self) -> KvShape;

    /// Number of logits.
    fn vocab_size(&self) -> usize;

    /// Whether there is an output head; without one, rows of logits can't be wanted.
    fn gives_logits(&self) -> bool {
        true
    }

    /// Whether it is a prefix language model: tokens of a prompt see all of it, also what is behind them.
    fn is_prefix_lm(&self) -> bool {
        false
    }

    /// Elements of a hidden state.
    fn hidden_size(&self) -> usize;

    /// Whether it is a head that drafts: its batches have the hidden states that the tokens were predicted
    /// from, besides them.
    fn needs_hidden(&self) -> bool {
        false
    }

    /// The layers of the model whose inputs such a head needs for them; none: it needs the model's last
    /// hidden states.
    fn taps(&self) -> &[usize] {
        &[]
    }

    /// What it drafts at once, if that is more than a token. Then a batch has either hidden states, which
    /// it remembers, or tokens without them, behind each of which masks stand for what it is to draft.
    fn block(&self) -> Option<DraftedBlock> {
        None
    }

    /// Number of layers whose inputs can be asked for.
    fn num_layers(&self) -> usize {
        0
    }

    /// The embedding of tokens, which a head that drafts may share.
    fn embedding(&self) -> Option<&Embedding> {
        None
    }

    /// The output head, which a head that drafts may share.
    fn output_head(&self) -> Option<&Linear> {
        None
    }

    /// Elements of the features of a picture's token: those of a hidden state, and again as many for each
    /// of the first layers after which more of them are added.
    fn picture_width(&self) -> usize {
        self.hidden_size()
    }

    /// The longest sequence the checkpoint declares.
    fn max_position_embeddings(&self) -> usize;

    /// Longest sequence whose cached keys stay valid as it grows: once it is longer, all of its
    /// tokens must be computed again, with LongRoPE's other factors. `None`: there is no such
    /// length.
    fn fixed_rope_length(&self) -> Option<usize> {
        None
    }

    /// The modules that a LoRA adapter may change; `None` if the model supports no adapters.
    fn adapter_layout(&self) -> Option<AdapterLayout> {
        None
    }
}
