//! Hyper-connections: several streams of hidden states side by side. Each part of a layer sees a weighted sum of them,
//! and what it gives is added to all of them, each with a factor; both kinds of factors are learned from the streams
//! themselves.
//!
//! Zhu et al., "Hyper-Connections", 2024; in the form without a matrix between streams, as Tencent's Hunyuan 4 has it.

use candle_core::quantized::GgmlDType;
use candle_core::{D, DType, Result, Tensor};

use super::spec::{DecoderSpec, HyperConnectionsSpec};
use crate::kernels::pointwise::sigmoid;
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Loaded, Weights};

/// Factors that are learned from all streams together.
struct Factors {
    /// From all streams, normalized.
    projection: Linear,
    /// `[outputs]`: what projections are multiplied with, and what is added.
    scale: Tensor,
    base: Tensor,
    norm_eps: f64,
}

impl Factors {
    /// Loads the first of these names that there is, with a kind of factors for each stream for each of so many
    /// `kinds`.
    fn load(weights: &Weights, spec: &DecoderSpec, names: &[&str], kinds: usize) -> Loaded<Self> {
        let streams = spec.hyper_connections.map_or(1, |own| own.count);
        let there = |name: &&&str| weights.contains(&format!("{name}fn"));
        let name = names.iter().find(there).or(names.first()).copied().unwrap_or_default();
        let (outputs, inputs) = (kinds * streams, streams * spec.mlp.hidden_size);
        let projection = weights.stored(&format!("{name}fn"), &[outputs, inputs])?;
        // All of a token depends on these few numbers, which are f32 wherever they are published.
        let projection = Matrix::from_stored(weights, &projection, Some(GgmlDType::F32))?;
        let scale = weights.dense(&format!("{name}scale"), &[kinds], DType::F32)?;
        let scale = scale.unsqueeze(1)?.broadcast_as((kinds, streams))?.contiguous()?;
        Ok(Self {
            projection: Linear::from_matrix(projection, None)?,
            scale: scale.flatten_all()?,
            base: weights.dense(&format!("{name}base"), &[outputs], DType::F32)?,
            norm_eps: f64::from(spec.norm.eps),
        })
    }

    /// The sigmoids of factors for the rows of `x [num_tokens, streams * hidden]`: `[num_tokens, outputs]`.
    fn of(&self, x: &Tensor) -> Result<Tensor> {
        let size = (x.sqr()?.mean_keepdim(D::Minus1)? + self.norm_eps)?.sqrt()?;
        let mixed = self.projection.forward(x)?.broadcast_div(&size)?;
        sigmoid(&mixed.broadcast_mul(&self.scale)?.broadcast_add(&self.base)?)
    }
}

/// The sum of all streams of `x [num_tokens, streams * hidden]` with these `factors [num_tokens, streams]`:
/// `[num_tokens, hidden]`.
fn weighted_sum(x: &Tensor, factors: &Tensor) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let streams = factors.dim(1)?;
    let hidden = width / streams;
    let mut sum = Tensor::zeros((rows, hidden), DType::F32, x.device())?;
    for index in 0..streams {
        let stream = x.narrow(1, index * hidden, hidden)?;
        sum = (sum + stream.broadcast_mul(&factors.narrow(1, index, 1)?)?)?;
    }
    Ok(sum)
}

/// How a part of a layer is connected with the streams.
pub(super) struct HyperConnection {
    factors: Factors,
    spec: HyperConnectionsSpec,
}

impl HyperConnection {
    /// Loads those of a layer's mixer and of its feed-forward part.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<[Self; 2]>> {
        let Some(own) = spec.hyper_connections else { return Ok(None) };
        let load = |names: &[&str]| {
            let factors = Factors::load(weights, spec, names, 2)?;
            Ok::<_, crate::weights::WeightError>(Self { factors, spec: own })
        };
        Ok(Some([
            load(&["hc_attn_layer.hc_pre.hc_", "hc_attn_layer.hc_", "attn_hc."])?,
            load(&["hc_mlp_layer.hc_pre.hc_", "hc_mlp_layer.hc_", "ffn_hc."])?,
        ]))
    }

    /// What the part sees of `x [num_tokens, streams * hidden]`, and the factors of what it gives, `[num_tokens,
    /// streams]`.
    pub(super) fn collapse(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let HyperConnectionsSpec { count, magnitude, eps } = self.spec;
        let (eps, factors) = (f64::from(eps), self.factors.of(x)?);
        let before = (factors.narrow(1, 0, count)? + eps)?;
        let behind = factors.narrow(1, count, count)?.affine(f64::from(magnitude), eps)?;
        Ok([weighted_sum(x, &before)?, behind])
    }

    /// Adds what the part gave, `given [num_tokens, hidden]`, to all streams.
    pub(super) fn expand(&self, x: &Tensor, given: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let hidden = given.dim(1)?;
        let added = (0..self.spec.count).map(|index| {
            let stream = x.narrow(1, index * hidden, hidden)?;
            stream + given.broadcast_mul(&factors.narrow(1, index, 1)?)?
        });
        Tensor::cat(&added.collect::<Result<Vec<_>>>()?, 1)
    }
}

/// What makes streams of embeddings, and one hidden state of streams.
pub(super) struct HyperEnds {
    factors: Factors,
    spec: HyperConnectionsSpec,
}

impl HyperEnds {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(own) = spec.hyper_connections else { return Ok(None) };
        let names = ["hc_head.hc_pre.hc_head_", "hc_head.hc_head_", "hc_head.hc_"];
        Ok(Some(Self { factors: Factors::load(weights, spec, &names, 1)?, spec: own }))
    }

    /// `[num_tokens, hidden]` to `[num_tokens, streams * hidden]`, which are all alike.
    pub(super) fn expand(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::cat(&vec![x; self.spec.count], 1)
    }

    /// `[num_tokens, streams * hidden]` to `[num_tokens, hidden]`.
    pub(super) fn contract(&self, x: &Tensor) -> Result<Tensor> {
        weighted_sum(x, &(self.factors.of(x)? + f64::from(self.spec.eps))?)
    }
}
