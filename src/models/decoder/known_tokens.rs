//! What a drafter has in common with its model: the embedding of tokens, and the output head, which may
//! know fewer tokens than the model.

use candle_core::{Result, Tensor};

use super::spec::DecoderSpec;
use crate::layers::embedding::Embedding;
use crate::layers::linear::{Linear, Matrix};
use crate::models::error::{ModelError, bad};
use crate::weights::{Loaded, WeightError, Weights};

const HEAD: &str = "lm_head.weight";

/// The output head of a drafter.
#[derive(Debug)]
pub(super) struct KnownTokens {
    head: Linear,
    scale: f32,
    /// `[vocab]`: where the logit of each of the model's tokens is, behind the last where there is none.
    places: Option<Tensor>,
}

impl KnownTokens {
    /// Loads the head of a drafter that knows `count` tokens of those of `decoder`; a checkpoint without
    /// one shares `model`'s, if it knows all of them.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape; tokens that the model hasn't.
    pub(super) fn load(
        decoder: &DecoderSpec,
        count: usize,
        weights: &Weights,
        model: Option<&Linear>,
    ) -> std::result::Result<Self, ModelError> {
        let shared = model.filter(|_| !weights.contains(HEAD) && count == decoder.vocab_size);
        let head = if let Some(head) = shared {
            head.clone()
        } else {
            let head = Matrix::load(weights, HEAD, count, decoder.mlp.hidden_size)?;
            Linear::from_matrix(head, None).map_err(WeightError::from)?
        };
        let places = places(count, decoder.vocab_size, weights)?;
        Ok(Self { head, scale: decoder.logit_scale, places })
    }

    /// Logits of the drafter's own tokens.
    pub(super) fn own_logits(&self, x: &Tensor) -> Result<Tensor> {
        match self.scale {
            1.0 => self.head.forward(x),
            scale => self.head.forward(&(x * f64::from(scale))?),
        }
    }

    /// Logits of the model's tokens from those of the drafter's own: no chance for those that it doesn't
    /// know.
    pub(super) fn spread(&self, logits: Tensor) -> Result<Tensor> {
        let Some(places) = &self.places else { return Ok(logits) };
        let none = Tensor::full(f32::NEG_INFINITY, (logits.dim(0)?, 1), logits.device())?;
        Tensor::cat(&[logits, none], 1)?.index_select(places, 1)
    }

    /// Logits of the model's tokens.
    pub(super) fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.spread(self.own_logits(x)?)
    }
}

/// The embedding of the checkpoint or, where it has none, the model's.
pub(super) fn own_embedding(
    decoder: &DecoderSpec,
    weights: &Weights,
    model: Option<&Embedding>,
) -> Loaded<Embedding> {
    let name = "embed_tokens.weight";
    if let Some(model) = model.filter(|_| !weights.contains(name)) {
        return Ok(model.clone());
    }
    let matrix = Matrix::load(weights, name, decoder.vocab_size, decoder.mlp.hidden_size)?;
    Ok(Embedding::new(matrix))
}

/// Where the logit of each of the model's tokens is among those of the drafter's; `d2t` has for each of
/// those how much higher its id is in the model.
fn places(
    own: usize,
    all: usize,
    weights: &Weights,
) -> std::result::Result<Option<Tensor>, ModelError> {
    if own == all && !weights.contains("d2t") {
        return Ok(None);
    }
    let behind = narrow(own)?;
    let mut places = vec![behind; all];
    for (id, offset) in weights.whole_numbers("d2t", own)?.into_iter().enumerate() {
        let target = i64::try_from(id).ok().and_then(|id| id.checked_add(offset));
        let target = target.and_then(|id| usize::try_from(id).ok());
        match target.and_then(|id| places.get_mut(id)) {
            Some(place) if *place == behind => *place = narrow(id)?,
            _ => {
                let bound = format!("must lead token {id} to a token of its own below {all}");
                return Err(bad("d2t", offset, bound));
            }
        }
    }
    let places = Tensor::from_vec(places, all, weights.device());
    Ok(Some(places.map_err(WeightError::from)?))
}

fn narrow(id: usize) -> std::result::Result<u32, ModelError> {
    u32::try_from(id).map_err(|_| bad("draft_vocab_size", id, "must be below 2^32"))
}
