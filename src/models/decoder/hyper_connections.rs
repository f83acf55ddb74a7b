//! Hyper-connections: streams of hidden states side by side, which the parts of layers read and write.
//!
//! Zhu et al., "Hyper-Connections", 2024. A part of a layer sees a weighted sum of a token's streams; what it gives is
//! added to each of them by a factor of its own. Weights and factors follow from all streams of the token. Around a
//! part streams may go over into each other, by matrices whose rows and columns add up to one: Xie et al., "mHC:
//! Manifold-Constrained Hyper-Connections", 2025.

use candle_core::{DType, Result, Tensor};

use super::spec::{DecoderSpec, HyperConnectionsSpec};
use crate::kernels::pointwise::sigmoid;
use crate::kernels::weighted_rows::{add_to_streams, mix_streams, mixing_matrices, sum_streams};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::RmsNorm;
use crate::weights::{Loaded, Weights};

/// Name of what is behind the last layer, and names there.
const HEAD: (&str, [&str; 3]) = ("hc_head", ["hc_fn", "hc_base", "hc_scale"]);

/// Numbers that all streams of a token say.
struct Scores {
    norm: RmsNorm,
    projection: Linear,
    /// `[scores]` each.
    offset: Tensor,
    scale: Tensor,
}

impl Scores {
    /// Those of `groups` of so many scores; a group has a scale.
    fn load(
        weights: &Weights,
        [projection, offset, scale]: [&str; 3],
        spec: &DecoderSpec,
        (streams, groups): (HyperConnectionsSpec, &[usize]),
    ) -> Loaded<Self> {
        let inputs = streams.count * spec.mlp.hidden_size;
        let outputs = groups.iter().sum();
        // All that a layer adds goes through them: they keep their digits unless a file has rounded them.
        let matrix = Matrix::load_unrounded(weights, projection, outputs, inputs)?;
        let scales = weights.dense(scale, &[groups.len()], DType::F32)?.to_vec1::<f32>()?;
        let scales = scales.into_iter().zip(groups);
        let scales = scales.flat_map(|(scale, count)| std::iter::repeat_n(scale, *count));
        let ones = Tensor::ones(inputs, DType::F32, weights.device())?;
        Ok(Self {
            norm: RmsNorm::new(ones, spec.norm.eps),
            projection: Linear::from_matrix(matrix, None)?,
            offset: weights.dense(offset, &[outputs], DType::F32)?,
            scale: Tensor::from_vec(scales.collect(), outputs, weights.device())?,
        })
    }

    /// Those of streams `x [num_tokens, streams * hidden]`: `[num_tokens, scores]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let projected = self.projection.forward(&self.norm.forward(x)?)?;
        projected.broadcast_mul(&self.scale)?.broadcast_add(&self.offset)
    }
}

/// What is around a part of a layer.
pub(super) struct HyperConnection {
    scores: Scores,
    spec: HyperConnectionsSpec,
}

/// What a part sees of streams, and how they go on.
pub(super) struct Around {
    /// What the part sees, `[num_tokens, hidden]`.
    pub(super) seen: Tensor,
    /// The factors by which what it gives is added to each stream, `[num_tokens, streams]`.
    factors: Tensor,
    /// By what streams go over into each other, `[num_tokens, streams * streams]`, if they do.
    mixing: Option<Tensor>,
}

impl Around {
    /// The streams `x` of `rows`, or of all, with what the part gave for these.
    pub(super) fn join(self, x: &Tensor, output: &Tensor, rows: Option<&Tensor>) -> Result<Tensor> {
        let kept = |x: &Tensor| rows.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0));
        let (mut x, factors) = (kept(x)?, kept(&self.factors)?);
        if let Some(mixing) = &self.mixing {
            x = mix_streams(&x, &kept(mixing)?, factors.dim(1)?)?;
        }
        add_to_streams(&x, &factors, output)
    }
}

impl HyperConnection {
    /// Loads those around the mixer and around the feed-forward part of a layer.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<[Self; 2]>> {
        let Some(streams) = spec.hyper_connections else { return Ok(None) };
        let count = streams.count;
        let groups = [count, count, count * count];
        let groups = if streams.mixing.is_some() { &groups[..] } else { &groups[..2] };
        let load = |tensors| -> Loaded<Self> {
            let scores = Scores::load(weights, tensors, spec, (streams, groups))?;
            Ok(Self { scores, spec: streams })
        };
        let [mixer, mlp] = streams.tensors.map(load);
        Ok(Some([mixer?, mlp?]))
    }

    /// What the part sees of streams `x [num_tokens, streams * hidden]`, and how they go on.
    pub(super) fn read(&self, x: &Tensor) -> Result<Around> {
        let HyperConnectionsSpec { count, magnitude, eps: [least, added], mixing, .. } = self.spec;
        let scores = self.scores.forward(x)?;
        let gates = sigmoid(&scores.narrow(1, 0, 2 * count)?.contiguous()?)?;
        let weights = (gates.narrow(1, 0, count)?.contiguous()? + f64::from(least))?;
        let factors = gates.narrow(1, count, count)?.affine(f64::from(magnitude), f64::from(added));
        let matrices = |rounds| {
            let scores = scores.narrow(1, 2 * count, count * count)?.contiguous()?;
            mixing_matrices(&scores, count, rounds, least)
        };
        Ok(Around {
            seen: sum_streams(x, &weights)?,
            factors: factors?.contiguous()?,
            mixing: mixing.map(matrices).transpose()?,
        })
    }
}

/// What makes streams of embeddings, and hidden states of streams.
pub(super) struct HyperHead {
    /// `None`: all streams count the same.
    scores: Option<Scores>,
    spec: HyperConnectionsSpec,
}

impl HyperHead {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(streams) = spec.hyper_connections else { return Ok(None) };
        let load = || {
            let (name, tensors) = HEAD;
            Scores::load(&weights.scope(name), tensors, spec, (streams, &[streams.count]))
        };
        let scores = streams.weighted_head.then(load).transpose()?;
        Ok(Some(Self { scores, spec: streams }))
    }

    /// `x [num_tokens, hidden]` in each stream: `[num_tokens, streams * hidden]`.
    pub(super) fn expand(&self, x: &Tensor) -> Result<Tensor> {
        x.repeat((1, self.spec.count))
    }

    /// The weighted sum of the streams, or their mean: `[num_tokens, hidden]`.
    pub(super) fn contract(&self, x: &Tensor) -> Result<Tensor> {
        let HyperConnectionsSpec { count, eps: [least, _], .. } = self.spec;
        let weights = if let Some(scores) = &self.scores {
            (sigmoid(&scores.forward(x)?)? + f64::from(least))?
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a handful of streams")]
            let share = 1.0 / count as f32;
            Tensor::full(share, (x.dim(0)?, count), x.device())?
        };
        sum_streams(x, &weights)
    }
}
