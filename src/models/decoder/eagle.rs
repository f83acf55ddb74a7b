//! Heads that draft from what single layers of the model gave, EAGLE-3
//! (<https://arxiv.org/abs/2503.01840>).
//!
//! As the heads of checkpoints they compute position `p` from what the model had there and the token of
//! position `p + 1`. What the model had are the inputs of some of its layers, one behind the other and
//! projected to one hidden state; where the head goes on by itself, its own hidden state stands for them.
//! Attention sees the token's embedding and the hidden state beside each other, each normalized. The output
//! head may know fewer tokens than the model.

use candle_core::{Result, Tensor, bail};

use super::known_tokens::{KnownTokens, own_embedding};
use super::model::rows_of;
use super::spec::DecoderSpec;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Attention;
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape, PreviousHidden};
use crate::layers::linear::Linear;
use crate::layers::mlp::Mlp;
use crate::layers::norm::Norm;
use crate::layers::normed::Normed;
use crate::layers::rope::{Rope, RopeAngles};
use crate::models::causal_lm::{CausalLm, ForwardOutput};
use crate::models::error::ModelError;
use crate::weights::{Loaded, Weights};

/// The names that the layer may have.
const LAYERS: [&str; 4] = ["midlayer", "layers.0", "model.midlayer", "model.layers.0"];

/// The shape and the variant of such a head.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of trainers by itself")]
pub struct EagleSpec {
    /// The decoder of one layer that it nearly is.
    pub decoder: DecoderSpec,
    /// Tokens that its output head knows.
    pub draft_vocab_size: usize,
    /// The layers of the model whose inputs it sees, ascending, at least two.
    pub taps: Vec<usize>,
    /// Elements of a hidden state of the model.
    pub model_hidden_size: usize,
    /// Whether all that it sees is normalized together before the projection.
    pub norm_before_projection: bool,
    /// Whether what it sees of each layer is.
    pub norm_of_each: bool,
    /// Whether what attention gives is added to the hidden state as it is normalized.
    pub adds_to_normalized: bool,
    /// Whether it goes on from hidden states behind the final norm.
    pub goes_on_normalized: bool,
}

/// A loaded head.
pub struct EagleHead {
    embedding: Embedding,
    input_norm: Option<Norm>,
    norms_of_each: Vec<Norm>,
    projection: Linear,
    token_norm: Norm,
    hidden_norm: Norm,
    rope: Option<Rope>,
    attention: Attention,
    after_attention: Norm,
    mlp: Mlp,
    norm: Norm,
    head: KnownTokens,
    spec: EagleSpec,
}

impl EagleHead {
    /// Loads the weights of `spec`; a checkpoint without an embedding shares the model's.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape; tokens that the model hasn't.
    pub fn load(
        spec: &EagleSpec,
        weights: &Weights,
        embedding: Option<&Embedding>,
    ) -> std::result::Result<Self, ModelError> {
        let decoder = &spec.decoder;
        let (hidden, attention) = (decoder.mlp.hidden_size, decoder.attention[0]);
        let exists = |layer: &&str| weights.contains(&format!("{layer}.hidden_norm.weight"));
        let layer = LAYERS.into_iter().find(exists).unwrap_or(LAYERS[0]);
        let layer = weights.scope(layer);
        let root = if weights.contains("model.fc.weight") { "model." } else { "" };
        let outer = weights.scope_as(root);
        let norm = |weights: Weights, width| Norm::load(&weights, width, decoder.norm);
        let seen = spec.taps.len() * spec.model_hidden_size;
        let each = if spec.norm_of_each { spec.taps.len() } else { 0 };
        let each =
            (0..each).map(|tap| norm(outer.scope("fc_norm").scope(tap), spec.model_hidden_size));
        let input_norm = spec
            .norm_before_projection
            .then(|| norm(outer.scope("input_norm"), seen))
            .transpose()?;
        Ok(Self {
            embedding: own_embedding(decoder, &outer, embedding)?,
            input_norm,
            norms_of_each: each.collect::<Loaded<_>>()?,
            projection: Linear::load(&outer.scope("fc"), seen, hidden, false)?,
            token_norm: norm(layer.scope("input_layernorm"), hidden)?,
            hidden_norm: norm(layer.scope("hidden_norm"), hidden)?,
            rope: attention.rope.map(|rope| Rope::new(&decoder.ropes[rope])),
            attention: Attention::load_from(&layer.scope("self_attn"), attention, 2 * hidden)?,
            after_attention: norm(layer.scope("post_attention_layernorm"), hidden)?,
            mlp: Mlp::load(&layer.scope("mlp"), decoder.mlp)?,
            norm: norm(outer.scope("norm"), hidden)?,
            head: KnownTokens::load(decoder, spec.draft_vocab_size, weights, None)?,
            spec: spec.clone(),
        })
    }

