//! Per-layer embeddings: small vectors of each token that every layer gets besides hidden states,
//! from an embedding for all layers and from a projection of the token's common embedding.
//!
//! Google, Gemma 3n and Gemma 4.

use std::iter::{once, repeat_n};

use candle_core::{Device, Result, Tensor};

use super::embedding_and_head::at_least_eight_bits;
use super::spec::{DecoderSpec, LayerInputs};
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::embedding::Embedding;
use crate::layers::forward::Indices;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// The per-layer embeddings of all layers.
pub(super) struct LayerInputTable {
    embedding: Embedding,
    projection: Linear,
    norm: Norm,
    layers: usize,
    width: usize,
    hidden_size: usize,
}

impl LayerInputTable {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec, inputs: LayerInputs) -> Loaded<Self> {
        let (layers, hidden) = (spec.attention.len(), spec.mlp.hidden_size);
        let LayerInputs { width, vocab_size, .. } = inputs;
        let shape = [vocab_size, layers * width];
        // Tokens without a row, such as those of pictures, have the first one's.
        let missing = spec.vocab_size.saturating_sub(vocab_size);
        let all = 0..vocab_size;
        let rows: Vec<_> = once(all).chain(repeat_n(0..1, missing)).collect();
        let rows = (missing > 0).then_some(&rows[..]);
        let embedding = weights.stored_rows("embed_tokens_per_layer.weight", &shape, rows)?;
        let kind = weights.rounding().map(at_least_eight_bits);
        let projection = weights.scope("per_layer_model_projection");
        let norm = weights.scope("per_layer_projection_norm");
        Ok(Self {
            embedding: Embedding::new(Matrix::from_stored(weights, &embedding, kind)?),
            projection: Linear::load(&projection, hidden, layers * width, false)?,
            norm: Norm::load(&norm, width, spec.norm)?,
            layers,
            width,
            hidden_size: hidden,
        })
    }

    /// Per-layer embeddings `[num_tokens, layers, width]` of tokens with embeddings
    /// `x [num_tokens, hidden]`.
    pub(super) fn forward(&self, ids: Indices<'_>, x: &Tensor, device: &Device) -> Result<Tensor> {
        let shape = (ids.host.len(), self.layers, self.width);
        #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^52")]
        let [width, hidden] = [self.width as f64, self.hidden_size as f64];
        let own = (self.embedding.forward(ids, device)? * width.sqrt())?.reshape(shape)?;
        let common = (self.projection.forward(x)? / hidden.sqrt())?.reshape(shape)?;
        (self.norm.forward(&common)? + own)? * std::f64::consts::FRAC_1_SQRT_2
    }
}

/// Adds a layer's embeddings to its hidden states.
pub(super) struct LayerInput {
    gate: Linear,
    projection: Linear,
    norm: Norm,
    activation: Activation,
}

impl LayerInput {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec, inputs: LayerInputs) -> Loaded<Self> {
        let (hidden, width) = (spec.mlp.hidden_size, inputs.width);
        Ok(Self {
            gate: Linear::load(&weights.scope("per_layer_input_gate"), hidden, width, false)?,
            projection: Linear::load(&weights.scope("per_layer_projection"), width, hidden, false)?,
            norm: Norm::load(&weights.scope("post_per_layer_input_norm"), hidden, spec.norm)?,
            activation: inputs.activation,
        })
    }

    /// `x [num_tokens, hidden]` plus the projection of `input [num_tokens, width]`, gated by `x`.
    pub(super) fn forward_add(&self, x: &Tensor, input: &Tensor) -> Result<Tensor> {
        self.norm.forward_add(&self.projected(x, input)?, x)
    }

    /// The projection of `input [num_tokens, width]`, gated by `x [num_tokens, hidden]`.
    pub(super) fn forward(&self, x: &Tensor, input: &Tensor) -> Result<Tensor> {
        self.norm.forward(&self.projected(x, input)?)
    }

    fn projected(&self, x: &Tensor, input: &Tensor) -> Result<Tensor> {
        let inner = (pointwise(self.activation, &self.gate.forward(x)?)? * input)?;
        self.projection.forward(&inner)
    }
}
