//! Drafters of whole blocks: DFlash (<https://arxiv.org/abs/2602.06036>), and DSpark, which is DFlash with
//! a bias of each token by the one before it.
//!
//! What the model had at a position, the inputs of some of its layers, is projected to one hidden state, of
//! which every layer of the drafter takes keys and values: that is all it knows of the text. In a second
//! pass the last token and masks behind it go through the layers together, where each sees the text and all
//! of the block; logits at a mask are of the token in its place. The masks' own keys and values are written
//! over when the model has computed these positions.

use std::sync::Arc;

use candle_core::{D, Device, Result, Tensor, bail};

use super::known_tokens::{KnownTokens, own_embedding};
use super::layer::Layer;
use super::spec::DecoderSpec;
use super::step::{Carried, LayerStep};
use crate::layers::adapter::LayerAdapters;
use crate::layers::embedding::Embedding;
use crate::layers::forward::{
    ForwardBatch, ForwardContext, Indices, KvShape, PreviousHidden, Step,
};
use crate::layers::group::Alone;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::layers::rope::{Rope, RopeAngles};
use crate::models::causal_lm::{CausalLm, DraftedBlock, ForwardOutput};
use crate::models::error::ModelError;
use crate::weights::{Loaded, Weights};

/// The shape and the variant of such a drafter.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockDrafterSpec {
    /// The decoder that it nearly is.
    pub decoder: DecoderSpec,
    /// Tokens that its output head knows.
    pub draft_vocab_size: usize,
    /// The layers of the model whose inputs it sees, ascending.
    pub taps: Vec<usize>,
    /// Elements of a hidden state of the model.
    pub model_hidden_size: usize,
    /// What it drafts at once.
    pub block: DraftedBlock,
    /// Whether the tokens of a block see those behind them, layer by layer.
    pub two_way: Vec<bool>,
    /// The rank of the bias of a token by the one before it, where there is one.
    pub bias_rank: Option<usize>,
}

/// A loaded drafter.
pub struct BlockDrafter {
    embedding: Embedding,
    projection: Linear,
    hidden_norm: Norm,
    ropes: Vec<Rope>,
    layers: Vec<Layer>,
    norm: Norm,
    head: KnownTokens,
    bias: Option<Bias>,
    spec: BlockDrafterSpec,
}

/// A bias of each token by the one before it, of low rank.
#[derive(Debug)]
struct Bias {
    before: Embedding,
    after: Linear,
}

impl BlockDrafter {
    /// Loads the weights of `spec`; what a checkpoint hasn't of an embedding and an output head it shares
    /// with the model.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape; tokens that the model hasn't.
    pub fn load(
        spec: &BlockDrafterSpec,
        weights: &Weights,
        embedding: Option<&Embedding>,
        head: Option<&Linear>,
    ) -> std::result::Result<Self, ModelError> {
        let decoder = &spec.decoder;
        let hidden = decoder.mlp.hidden_size;
        let root = if weights.contains("model.fc.weight") { "model." } else { "" };
        let outer = weights.scope_as(root);
        let norm = |name| Norm::load(&outer.scope(name), hidden, decoder.norm);
        let layers = outer.scope("layers");
        let layer =
            |index| Layer::load(&layers.scope(index), decoder, index, None, Arc::new(Alone));
        let seen = spec.taps.len() * spec.model_hidden_size;
        let bias = spec.bias_rank.map(|rank| Bias::load(&outer, spec, rank));
        Ok(Self {
            embedding: own_embedding(decoder, &outer, embedding)?,
            projection: Linear::load(&outer.scope("fc"), seen, hidden, false)?,
            hidden_norm: norm("hidden_norm")?,
            ropes: decoder.ropes.iter().map(Rope::new).collect(),
            layers: (0..decoder.attention.len()).map(layer).collect::<Loaded<_>>()?,
            norm: norm("norm")?,
            head: KnownTokens::load(decoder, spec.draft_vocab_size, weights, head)?,
            bias: bias.transpose()?,
            spec: spec.clone(),
        })
    }

    /// Has all layers remember rows of what the model had.
    fn remember(
        &self,
        context: &ForwardContext<'_>,
        batch: &ForwardBatch,
        hidden: &Tensor,
    ) -> Result<ForwardOutput> {
        let seen = (batch.step.input_ids.len(), self.spec.taps.len() * self.spec.model_hidden_size);
        if hidden.dims2()? != seen {
            bail!("hidden states {:?} are not {seen:?}", hidden.dims());
        }
        if !batch.logits_rows.is_empty() || !batch.hidden_rows.is_empty() {
            bail!("a drafter of blocks tells nothing of rows that it remembers");
        }
        let x = self.hidden_norm.forward(&self.projection.forward(hidden)?)?;
        self.through_layers(context, &batch.step, &batch.step, x, |layer, x, step| {
            layer.write(&x, step).map(|()| x)
        })?;
        ForwardOutput::of_no_rows(self.vocab_size(), context.device)
    }

