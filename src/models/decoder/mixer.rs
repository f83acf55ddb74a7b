//! The part of a layer in which tokens learn of those before them: attention, or a recurrence.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::super::ModelError;
use super::layer::Step;
use super::spec::DecoderSpec;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Attention;
use crate::layers::recurrent::Recurrent;
use crate::weights::Weights;

/// Either of them, and what it keeps of sequences.
pub(super) enum Mixer {
    /// With the index of its cache: its own, or that of the layer whose keys it reads.
    Attention(Box<Attention>, usize),
    /// With the indices of its states.
    Recurrent(Box<Recurrent>, Range<usize>),
}

impl Mixer {
    /// That of layer `index`.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
    ) -> std::result::Result<Self, ModelError> {
        let attention = spec.attention[index];
        if let Some(recurrent) = spec.recurrent(index) {
            let count = recurrent.states().len();
            let before = recurrent.layers[..index].iter().filter(|own| **own).count();
            let weights = weights.scope(recurrent.name);
            let loaded = Recurrent::load(&weights, attention.hidden_size, recurrent)?;
            return Ok(Self::Recurrent(Box::new(loaded), before * count..(before + 1) * count));
        }
        let cache_of = attention.kv_of.unwrap_or(index);
        let cache = (0..cache_of).filter(|index| spec.keeps_kv(*index)).count();
        let attention = Attention::load(&weights.scope(spec.names.attention), attention)?;
        Ok(Self::Attention(Box::new(attention), cache))
    }

    /// What each row of `x [num_tokens, hidden]` learns, before the output projection.
    pub(super) fn attend(&self, x: &Tensor, step: &Step<'_>) -> Result<Tensor> {
        let Step { context, batch, angles, adapters: [adapters, _], .. } = *step;
        match self {
            Self::Attention(attention, cache) => {
                attention.attend(x, angles, &context.kv[*cache], batch, adapters)
            }
            Self::Recurrent(recurrent, states) => {
                recurrent.read(x, &context.states[states.clone()], batch)
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
