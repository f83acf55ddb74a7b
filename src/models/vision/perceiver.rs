//! What makes as many tokens of every picture by several layers: queries that were learned see all patches, and
//! each other (the Perceiver Resampler: Alayrac et al., "Flamingo", 2022; with heads that share keys, as Idefics 2
//! has it: Laurençon et al., "What matters when building vision-language models?", 2024).

use candle_core::{DType, Result, Tensor};

use super::layer::activate;
use super::resampler::softmax;
use super::spec::PerceiverSpec;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// A loaded resampler of several layers.
#[derive(Debug)]
pub(super) struct Perceiver {
    /// `[latents, width]`: the queries of the first layer.
    latents: Tensor,
    layers: Vec<PerceiverLayer>,
    norm: Norm,
}

/// One layer.
#[derive(Debug)]
struct PerceiverLayer {
    /// Of queries, of patches, and before the feed-forward part.
    norms: [Norm; 3],
    /// To queries, keys and values.
    qkv: [Linear; 3],
    output: Linear,
    gate: Linear,
    up: Linear,
    down: Linear,
    own: PerceiverSpec,
}

impl Perceiver {
    /// Loads the layers of `own`, for patches of `width` elements.
    pub(super) fn load(weights: &Weights, own: PerceiverSpec, width: usize) -> Loaded<Self> {
        let layers = weights.scope("layers");
        let layer = |index| PerceiverLayer::load(&layers.scope(index), own, width);
        Ok(Self {
            latents: weights.dense("latents", &[own.latents, width], DType::F32)?.contiguous()?,
            layers: (0..own.layers).map(layer).collect::<Loaded<_>>()?,
            norm: Norm::load(&weights.scope("norm"), width, own.norm)?,
        })
    }

    /// `x [patches, width]` to `[latents, width]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut latents = self.latents.clone();
        for layer in &self.layers {
            latents = layer.forward(&latents, x)?;
        }
        self.norm.forward(&latents)
    }
}

impl PerceiverLayer {
    fn load(weights: &Weights, own: PerceiverSpec, width: usize) -> Loaded<Self> {
        let norm = |name| Norm::load(&weights.scope(name), width, own.norm);
        let attention = weights.scope("self_attn");
        let [queries, keys] = own.heads.map(|heads| heads * own.head_dim);
        let linear = |weights: &Weights, name: &str, inputs, outputs| {
            Linear::load(&weights.scope(name), inputs, outputs, false)
        };
        let mlp = weights.scope("mlp");
        Ok(Self {
            norms: [
                norm("input_latents_norm")?,
                norm("input_context_norm")?,
                norm("post_attention_layernorm")?,
            ],
            qkv: [
                linear(&attention, "q_proj", width, queries)?,
                linear(&attention, "k_proj", width, keys)?,
                linear(&attention, "v_proj", width, keys)?,
            ],
            output: linear(&attention, "o_proj", queries, width)?,
            gate: linear(&mlp, "gate_proj", width, own.inner)?,
            up: linear(&mlp, "up_proj", width, own.inner)?,
            down: linear(&mlp, "down_proj", own.inner, width)?,
            own,
        })
    }

    /// `latents [latents, width]` after this layer, in which they see `patches [patches, width]`.
    fn forward(&self, latents: &Tensor, patches: &Tensor) -> Result<Tensor> {
        let [of_latents, of_patches, before_mlp] = &self.norms;
        let (own, context) = (of_latents.forward(latents)?, of_patches.forward(patches)?);
        let latents = (latents + self.attend(&own, &context)?)?;
        let x = before_mlp.forward(&latents)?;
        let gate = activate(self.own.activation, &self.gate.forward(&x)?)?;
        latents + self.down.forward(&(gate * self.up.forward(&x)?)?)?
    }

    fn attend(&self, latents: &Tensor, patches: &Tensor) -> Result<Tensor> {
        let PerceiverSpec { heads: [heads, key_heads], head_dim, .. } = self.own;
        let seen = Tensor::cat(&[patches, latents], 0)?;
        let (count, rows, group) = (latents.dim(0)?, seen.dim(0)?, heads / key_heads);
        let [query, key, value] = &self.qkv;
        // The queries of heads that share keys stand together: [key_heads, group * latents, head_dim].
        let queries = query.forward(latents)?.reshape((count, key_heads, group, head_dim))?;
        let queries = queries.permute((1, 2, 0, 3))?.contiguous()?;
        let queries = queries.reshape((key_heads, group * count, head_dim))?;
        let of_heads = |linear: &Linear| {
            let x = linear.forward(&seen)?.reshape((rows, key_heads, head_dim))?;
            x.transpose(0, 1)?.contiguous()
        };
        #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
        let scale = 1.0 / (head_dim as f64).sqrt();
        let scores = (queries.matmul(&of_heads(key)?.t()?)? * scale)?;
        let found = softmax(&scores)?.matmul(&of_heads(value)?)?;
        let found = found.reshape((key_heads, group, count, head_dim))?.permute((2, 0, 1, 3))?;
        self.output.forward(&found.contiguous()?.reshape((count, heads * head_dim))?)
    }
}
