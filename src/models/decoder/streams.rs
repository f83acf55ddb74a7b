//! Several streams of hidden states side by side, of which layers compute one. Before a layer all streams
//! are predicted from all of them; behind it they are corrected by what it made of the active one.
//!
//! Baykal et al., "Alternating Updates for Efficient Transformers", 2023; Google, Gemma 3n.

use candle_core::{D, DType, Result, Tensor};

use super::hyper_connections::HyperHead;
use super::spec::{DecoderSpec, StreamsSpec};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, WeightError, Weights};

/// The smallest mean square that a stream's size is taken from.
const LEAST: f64 = 1e-5;

/// What makes streams of embeddings, and one hidden state of streams.
pub(super) enum Streams {
    /// Of streams of which layers compute one.
    Predicted(Ends),
    /// Of streams that all parts of layers read and write.
    Connected(HyperHead),
}

impl Streams {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let connected = HyperHead::load(weights, spec)?.map(Self::Connected);
        let predicted = || Ok(Ends::load(weights, spec)?.map(Self::Predicted));
        connected.map_or_else(predicted, |own| Ok(Some(own)))
    }

    /// `[num_tokens, hidden]` to `[num_tokens, streams * hidden]`.
    pub(super) fn expand(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Predicted(ends) => ends.expand(x),
            Self::Connected(head) => head.expand(x),
        }
    }

    /// `[num_tokens, streams * hidden]` to `[num_tokens, hidden]`.
    pub(super) fn contract(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Predicted(ends) => ends.contract(x),
            Self::Connected(head) => head.contract(x),
        }
    }
}

/// Projections between embeddings and all streams but the first, and back.
pub(super) struct Ends {
    expansion: Vec<Linear>,
    contraction: Vec<Linear>,
}

impl Ends {
    fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(streams) = spec.streams else { return Ok(None) };
        let hidden = spec.mlp.hidden_size;
        let all = |name: &str| {
            let list = weights.scope(name);
            let one = |index| Linear::load(&list.scope(index), hidden, hidden, false);
            (0..streams.count - 1).map(one).collect::<std::result::Result<Vec<_>, _>>()
        };
        Ok(Some(Self {
            expansion: all("altup_projections")?,
            contraction: all("altup_unembed_projections")?,
        }))
    }

    /// `[num_tokens, hidden]` to `[num_tokens, streams * hidden]`: embeddings, and projections of them of
    /// the same size.
    fn expand(&self, x: &Tensor) -> Result<Tensor> {
        let size = x.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
        let projected = self.expansion.iter().map(|layer| sized(&layer.forward(x)?, &size));
        let all: Vec<_> = std::iter::once(Ok(x.clone())).chain(projected).collect::<Result<_>>()?;
        Tensor::cat(&all, 1)
    }

    /// `[num_tokens, streams * hidden]` to `[num_tokens, hidden]`: the mean of the first stream and of
    /// projections of the others, of the same size.
    fn contract(&self, x: &Tensor) -> Result<Tensor> {
        let count = self.contraction.len() + 1;
        let mut streams = parts(x, count)?.into_iter();
        let Some(first) = streams.next() else { return Ok(x.clone()) };
        let size = first.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
        let mut sum = first;
        for (layer, stream) in self.contraction.iter().zip(streams) {
            sum = (sum + sized(&layer.forward(&stream)?, &size)?)?;
        }
        #[expect(clippy::cast_precision_loss, reason = "a handful of streams")]
        let mean = sum / count as f64;
        mean
    }
}

/// Rows of `x` scaled to the root mean square `size`.
fn sized(x: &Tensor, size: &Tensor) -> Result<Tensor> {
    let own = x.sqr()?.mean_keepdim(D::Minus1)?.maximum(LEAST)?.sqrt()?;
    x.broadcast_mul(size)?.broadcast_div(&own)
}

/// The streams, `[num_tokens, hidden]` each.
fn parts(x: &Tensor, count: usize) -> Result<Vec<Tensor>> {
    let hidden = x.dim(1)? / count;
    (0..count).map(|index| x.narrow(1, index * hidden, hidden)?.contiguous()).collect()
}

/// What a layer does with the streams.
pub(super) struct LayerStreams {
    spec: StreamsSpec,
    norm: Norm,
    router: Linear,
    /// `[streams, streams]`: to a factor of what was learned, for each stream.
    correction: Tensor,
    /// `[streams, streams * streams]`: to the factors of all streams, for each stream.
    prediction: Tensor,
    /// `[hidden]`
    scale: Option<Tensor>,
    hidden: usize,
}