    /// Drafts the blocks that the sequences of a batch are.
    fn draft(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let (step, device) = (&batch.step, context.device);
        let all = step.input_ids.len();
        if batch.logits_rows.len() != all || !batch.hidden_rows.is_empty() {
            bail!("{} rows of logits of blocks of {all} rows", batch.logits_rows.len());
        }
        let x = self.embedding.forward(step.ids(), device)?;
        let bounds = step.cu_seqlens_q.windows(2).zip(&step.context_lens);
        let ends = bounds.flat_map(|(rows, end)| (rows[0]..rows[1]).map(|_| *end));
        let mut open = Step { attention_ends: ends.collect(), ..step.clone() };
        if step.tensors().is_some() {
            let tensors = open.to_device(device)?;
            open = open.with_tensors(tensors);
        }
        let x = self.through_layers(context, step, &open, x, Layer::forward)?;
        let logits = self.head.own_logits(&self.norm.forward(&x)?)?;
        let logits = match &self.bias {
            Some(bias) => self.with_bias(bias, step, &logits)?,
            None => logits,
        };
        Ok(ForwardOutput { logits: self.head.spread(logits)?, hidden: None, tapped: None })
    }

    /// What `pass` makes of `x` in one layer after the other, with the step `open` where a block's tokens
    /// see all of it.
    fn through_layers<'a>(
        &self,
        context: &ForwardContext<'_>,
        step: &'a Step,
        open: &'a Step,
        mut x: Tensor,
        pass: impl Fn(&Layer, Tensor, &LayerStep<'_>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let attention = &self.spec.decoder.attention;
        if context.kv.len() != attention.len() {
            bail!("{} KV layers of {} layers", context.kv.len(), attention.len());
        }
        let angles = self.ropes.iter().map(|rope| rope.angles(step, context.device));
        let angles = angles.collect::<Result<Vec<_>>>()?;
        let none = RopeAngles::none(step.input_ids.len(), &x)?;
        let carried = Carried::default();
        for (index, layer) in self.layers.iter().enumerate() {
            let angles = attention[index].rope.map_or(&none, |rope| &angles[rope]);
            let step = if self.spec.two_way[index] { open } else { step };
            let adapters = [LayerAdapters::none(); 2];
            let step = LayerStep {
                context,
                step,
                angles,
                memory: self.spec.decoder.memory(index),
                input: None,
                embeddings: None,
                carried: &carried,
                keep: None,
                adapters,
            };
            x = pass(layer, x, &step)?;
        }
        Ok(x)
    }

    /// Logits of the drafter's own tokens with the bias of each by the one before it: the likeliest there,
    /// or the last token of the text.
    fn with_bias(&self, bias: &Bias, step: &Step, logits: &Tensor) -> Result<Tensor> {
        let first = usize::from(!self.spec.block.last_drafts);
        let mut rows = Vec::with_capacity(step.input_ids.len());
        for bounds in step.cu_seqlens_q.windows(2) {
            let [from, to] = [bounds[0], bounds[1]].map(|row| row as usize);
            let mut before = step.input_ids[from];
            for row in from..to {
                let mut own = logits.narrow(0, row, 1)?;
                if row - from >= first {
                    own = (own + bias.behind(before, logits.device())?)?;
                    before = self.head.spread(own.clone())?.argmax(D::Minus1)?.to_vec1()?[0];
                }
                rows.push(own);
            }
        }
        Tensor::cat(&rows, 0)
    }
}

impl Bias {
    fn load(weights: &Weights, spec: &BlockDrafterSpec, rank: usize) -> Loaded<Self> {
        let weights = weights.scope("markov_head");
        let vocab = spec.decoder.vocab_size;
        Ok(Self {
            before: Embedding::new(Matrix::load(&weights, "markov_w1.weight", vocab, rank)?),
            after: Linear::load(&weights.scope("markov_w2"), rank, spec.draft_vocab_size, false)?,
        })
    }

    /// What the drafter's own tokens have more behind this one, `[1, tokens]`.
    fn behind(&self, token: u32, device: &Device) -> Result<Tensor> {
        let ids = [token];
        let before = self.before.forward(Indices::from(&ids[..]), device)?;
        self.after.forward(&before)
    }
}

impl CausalLm for BlockDrafter {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        match &batch.previous_hidden {
            Some(PreviousHidden(hidden)) => self.remember(context, batch, hidden),
            None => self.draft(context, batch),
        }
    }

    fn kv_shape(&self) -> KvShape {
        self.spec.decoder.kv_shape()
    }

    fn vocab_size(&self) -> usize {
        self.spec.decoder.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.spec.decoder.mlp.hidden_size
    }

    fn needs_hidden(&self) -> bool {
        true
    }

    fn taps(&self) -> &[usize] {
        &self.spec.taps
    }

    fn block(&self) -> Option<DraftedBlock> {
        Some(self.spec.block)
    }

    fn max_position_embeddings(&self) -> usize {
        self.spec.decoder.max_position_embeddings
    }

    fn fixed_rope_length(&self) -> Option<usize> {
        self.ropes.iter().find_map(Rope::fixed_rope_length)
    }
}
