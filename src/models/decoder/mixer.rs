//! The token mixer of a layer: attention, or a recurrence.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::spec::DecoderSpec;
use super::step::LayerStep;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Attention;
use crate::layers::recurrent::Recurrent;
use crate::weights::{Loaded, Weights};

/// A token mixer, and where its memory of sequences is.
pub(super) enum Mixer {
    /// Attention, with the index of its KV cache: its own, or that of the layer it shares one with.
    Attention(Box<Attention>, usize),
    /// A recurrence, with the indices of its states.
    Recurrent(Box<Recurrent>, Range<usize>),
}

impl Mixer {
    /// Loads the mixer of layer `index`.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec, index: usize) -> Loaded<Self> {
        let attention = spec.attention[index];
        if let Some(recurrent) = spec.recurrent(index) {
            let count = recurrent.states().len();
            let before = recurrent.layers[..index].iter().filter(|own| **own).count();
            let weights = weights.scope(recurrent.name);
            let loaded = Recurrent::load(&weights, attention.hidden_size, recurrent)?;
            return Ok(Self::Recurrent(Box::new(loaded), before * count..(before + 1) * count));
        }
        let cache_of = attention.kv_from_layer.unwrap_or(index);
        let cache = (0..cache_of).filter(|index| spec.has_kv_cache(*index)).count();
        let attention = Attention::load(&weights.scope(spec.names.attention), attention)?;
        Ok(Self::Attention(Box::new(attention), cache))
    }

    /// Mixes the rows of `x [num_tokens, hidden]`, up to the output projection.
    pub(super) fn mix(&self, x: &Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        let LayerStep { context, step, angles, adapters: [adapters, _], .. } = *step;
        match self {
            Self::Attention(attention, cache) => {
                attention.attend(x, angles, &context.kv[*cache], step, adapters)
            }
            Self::Recurrent(recurrent, states) => {
                recurrent.forward(x, &context.states[states.clone()], step)
            }
        }
    }

    /// The output projection.
    pub(super) fn project(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        match self {
            Self::Attention(attention, _) => attention.project(x, adapters),
            Self::Recurrent(recurrent, _) => recurrent.project(x),
        }
    }

    /// `residual + factor * project(x)`
    pub(super) fn project_add(
        &self,
        x: &Tensor,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        match self {
            Self::Attention(attention, _) => attention.project_add(x, residual, factor, adapters),
            Self::Recurrent(recurrent, _) => recurrent.project_add(x, residual, factor),
        }
    }
}