    /// One hidden state of each row: of what the model had, or of what the head itself had before.
    fn seen(&self, hidden: &Tensor) -> Result<Tensor> {
        let (_, width) = hidden.dims2()?;
        let EagleSpec { model_hidden_size, taps, decoder, .. } = &self.spec;
        if width == decoder.mlp.hidden_size {
            return Ok(hidden.clone());
        }
        if width != model_hidden_size * taps.len() {
            bail!("{width} numbers are no inputs of {} layers", taps.len());
        }
        let mut hidden = hidden.clone();
        if let Some(norm) = &self.input_norm {
            hidden = norm.forward(&hidden)?;
        }
        if !self.norms_of_each.is_empty() {
            let each = self.norms_of_each.iter().enumerate().map(|(tap, norm)| {
                let own = hidden.narrow(1, tap * model_hidden_size, *model_hidden_size)?;
                norm.forward(&own.contiguous()?)
            });
            hidden = Tensor::cat(&each.collect::<Result<Vec<_>>>()?, 1)?;
        }
        self.projection.forward(&hidden)
    }
}

impl CausalLm for EagleHead {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let (device, step) = (context.device, &batch.step);
        let Some(PreviousHidden(hidden)) = &batch.previous_hidden else {
            bail!("a head that drafts needs hidden states");
        };
        let ([kv], rows) = (context.kv, step.input_ids.len()) else {
            bail!("a head of one layer has one KV layer, not {}", context.kv.len());
        };
        if hidden.dim(0)? != rows {
            bail!("hidden states {:?} of {rows} tokens", hidden.dims());
        }
        let x = self.embedding.forward(step.ids(), device)?;
        let hidden = self.seen(hidden)?;
        let normalized = self.hidden_norm.forward(&hidden)?;
        let input = Tensor::cat(&[&self.token_norm.forward(&x)?, &normalized], 1)?;
        let angles = self.rope.as_ref().map(|rope| rope.angles(step, device)).transpose()?;
        let angles = angles.map_or_else(|| RopeAngles::none(rows, &x), Ok)?;
        let none = LayerAdapters::none();
        let attended =
            self.attention.attend(&Normed::plain(&input), &angles, kv, step, (none, true))?;
        let wanted = batch.wanted_rows();
        if wanted.is_empty() {
            return ForwardOutput::of_no_rows(self.vocab_size(), device);
        }
        let kept = Tensor::new(wanted.as_slice(), device)?;
        let residual = if self.spec.adds_to_normalized { normalized } else { hidden };
        let residual = residual.index_select(&kept, 0)?;
        let attended = attended.index_select(&kept, 0)?;
        let x = self.attention.project_add(&attended, &residual, 1.0, none)?;
        let x = self.mlp.forward_add(&self.after_attention.forward(&x)?, &x, 1.0)?;
        let normalized = self.norm.forward(&x)?;
        let told = if self.spec.goes_on_normalized { &normalized } else { &x };
        let hidden = Some(rows_of(told, &batch.hidden_rows, &wanted)?);
        let asked = rows_of(&normalized, &batch.logits_rows, &wanted)?;
        Ok(ForwardOutput { logits: self.head.logits(&asked)?, hidden, tapped: None })
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

    fn max_position_embeddings(&self) -> usize {
        self.spec.decoder.max_position_embeddings
    }

    fn fixed_rope_length(&self) -> Option<usize> {
        self.rope.as_ref().and_then(Rope::fixed_rope_length)
    }
}
