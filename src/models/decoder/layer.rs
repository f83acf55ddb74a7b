//! One layer: attention and a feed-forward part, each with its norms, added to the hidden states.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::super::ModelError;
use super::feed_forward::FeedForward;
use super::layer_inputs::LayerInput;
use super::mixer::Mixer;
use super::spec::{Block, DecoderSpec};
use crate::layers::adapter::LayerAdapters;
use crate::layers::forward::{ForwardBatch, ForwardContext};
use crate::layers::group::Group;
use crate::layers::norm::Norm;
use crate::layers::rope::RopeAngles;
use crate::weights::{WeightError, Weights};

/// A loaded layer.
pub(super) struct Layer {
    mixer: Option<Mixer>,
    feed_forward: Option<FeedForward>,
    input: Option<LayerInput>,
    /// Of the layer's result.
    factor: Option<f32>,
    before_attention: Option<Norm>,
    after_attention: Option<Norm>,
    before_mlp: Option<Norm>,
    after_mlp: Option<Norm>,
    block: Block,
    group: Arc<dyn Group>,
}

/// What all layers of a step are given besides hidden states.
pub(super) struct Step<'a> {
    pub(super) context: &'a ForwardContext<'a>,
    pub(super) batch: &'a ForwardBatch,
    pub(super) angles: &'a RopeAngles,
    /// The layer's own small vectors of the tokens, `[num_tokens, width]`.
    pub(super) input: Option<Tensor>,
    /// Names the rows that are still wanted after attention.
    pub(super) keep: Option<&'a Tensor>,
    /// The adapters of all rows, and of those that go on behind attention.
    pub(super) adapters: [LayerAdapters<'a>; 2],
}

impl Layer {
    /// Loads layer `index` of `spec`.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
        group: Arc<dyn Group>,
    ) -> std::result::Result<Self, ModelError> {
        let attention = spec.attention[index];
        let norm = |name: Option<&'static str>| {
            name.map(|name| Norm::load(&weights.scope(name), attention.hidden_size, spec.norm))
                .transpose()
        };
        let input = spec.layer_inputs.map(|inputs| LayerInput::load(weights, spec, inputs));
        let factor = spec.layer_factor.map(|name| {
            let factor = weights.dense(name, &[1], DType::F32)?;
            Ok::<_, WeightError>(factor.to_vec1::<f32>()?[0])
        });
        let mixer = spec.mixes(index).then(|| Mixer::load(weights, spec, index)).transpose()?;
        let feed_forward = FeedForward::load(weights, spec, index)?;
        // Layers without a part don't have its norms.
        let around_mixer = |name: Option<&'static str>| norm(name.filter(|_| mixer.is_some()));
        let around_mlp = |name: Option<&'static str>| norm(name.filter(|_| feed_forward.is_some()));
        Ok(Self {
            input: input.transpose()?,
            factor: factor.transpose()?,
            before_attention: around_mixer(spec.block.before_attention)?,
            after_attention: around_mixer(spec.block.after_attention)?,
            before_mlp: around_mlp(spec.block.before_mlp)?,
            after_mlp: around_mlp(spec.block.after_mlp)?,
            mixer,
            feed_forward,
            block: spec.block,
            group,
        })
    }

    /// Takes and returns hidden states.
    pub(super) fn forward(&self, x: Tensor, step: &Step<'_>) -> Result<Tensor> {
        let Step { keep, adapters: [_, behind], .. } = *step;
        let scale = self.block.residual_scale;
        let (x, seen, added) = if let Some(mixer) = &self.mixer {
            self.mix(mixer, x, step)?
        } else {
            let x = keep.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0))?;
            (x.clone(), x.clone(), x)
        };
        let Some(feed_forward) = &self.feed_forward else { return self.finish(added, step) };
        let given = match (&self.before_mlp, self.block.parallel) {
            (None, true) => seen,
            (norm, true) => normalized(norm.as_ref(), &x)?,
            (norm, false) => normalized(norm.as_ref(), &added)?,
        };
        let x = match &self.after_mlp {
            None => {
                let own = self.group.own_part(&added)?;
                self.group.all_reduce(feed_forward.forward_add(&given, &own, scale, behind)?)?
            }
            Some(norm) => {
                let made = feed_forward.forward(&given, &added, behind)?;
                norm.forward_add(&self.group.all_reduce(made)?, &added)?
            }
        };
        self.finish(x, step)
    }

    /// Hidden states of rows that are still wanted, what the mixer was given of them, and their sum
    /// with what it gives.
    fn mix(
        &self,
        mixer: &Mixer,
        mut x: Tensor,
        step: &Step<'_>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let Step { keep, adapters: [_, behind], .. } = *step;
        let mut seen = normalized(self.before_attention.as_ref(), &x)?;
        let mut attended = mixer.attend(&seen, step)?;
        if let Some(rows) = keep {
            attended = attended.index_select(rows, 0)?;
            x = x.index_select(rows, 0)?;
            if self.block.parallel && self.before_mlp.is_none() {
                seen = seen.index_select(rows, 0)?;
            }
        }
        let added = match &self.after_attention {
            None => {
                let (own, scale) = (self.group.own_part(&x)?, self.block.residual_scale);
                self.group.all_reduce(mixer.project_add(&attended, &own, scale, behind)?)?
            }
            Some(norm) => {
                let projected = mixer.project(&attended, behind)?;
                norm.forward_add(&self.group.all_reduce(projected)?, &x)?
            }
        };
        Ok((x, seen, added))
    }

    /// Adds what comes of the layer's own vectors, and multiplies.
    fn finish(&self, mut x: Tensor, step: &Step<'_>) -> Result<Tensor> {
        if let (Some(layer), Some(input)) = (&self.input, &step.input) {
            let kept = step.keep.map(|rows| input.index_select(rows, 0)).transpose()?;
            x = layer.forward_add(&x, kept.as_ref().unwrap_or(input))?;
        }
        match self.factor {
            Some(factor) => x * f64::from(factor),
            None => Ok(x),
        }
    }
}

fn normalized(norm: Option<&Norm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}
