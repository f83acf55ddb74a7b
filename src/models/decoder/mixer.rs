//! The token mixer of a layer: attention, a recurrence, or both side by side.

use std::ops::Range;

use candle_core::{Result, Tensor};

use super::spec::DecoderSpec;
use super::step::LayerStep;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Attention;
use crate::layers::recurrent::{Recurrent, RecurrentSpec};
use crate::weights::{Loaded, Weights};

/// A token mixer, and where its memory of sequences is.
pub(super) enum Mixer {
    /// Attention, with the index of its KV cache: its own, or that of the layer it shares one with.
    Attention(Box<Attention>, usize),
    /// A recurrence, with the indices of its states.
    Recurrent(Box<Recurrent>, Range<usize>),
    /// Both on the same input, and the factors of their outputs.
    Both(Box<[Self; 2]>, [f32; 2]),
}

impl Mixer {
    /// Loads the mixer of layer `index`.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec, index: usize) -> Loaded<Self> {
        let Some(recurrent) = spec.recurrent(index) else {
            return Self::attention(weights, spec, index);
        };
        let own = Self::recurrence(weights, spec, recurrent, index)?;
        match recurrent.beside_attention {
            None => Ok(own),
            Some(factors) => {
                let attention = Self::attention(weights, spec, index)?;
                Ok(Self::Both(Box::new([attention, own]), factors))
            }
        }
    }

    fn attention(weights: &Weights, spec: &DecoderSpec, index: usize) -> Loaded<Self> {
        let attention = spec.attention[index];
        let cache_of = attention.kv_from_layer.unwrap_or(index);
        let cache = (0..cache_of).filter(|index| spec.has_kv_cache(*index)).count();
        let attention = Attention::load(&weights.scope(spec.names.attention), attention)?;
        Ok(Self::Attention(Box::new(attention), cache))
    }

    fn recurrence(
        weights: &Weights,
        spec: &DecoderSpec,
        recurrent: &RecurrentSpec,
        index: usize,
    ) -> Loaded<Self> {
        let count = recurrent.states().len();
        let before = recurrent.layers[..index].iter().filter(|own| **own).count();
        let weights = weights.scope(recurrent.name);
        let loaded = Recurrent::load(&weights, spec.mlp.hidden_size, recurrent)?;
        Ok(Self::Recurrent(Box::new(loaded), before * count..(before + 1) * count))
    }

    /// Mixes the rows of `x [num_tokens, hidden]`, up to the output projection.
    pub(super) fn mix(&self, x: &Tensor, whole: &LayerStep<'_>) -> Result<Tensor> {
        let LayerStep { context, step, angles, adapters: [adapters, _], .. } = *whole;
        match self {
            Self::Attention(attention, cache) => {
                attention.attend(x, angles, &context.kv[*cache], step, adapters)
            }
            Self::Recurrent(recurrent, states) => {
                recurrent.forward(x, &context.states[states.clone()], step)
            }
            Self::Both(both, _) => {
                let [attention, recurrent] = &**both;
                Tensor::cat(&[attention.mix(x, whole)?, recurrent.mix(x, whole)?], 1)
            }
        }
    }

    /// The parts of what [`Self::mix`] gave for both mixers.
    fn parts(both: &[Self; 2], x: &Tensor) -> Result<[Tensor; 2]> {
        let [attention, recurrent] = both.each_ref().map(Self::width);
        let part = |start, count| x.narrow(1, start, count)?.contiguous();
        Ok([part(0, attention)?, part(attention, recurrent)?])
    }

    /// Elements of a row before the output projection.
    fn width(&self) -> usize {
        match self {
            Self::Attention(attention, _) => attention.width(),
            Self::Recurrent(recurrent, _) => recurrent.width(),
            Self::Both(both, _) => both.iter().map(Self::width).sum(),
        }
    }

    /// The output projection.
    pub(super) fn project(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        match self {
            Self::Attention(attention, _) => attention.project(x, adapters),
            Self::Recurrent(recurrent, _) => recurrent.project(x),
            Self::Both(both, [of_attention, of_recurrence]) => {
                let [attention, recurrent] = &**both;
                let [own, other] = Self::parts(both, x)?;
                let sum = (attention.project(&own, adapters)? * f64::from(*of_attention))?;
                recurrent.project_add(&other, &sum, *of_recurrence, adapters)
            }
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
            Self::Both(both, [of_attention, of_recurrence]) => {
                let [attention, recurrent] = &**both;
                let [own, other] = Self::parts(both, x)?;
                let sum = attention.project_add(&own, residual, factor * of_attention, adapters)?;
                recurrent.project_add(&other, &sum, factor * of_recurrence, adapters)
            }
        }
    }
}
