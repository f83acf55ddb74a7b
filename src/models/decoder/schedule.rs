//! Going through layers again: at some places of a schedule hidden states are joined with those that are
//! kept from an earlier place.
//!
//! Dehghani et al., "Universal Transformers", 2018, share the weights of layers in depth; Wang et al.,
//! "Hierarchical Reasoning Model", 2025, have two lists of layers take turns with states of their own.

use candle_core::{DType, Result, Tensor, bail};

use super::spec::{DecoderSpec, Join};
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// The joins of a decoder.
pub(super) struct Joins {
    /// `[hidden]`: what is added to embeddings before the first place.
    start: Option<Tensor>,
    of_places: Vec<Option<Join>>,
}

impl Joins {
    /// Loads those of `spec`; without a schedule no place has any.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<Self> {
        let Some(schedule) = &spec.schedule else {
            return Ok(Self { start: None, of_places: vec![None; spec.attention.len()] });
        };
        let start = |name| weights.dense(name, &[spec.mlp.hidden_size], DType::F32);
        Ok(Self {
            start: schedule.start.map(start).transpose()?,
            of_places: schedule.places.iter().map(|place| place.join).collect(),
        })
    }

    /// Of embeddings `x [num_tokens, hidden]` the hidden states before the first place, and those that are
    /// kept.
    pub(super) fn begin(&self, x: Tensor) -> Result<(Tensor, Option<Tensor>)> {
        Ok(match &self.start {
            None => (x, None),
            Some(start) => (x.broadcast_add(start)?, Some(x)),
        })
    }

    /// The hidden states that go on at a place: `x`, or, if there is a join, `x` normalized by the decoder's
    /// final `norm` and joined with those that are `kept`.
    pub(super) fn join(
        &self,
        place: usize,
        x: Tensor,
        kept: &mut Option<Tensor>,
        norm: Option<&Norm>,
    ) -> Result<Tensor> {
        let Some(join) = self.of_places[place] else { return Ok(x) };
        let Some(norm) = norm else { bail!("hidden states are joined without a final norm") };
        let own = norm.forward(&x)?;
        if join == Join::KeepThenAdd {
            *kept = Some(own.clone());
        }
        let Some(before) = kept.as_ref() else { bail!("nothing is kept before place {place}") };
        let sum = (&own + before)?;
        if join == Join::AddThenKeep {
            *kept = Some(own);
        }
        Ok(sum)
    }
}
