//! Hyper-connections: streams of hidden states side by side, which the parts of layers read and write.
//!
//! Zhu et al., "Hyper-Connections", 2024. A part of a layer sees a weighted sum of a token's streams; what it gives is
//! added to each of them by a factor of its own. Weights and factors follow from all streams of the token. Here no
//! stream goes over into another one.

use candle_core::{DType, Result, Tensor};

use super::spec::{DecoderSpec, HyperConnectionsSpec};
use crate::kernels::pointwise::sigmoid;
use crate::kernels::weighted_rows::sum_streams;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::RmsNorm;
use crate::weights::{Loaded, Weights};

/// Names in a layer of what is around the mixer and around the feed-forward part.
const IN_LAYER: [&str; 2] = ["attn_hc", "ffn_hc"];
/// Names of the projection, of the offsets and of the scales there.
const TENSORS: [&str; 3] = ["fn", "base", "scale"];
/// Name of what is behind the last layer, and names there.
const HEAD: (&str, [&str; 3]) = ("hc_head", ["hc_fn", "hc_base", "hc_scale"]);

/// Numbers that all streams of a token say, between zero and one: some for each stream.
struct Gates {
    norm: RmsNorm,
    projection: Linear,
    /// `[gates]` each.
    offset: Tensor,
    scale: Tensor,
}

impl Gates {
    /// `groups` times as many as there are streams; a group has a scale.
    fn load(
        weights: &Weights,
        [projection, offset, scale]: [&str; 3],
        spec: &DecoderSpec,
        (streams, groups): (HyperConnectionsSpec, usize),
    ) -> Loaded<Self> {
        let (count, inputs) = (streams.count, streams.count * spec.mlp.hidden_size);
        let outputs = groups * count;
        // All that a layer adds goes through them: they keep their digits unless a file has rounded them.
        let matrix = Matrix::load_unrounded(weights, projection, outputs, inputs)?;
        let scales = weights.dense(scale, &[groups], DType::F32)?.unsqueeze(1)?;
        let ones = Tensor::ones(inputs, DType::F32, weights.device())?;
        Ok(Self {
            norm: RmsNorm::new(ones, spec.norm.eps),
            projection: Linear::from_matrix(matrix, None)?,
            offset: weights.dense(offset, &[outputs], DType::F32)?,
            scale: scales.repeat((1, count))?.flatten_all()?,
        })
    }

    /// Those of streams `x [num_tokens, streams * hidden]`: `[num_tokens, gates]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let projected = self.projection.forward(&self.norm.forward(x)?)?;
        sigmoid(&projected.broadcast_mul(&self.scale)?.broadcast_add(&self.offset)?)
    }
}

/// What is around a part of a layer.
pub(super) struct HyperConnection {
    gates: Gates,
    spec: HyperConnectionsSpec,
}

impl HyperConnection {
    /// Loads those around the mixer and around the feed-forward part of a layer.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<[Self; 2]>> {
        let Some(streams) = spec.hyper_connections else { return Ok(None) };
        let load = |name: &str| -> Loaded<Self> {
            let gates = Gates::load(&weights.scope(name), TENSORS, spec, (streams, 2))?;
            Ok(Self { gates, spec: streams })
        };
        let [mixer, mlp] = IN_LAYER.map(load);
        Ok(Some([mixer?, mlp?]))
    }

    /// What the part sees of streams `x [num_tokens, streams * hidden]`, `[num_tokens, hidden]`, and the factors by
    /// which what it gives is added to them, `[num_tokens, streams]`.
    pub(super) fn read(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let HyperConnectionsSpec { count, magnitude, eps } = self.spec;
        let gates = self.gates.forward(x)?;
        let weights = (gates.narrow(1, 0, count)?.contiguous()? + f64::from(eps))?;
        let factors = gates.narrow(1, count, count)?.affine(f64::from(magnitude), f64::from(eps));
        Ok([sum_streams(x, &weights)?, factors?.contiguous()?])
    }
}

/// What makes streams of embeddings, and hidden states of streams.
pub(super) struct HyperHead {
    gates: Gates,
    spec: HyperConnectionsSpec,
}

impl HyperHead {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(streams) = spec.hyper_connections else { return Ok(None) };
        let (name, tensors) = HEAD;
        let gates = Gates::load(&weights.scope(name), tensors, spec, (streams, 1))?;
        Ok(Some(Self { gates, spec: streams }))
    }

    /// `x [num_tokens, hidden]` in each stream: `[num_tokens, streams * hidden]`.
    pub(super) fn expand(&self, x: &Tensor) -> Result<Tensor> {
        x.repeat((1, self.spec.count))
    }

    /// The weighted sum of the streams: `[num_tokens, hidden]`.
    pub(super) fn contract(&self, x: &Tensor) -> Result<Tensor> {
        sum_streams(x, &(self.gates.forward(x)? + f64::from(self.spec.eps))?)
    }
}
