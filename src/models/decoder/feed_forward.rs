//! The feed-forward part of a layer: a dense one, experts, or both in parallel.

use candle_core::{DType, Result, Tensor};

use super::spec::DecoderSpec;
use super::step::LayerStep;
use crate::layers::adapter::LayerAdapters;
use crate::layers::mlp::{Mlp, MlpSpec};
use crate::layers::moe::{Moe, MoeSpec, ParallelDense};
use crate::layers::norm::{Norm, NormSpec, RmsNorm};
use crate::layers::normed::Normed;
use crate::weights::{Loaded, Weights};

/// The feed-forward part of a layer.
pub(super) enum FeedForward {
    Dense(Box<Mlp>),
    Experts(Box<Moe>),
    Both(Box<DenseAndExperts>),
}

/// A dense feed-forward part and experts in parallel.
pub(super) struct DenseAndExperts {
    mlp: Mlp,
    moe: Moe,
    before_experts: Norm,
    before_router: RmsNorm,
    after_mlp: Norm,
    after_experts: Norm,
}

impl FeedForward {
    /// Loads the feed-forward part of layer `index`, if it has one.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
    ) -> Loaded<Option<Self>> {
        let mlp = spec.mlp(index);
        let [first, ..] = mlp.tensors.names();
        let there = |name: &&str| weights.contains(&format!("{name}.{first}.weight"));
        let own = spec.names.other_mlp.filter(there).unwrap_or(spec.names.mlp);
        let own =
            if own.is_empty() { weights.clone() } else { weights.scope(spec.module(index, own)) };
        let dense = || Mlp::load(&own, mlp);
        Ok(Some(match spec.experts(index).filter(|_| !spec.pairs).as_deref() {
            None if mlp.intermediate_size == 0 => return Ok(None),
            None => Self::Dense(Box::new(dense()?)),
            Some(moe) => match moe.parallel_dense {
                None => Self::Experts(Box::new(Moe::load(weights, moe)?)),
                Some(parallel) => {
                    let both = DenseAndExperts::load(weights, dense()?, moe, parallel, spec.norm)?;
                    Self::Both(Box::new(both))
                }
            },
        }))
    }

    /// The feed-forward part of `x`, which is `raw` normalized.
    pub(super) fn forward(
        &self,
        x: &Normed<'_>,
        raw: &Tensor,
        step: &LayerStep<'_>,
    ) -> Result<Tensor> {
        let [_, adapters] = step.adapters;
        match self {
            Self::Dense(mlp) => mlp.adapted(x, adapters),
            Self::Experts(moe) => {
                let x = x.tensor()?;
                moe.forward_add(x, &x.zeros_like()?, 1.0, &step.carried.router_memory)
            }
            Self::Both(both) => both.forward(x, raw, step),
        }
    }

    /// The type in which so many rows of `x` are best given: see [`Mlp::input_type`].
    pub(super) fn input_type(&self, rows: usize, adapters: LayerAdapters<'_>) -> DType {
        match self {
            Self::Dense(mlp) => mlp.input_type(rows, adapters),
            // A router looks at more digits.
            Self::Experts(_) | Self::Both(_) => DType::F32,
        }
    }

    /// `raw + factor * forward(x, raw)`
    pub(super) fn forward_add(
        &self,
        x: &Normed<'_>,
        raw: &Tensor,
        factor: f32,
        step: &LayerStep<'_>,
    ) -> Result<Tensor> {
        let [_, adapters] = step.adapters;
        match self {
            Self::Dense(mlp) => mlp.adapted_add(x, raw, factor, adapters),
            Self::Experts(moe) => {
                moe.forward_add(x.tensor()?, raw, factor, &step.carried.router_memory)
            }
            Self::Both(both) => raw + (both.forward(x, raw, step)? * f64::from(factor))?,
        }
    }
}

impl DenseAndExperts {
    fn load(
        weights: &Weights,
        mlp: Mlp,
        moe: &MoeSpec,
        parallel: ParallelDense,
        norm: NormSpec,
    ) -> Loaded<Self> {
        let MlpSpec { hidden_size, .. } = moe.expert;
        let load = |name: &str| Norm::load(&weights.scope(name), hidden_size, norm);
        let router = parallel.router;
        let scale = weights.dense(router.scale, &[hidden_size], DType::F32)?;
        let scale = (scale * f64::from(router.factor))?;
        Ok(Self {
            mlp,
            moe: Moe::load(weights, moe)?,
            before_experts: load(parallel.before_experts)?,
            before_router: RmsNorm::new(scale, router.eps),
            after_mlp: load(parallel.after[0])?,
            after_experts: load(parallel.after[1])?,
        })
    }

    fn forward(&self, x: &Normed<'_>, raw: &Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        let input = self.before_experts.forward(raw)?;
        let router_input = self.before_router.forward(raw)?;
        let (nothing, memory) = (input.zeros_like()?, &step.carried.router_memory);
        let experts = self.moe.forward_routed([&input, &router_input], &nothing, 1.0, memory)?;
        let [_, adapters] = step.adapters;
        let dense = self.after_mlp.forward(&self.mlp.adapted(x, adapters)?)?;
        self.after_experts.forward_add(&experts, &dense)
    }
}