impl LayerStreams {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(streams) = spec.streams else { return Ok(None) };
        let (count, hidden) = (streams.count, spec.mlp.hidden_size);
        let weights = weights.scope("altup");
        // They are tiny, and all of a token's streams depend on them.
        let small = |name: &str, outputs: usize| {
            let matrix = weights.scope(name).dense("weight", &[outputs, count], DType::F32)?;
            Ok::<_, WeightError>(matrix.t()?.contiguous()?)
        };
        let scale = || weights.dense("correct_output_scale", &[hidden], DType::F32);
        Ok(Some(Self {
            spec: streams,
            norm: Norm::load(&weights.scope("router_norm"), hidden, spec.norm)?,
            router: Linear::load(&weights.scope("modality_router"), hidden, count, false)?,
            correction: small("correction_coefs", count)?,
            prediction: small("prediction_coefs", count * count)?,
            scale: streams.scaled.then(scale).transpose()?,
            hidden,
        }))
    }

    /// The active stream of `x [num_tokens, streams * hidden]`.
    pub(super) fn active(&self, x: &Tensor) -> Result<Tensor> {
        x.narrow(1, self.spec.active * self.hidden, self.hidden)?.contiguous()
    }

    /// Which streams matter for the rows of `x [num_tokens, hidden]`: `[num_tokens, streams]`.
    fn routed(&self, x: &Tensor) -> Result<Tensor> {
        #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^52")]
        let normalized = (self.norm.forward(x)? / self.hidden as f64)?;
        self.router.forward(&normalized)?.tanh()
    }

    /// Predicts all streams, of the same shape.
    pub(super) fn predict(&self, x: &Tensor) -> Result<Tensor> {
        let factors = product(&self.routed(&self.active(x)?)?, &self.prediction)?;
        let streams = parts(x, self.spec.count)?;
        let predicted = streams.iter().enumerate().map(|(to, own)| {
            let mut sum = own.clone();
            for (from, stream) in streams.iter().enumerate() {
                let factor = factors.narrow(1, to * streams.len() + from, 1)?;
                sum = (sum + stream.broadcast_mul(&factor)?)?;
            }
            Ok(sum)
        });
        Tensor::cat(&predicted.collect::<Result<Vec<_>>>()?, 1)
    }

    /// Corrects the predictions `x` by what the layer made of the active one, `computed`.
    pub(super) fn correct(&self, x: &Tensor, computed: &Tensor) -> Result<Tensor> {
        let factors = (product(&self.routed(computed)?, &self.correction)? + 1.0)?;
        let learned = (computed - self.active(x)?)?;
        let corrected =
            parts(x, self.spec.count)?.into_iter().enumerate().map(|(index, stream)| {
                stream + learned.broadcast_mul(&factors.narrow(1, index, 1)?)?
            });
        Tensor::cat(&corrected.collect::<Result<Vec<_>>>()?, 1)
    }

    /// What per-layer embeddings are gated by.
    pub(super) fn gating(&self, x: &Tensor) -> Result<Tensor> {
        let active = self.active(x)?;
        self.scale.as_ref().map_or(Ok(active.clone()), |scale| active.broadcast_mul(scale))
    }

    /// Adds `added [num_tokens, hidden]` to all streams but the first.
    pub(super) fn add_behind_first(&self, x: &Tensor, added: &Tensor) -> Result<Tensor> {
        let zero = added.zeros_like()?;
        let added = std::iter::once(&zero).chain(std::iter::repeat_n(added, self.spec.count - 1));
        x + Tensor::cat(&added.collect::<Vec<_>>(), 1)?
    }
}

/// `x [num_tokens, inputs]` times `matrix [inputs, outputs]`, row by row in the same order whatever the
/// number of rows.
fn product(x: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    let mut sum = None;
    for input in 0..matrix.dim(0)? {
        let own = x.narrow(1, input, 1)?.broadcast_mul(&matrix.narrow(0, input, 1)?)?;
        sum = Some(match sum {
            None => own,
            Some(sum) => (sum + own)?,
        });
    }
    sum.map_or_else(|| Ok(x.clone()), Ok)
}

/// A linear path of low rank beside a mixer, with a norm of its output: it sees what the mixer sees.
pub(super) struct LowRankPath {
    down: Linear,
    up: Linear,
    norm: Norm,
}

impl LowRankPath {
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Option<Self>> {
        let Some(rank) = spec.low_rank_path else { return Ok(None) };
        let (weights, hidden) = (weights.scope("laurel"), spec.mlp.hidden_size);
        Ok(Some(Self {
            down: Linear::load(&weights.scope("linear_left"), hidden, rank, false)?,
            up: Linear::load(&weights.scope("linear_right"), rank, hidden, false)?,
            norm: Norm::load(&weights.scope("post_laurel_norm"), hidden, spec.norm)?,
        }))
    }

    /// Joins `sum`, hidden states plus the mixer's output, with this path from the mixer's input `x`.
    pub(super) fn join(&self, sum: &Tensor, x: &Tensor) -> Result<Tensor> {
        let path = self.norm.forward_add(&self.up.forward(&self.down.forward(x)?)?, x)?;
        (sum + path)? * std::f64::consts::FRAC_1_SQRT_2
    }
}
