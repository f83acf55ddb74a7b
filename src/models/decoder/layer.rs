//! One layer: attention and a feed-forward part, each with its norms, added to the hidden states.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::feed_forward::FeedForward;
use super::layer_inputs::LayerInput;
use super::mixer::Mixer;
use super::spec::{Block, DecoderSpec};
use super::step::LayerStep;
use crate::layers::group::Group;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded layer.
pub(super) struct Layer {
    mixer: Option<Mixer>,
    feed_forward: Option<FeedForward>,
    input: Option<LayerInput>,
    /// Factor of the layer's output.
    scale: Option<f32>,
    before_attention: Option<Norm>,
    after_attention: Option<Norm>,
    before_mlp: Option<Norm>,
    after_mlp: Option<Norm>,
    block: Block,
    group: Arc<dyn Group>,
}

impl Layer {
    /// Loads layer `index` of `spec`.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
        group: Arc<dyn Group>,
    ) -> Loaded<Self> {
        let attention = spec.attention[index];
        let norm = |name: Option<&'static str>| {
            name.map(|name| Norm::load(&weights.scope(name), attention.hidden_size, spec.norm))
                .transpose()
        };
        let input = spec.layer_inputs.map(|inputs| LayerInput::load(weights, spec, inputs));
        let scale = spec.layer_scale.map(|name| {
            let scale = weights.dense(name, &[1], DType::F32)?;
            Ok::<_, WeightError>(scale.to_vec1::<f32>()?[0])
        });
        let mixer = spec.has_mixer(index).then(|| Mixer::load(weights, spec, index)).transpose()?;
        let feed_forward = FeedForward::load(weights, spec, index)?;
        // A layer without a mixer or a feed-forward part doesn't have its norms.
        let around_mixer = |name: Option<&'static str>| norm(name.filter(|_| mixer.is_some()));
        let around_mlp = |name: Option<&'static str>| norm(name.filter(|_| feed_forward.is_some()));
        Ok(Self {
            input: input.transpose()?,
            scale: scale.transpose()?,
            before_attention: around_mixer(
                spec.block
                    .before_attention
                    .filter(|_| index > 0 || !spec.block.first_input_is_plain),
            )?,
            after_attention: around_mixer(spec.block.after_attention)?,
            before_mlp: around_mlp(spec.block.before_mlp)?,
            after_mlp: around_mlp(spec.block.after_mlp)?,
            mixer,
            feed_forward,
            block: spec.block,
            group,
        })
    }

    /// Hidden states after this layer.
    pub(super) fn forward(&self, x: Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        let LayerStep { keep, adapters: [_, adapters], .. } = *step;
        let scale = self.block.residual_scale * self.block.mlp_scale;
        let (x, mixer_input, residual) = if let Some(mixer) = &self.mixer {
            self.mix(mixer, x, step)?
        } else {
            let x = keep.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0))?;
            (x.clone(), x.clone(), x)
        };
        let Some(feed_forward) = &self.feed_forward else { return self.finish(residual, step) };
        let input = match (&self.before_mlp, self.block.parallel) {
            (None, true) => mixer_input,
            (norm, true) => normalized(norm.as_ref(), &x)?,
            (norm, false) => normalized(norm.as_ref(), &residual)?,
        };
        let x = match &self.after_mlp {
            None => {
                let own = self.group.own_part(&residual)?;
                self.group.all_reduce(feed_forward.forward_add(&input, &own, scale, adapters)?)?
            }
            Some(norm) => {
                let output = feed_forward.forward(&input, &residual, adapters)?;
                self.join(norm, &self.group.all_reduce(output)?, &residual)?
            }
        };
        self.finish(x, step)
    }

    /// Of the rows that are kept: the hidden states, the mixer's input, and the hidden states plus
    /// the mixer's output.
    fn mix(
        &self,
        mixer: &Mixer,
        mut x: Tensor,
        step: &LayerStep<'_>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let LayerStep { keep, adapters: [_, adapters], .. } = *step;
        let mut input = normalized(self.before_attention.as_ref(), &x)?;
        let mut output = mixer.mix(&input, step)?;
        if let Some(rows) = keep {
            output = output.index_select(rows, 0)?;
            x = x.index_select(rows, 0)?;
            if self.block.parallel && self.before_mlp.is_none() {
                input = input.index_select(rows, 0)?;
            }
        }
        let residual = match &self.after_attention {
            None => {
                let (own, scale) = (self.group.own_part(&x)?, self.block.residual_scale);
                self.group.all_reduce(mixer.project_add(&output, &own, scale, adapters)?)?
            }
            Some(norm) => {
                let projected = mixer.project(&output, adapters)?;
                self.join(norm, &self.group.all_reduce(projected)?, &x)?
            }
        };
        Ok((x, input, residual))
    }

    /// Hidden states plus a part's output, either of which may be what is normalized.
    fn join(&self, norm: &Norm, output: &Tensor, residual: &Tensor) -> Result<Tensor> {
        if self.block.normalizes_sums {
            return norm.forward(&(output + residual)?);
        }
        match self.block.residual_scale {
            1.0 => norm.forward_add(output, residual),
            scale => residual + (norm.forward(output)? * f64::from(scale))?,
        }
    }

    /// Adds the projection of the layer's own embeddings, and scales the sum.
    fn finish(&self, mut x: Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        if let (Some(layer), Some(input)) = (&self.input, &step.input) {
            let kept = step.keep.map(|rows| input.index_select(rows, 0)).transpose()?;
            x = layer.forward_add(&x, kept.as_ref().unwrap_or(input))?;
        }
        match self.scale {
            Some(scale) => x * f64::from(scale),
            None => Ok(x),
        }
    }
}

fn normalized(norm: Option<&Norm>, x: &Tensor) -> Result<Tensor> {
    norm.map_or_else(|| Ok(x.clone()), |norm| norm.forward(x))
}
