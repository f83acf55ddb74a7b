//! The token mixer of a layer: attention, a recurrence, or both side by side.

use candle_core::{DType, Result, Tensor, bail};

use super::spec::DecoderSpec;
use super::step::LayerStep;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::{Attention, RoutedAttention};
use crate::layers::normed::Normed;
use crate::layers::recurrent::{Recurrent, RecurrentSpec};
use crate::weights::{Loaded, Weights};

/// A token mixer.
pub(super) enum Mixer {
    /// Attention.
    Attention(Box<Attention>),
    /// Attention whose heads a router chooses, with the elements of a hidden state.
    Routed(Box<RoutedAttention>, usize),
    /// A recurrence, with the number of its states.
    Recurrent(Box<Recurrent>, usize),
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
        let weights = weights.scope(spec.module(index, spec.names.attention));
        if let Some(routed) = attention.routed {
            let loaded = RoutedAttention::load(&weights, &attention, routed)?;
            return Ok(Self::Routed(Box::new(loaded), attention.hidden_size));
        }
        Ok(Self::Attention(Box::new(Attention::load(&weights, attention)?)))
    }

    fn recurrence(
        weights: &Weights,
        spec: &DecoderSpec,
        recurrent: &RecurrentSpec,
        index: usize,
    ) -> Loaded<Self> {
        let weights = weights.scope(recurrent.name);
        let loaded = Recurrent::load(&weights, spec.mlp.hidden_size, recurrent, index)?;
        Ok(Self::Recurrent(Box::new(loaded), recurrent.states().len()))
    }

    /// The type in which so many rows are best given: see [`Linear::input_type`].
    ///
    /// [`Linear::input_type`]: crate::layers::linear::Linear::input_type
    pub(super) fn input_type(&self, rows: usize, whole: &LayerStep<'_>) -> DType {
        match self {
            Self::Attention(attention) => attention.input_type(rows, whole.adapters[0]),
            Self::Routed(..) | Self::Recurrent(..) | Self::Both(..) => DType::F32,
        }
    }

    /// Mixes the rows of `x [num_tokens, hidden]`, up to the output projection.
    pub(super) fn mix(&self, x: &Normed<'_>, whole: &LayerStep<'_>) -> Result<Tensor> {
        self.mix_alone(x, whole, true)
    }

    /// As [`mix`](Self::mix); in the type that the output projection rounds it to if `rounds`.
    fn mix_alone(&self, x: &Normed<'_>, whole: &LayerStep<'_>, rounds: bool) -> Result<Tensor> {
        let LayerStep { context, step, angles, memory, adapters: [adapters, _], .. } = *whole;
        let kv = || &context.kv[memory.cache];
        match self {
            Self::Attention(attention) if attention.asks_low_rank() => {
                attention.attend_asking(x, angles, kv(), step, (adapters, &whole.carried.selection))
            }
            Self::Attention(attention) if attention.states() > 0 => {
                let states = memory.states..memory.states + attention.states();
                attention.attend_convolved(x, angles, kv(), &context.states[states], step)
            }
            Self::Attention(attention) if attention.chooses_blocks() => {
                let caches = [kv(), &context.kv[memory.cache + 1]];
                attention.attend_to_blocks(x, angles, caches, step, adapters)
            }
            Self::Attention(attention) => {
                attention.attend(x, angles, kv(), step, (adapters, rounds))
            }
            Self::Routed(attention, _) => attention.attend(x.tensor()?, angles, kv(), step),
            Self::Recurrent(recurrent, count) => {
                let states = memory.states..memory.states + count;
                recurrent.forward(x.tensor()?, &context.states[states], step)
            }
            Self::Both(both, _) => {
                let [attention, recurrent] = &**both;
                let both = [attention, recurrent].map(|own| own.mix_alone(x, whole, false));
                let [attention, recurrent] = both;
                Tensor::cat(&[attention?, recurrent?], 1)
            }
        }
    }

    /// Writes the keys and values of the rows `x [num_tokens, hidden]` to the cache, and computes nothing
    /// from them.
    pub(super) fn write(&self, x: &Tensor, whole: &LayerStep<'_>) -> Result<()> {
        let LayerStep { context, step, angles, memory, .. } = *whole;
        match self {
            Self::Attention(attention) => {
                attention.write(x, angles, &context.kv[memory.cache], step)
            }
            _ => bail!("a recurrence has no keys and values"),
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
            Self::Attention(attention) => attention.width(),
            Self::Routed(_, hidden) => *hidden,
            Self::Recurrent(recurrent, _) => recurrent.width(),
            Self::Both(both, _) => both.iter().map(Self::width).sum(),
        }
    }

    /// The output projection.
    pub(super) fn project(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        match self {
            Self::Attention(attention) => attention.project(x, adapters),
            // Its experts have projected already.
            Self::Routed(..) => Ok(x.clone()),
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
            Self::Attention(attention) => attention.project_add(x, residual, factor, adapters),
            Self::Routed(..) => residual + (x * f64::from(factor))?,
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
