//! One layer: attention and a feed-forward part, each with its norms, added to the hidden states.

use candle_core::{Result, Tensor};

use super::super::ModelError;
use super::spec::{Block, DecoderSpec};
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Attention;
use crate::layers::forward::{ForwardBatch, KvLayer};
use crate::layers::mlp::Mlp;
use crate::layers::moe::Moe;
use crate::layers::norm::Norm;
use crate::layers::rope::RopeAngles;
use crate::weights::Weights;

/// A loaded layer.
pub(super) struct Layer {
    attention: Attention,
    feed_forward: FeedForward,
    before_attention: Option<Norm>,
    after_attention: Option<Norm>,
    before_mlp: Option<Norm>,
    after_mlp: Option<Norm>,
    block: Block,
}

enum FeedForward {
    Dense(Mlp),
    Experts(Moe),
}

impl FeedForward {
    fn forward(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.adapted(x, adapters),
            Self::Experts(moe) => moe.forward_add(x, &x.zeros_like()?, 1.0),
        }
    }

    /// `residual + factor * forward(x)`
    fn forward_add(
        &self,
        x: &Tensor,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Dense(mlp) => mlp.adapted_add(x, residual, factor, adapters),
            Self::Experts(moe) => moe.forward_add(x, residual, factor),
        }
    }
}

impl Layer {
    /// Loads layer `index` of `spec`.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
    ) -> std::result::Result<Self, ModelError> {
        let attention = spec.attention[index];
        let norm = |name: Option<&'static str>| {
            name.map(|name| Norm::load(&weights.scope(name), attention.hidden_size, spec.norm))
                .transpose()
        };
        let feed_forward = match &spec.moe {
            Some(moe) if moe.layers[index] => FeedForward::Experts(Moe::load(weights, moe)?),
            _ => FeedForward::Dense(Mlp::load(&weights.scope(spec.names.mlp), spec.mlp)?),
        };
        Ok(Self {
            attention: Attention::load(&weights.scope(spec.names.attention), attention)?,
            feed_forward,
            before_attention: norm(spec.block.before_attention)?,
            after_attention: norm(spec.block.after_attention)?,
            before_mlp: norm(spec.block.before_mlp)?,
            after_mlp: norm(spec.block.after_mlp)?,
            block: spec.block,
        })
    }

    /// Takes and returns hidden states; `keep` names the rows that are still wanted after attention.
    /// The adapters are those of all rows, and of those that go on behind attention.
    pub(super) fn forward(
        &self,
        x: Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        batch: &ForwardBatch,
        keep: Option<&Tensor>,
        [adapters, behind]: [LayerAdapters<'_>; 2],
    ) -> Result<Tensor> {
        let scale = self.block.residual_scale;
        let mut x = x;
        let mut seen = normalized(self.before_attention.as_ref(), &x)?;
        let mut attended = self.attention.attend(&seen, angles, kv, batch, adapters)?;
        if let Some(rows) = keep {
            attended = attended.index_select(rows, 0)?;
            x = x.index_select(rows, 0)?;
            if self.block.parallel && self.before_mlp.is_none() {
                seen = seen.index_select(rows, 0)?;
            }
        }
        let added = match &self.after_attention {
            None => self.attention.project_add(&attended, &x, scale, behind)?,
            Some(norm) => norm.forward_add(&self.attention.project(&attended, behind)?, &x)?,
        };
        let given = match (&self.before_mlp, self.block.parallel) {
            (None, true) => seen,
            (norm, true) => normalized(norm.as_ref(), &x)?,
            (norm, false) => normalized(norm.as_ref(), &added)?,
        };
        match &self.after_mlp {
            None => self.feed_forward.forward_add(&given, &added, scale, behind),
            Some(norm) => norm.forward_add(&self.feed_forward.forward(&given, behind)?, &added),
        }
    }
}

fn normalized(norm: Option<&Norm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}
