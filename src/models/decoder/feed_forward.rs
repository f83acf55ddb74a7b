//! The feed-forward part of a layer: one, or experts, or both beside each other.

use candle_core::{DType, Result, Tensor};

use super::super::ModelError;
use super::spec::DecoderSpec;
use crate::layers::adapter::LayerAdapters;
use crate::layers::mlp::{Mlp, MlpSpec};
use crate::layers::moe::{BesideMlp, Moe, MoeSpec};
use crate::layers::norm::{Norm, NormSpec, RmsNorm};
use crate::weights::Weights;

/// Any of them.
pub(super) enum FeedForward {
    Dense(Mlp),
    Experts(Box<Moe>),
    Both(Box<Both>),
}

/// Experts beside a feed-forward part.
pub(super) struct Both {
    mlp: Mlp,
    moe: Moe,
    before_experts: Norm,
    before_router: RmsNorm,
    after_mlp: Norm,
    after_experts: Norm,
}

impl FeedForward {
    /// That of layer `index`, if it has one.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
    ) -> std::result::Result<Option<Self>, ModelError> {
        let mlp = spec.mlp(index);
        let dense = || Mlp::load(&weights.scope(spec.names.mlp), mlp);
        Ok(Some(match spec.moe.as_ref().filter(|moe| moe.layers[index]) {
            None if mlp.intermediate_size == 0 => return Ok(None),
            None => Self::Dense(dense()?),
            Some(moe) => match moe.beside {
                None => Self::Experts(Box::new(Moe::load(weights, moe)?)),
                Some(beside) => {
                    Self::Both(Box::new(Both::load(weights, dense()?, moe, beside, spec.norm)?))
                }
            },
        }))
    }

    /// Of `x`, the normalized form of `raw`.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        raw: &Tensor,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.adapted(x, adapters),
            Self::Experts(moe) => moe.forward_add(x, &x.zeros_like()?, 1.0),
            Self::Both(both) => both.forward(x, raw, adapters),
        }
    }

    /// `raw + factor * forward(x, raw)`
    pub(super) fn forward_add(
        &self,
        x: &Tensor,
        raw: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.adapted_add(x, raw, factor, adapters),
            Self::Experts(moe) => moe.forward_add(x, raw, factor),
            Self::Both(both) => raw + (both.forward(x, raw, adapters)? * f64::from(factor))?,
        }
    }
}

impl Both {
    fn load(
        weights: &Weights,
        mlp: Mlp,
        moe: &MoeSpec,
        beside: BesideMlp,
        norm: NormSpec,
    ) -> std::result::Result<Self, ModelError> {
        let MlpSpec { hidden_size, .. } = moe.expert;
        let load = |name: &str| Norm::load(&weights.scope(name), hidden_size, norm);
        let router = beside.router;
        let scale = weights.dense(router.scale, &[hidden_size], DType::F32)?;
        let scale =
            (scale * f64::from(router.factor)).map_err(crate::weights::WeightError::from)?;
        Ok(Self {
            mlp,
            moe: Moe::load(weights, moe)?,
            before_experts: load(beside.before)?,
            before_router: RmsNorm::new(scale, router.eps),
            after_mlp: load(beside.after[0])?,
            after_experts: load(beside.after[1])?,
        })
    }

    fn forward(&self, x: &Tensor, raw: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let given = self.before_experts.forward(raw)?;
        let routed_by = self.before_router.forward(raw)?;
        let experts = self.moe.forward_routed(&given, &routed_by, &given.zeros_like()?, 1.0)?;
        let dense = self.after_mlp.forward(&self.mlp.adapted(x, adapters)?)?;
        self.after_experts.forward_add(&experts, &dense)
    }
}
