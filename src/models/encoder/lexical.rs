//! An encoder below its head for masked words: of each token of the vocabulary, how much it is expected
//! anywhere in a text.
//!
//! Formal et al., "SPLADE v2", 2021: `log(1 + max(0, logit))`, the largest over the text's tokens. With
//! two logarithms it is that of Shen et al., "Exploring l0 Sparsification", 2025.

use candle_core::{DType, Device, Result, Tensor};

use super::config::{EncoderKind, EncoderSpec};
use super::plain::Encoder;
use super::text::{Text, TextEncoder};
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::LayerNorm;
use crate::models::error::ModelError;
use crate::weights::{Loaded, Weights};

/// Rows whose logits are in memory at once: a vocabulary is wide.
const ROWS: usize = 64;

/// An encoder that gives one row of `[vocab_size]` for a whole text.
pub struct LexicalEncoder {
    encoder: Encoder,
    transform: Linear,
    activation: Activation,
    norm: LayerNorm,
    decoder: Linear,
    logarithms: usize,
}

/// Names of a family's head.
struct Names {
    transform: &'static str,
    norm: &'static str,
    decoder: &'static str,
    /// Of the logits' bias; checkpoints have one of them.
    biases: [&'static str; 2],
}

const BERT: Names = Names {
    transform: "cls.predictions.transform.dense",
    norm: "cls.predictions.transform.LayerNorm",
    decoder: "cls.predictions.decoder.weight",
    biases: ["cls.predictions.bias", "cls.predictions.decoder.bias"],
};
const DISTIL_BERT: Names = Names {
    transform: "vocab_transform",
    norm: "vocab_layer_norm",
    decoder: "vocab_projector.weight",
    biases: ["vocab_projector.bias", "vocab_projector.decoder.bias"],
};
const ROBERTA: Names = Names {
    transform: "lm_head.dense",
    norm: "lm_head.layer_norm",
    decoder: "lm_head.decoder.weight",
    biases: ["lm_head.bias", "lm_head.decoder.bias"],
};

/// The names of a family's head, and its activation where that is not the network's.
fn head(kind: EncoderKind) -> Option<(&'static Names, Option<Activation>)> {
    match kind {
        EncoderKind::Bert => Some((&BERT, None)),
        EncoderKind::DistilBert => Some((&DISTIL_BERT, None)),
        EncoderKind::Roberta | EncoderKind::Mpnet => Some((&ROBERTA, Some(Activation::Gelu))),
        EncoderKind::Electra
        | EncoderKind::Deberta
        | EncoderKind::Albert
        | EncoderKind::RemBert => None,
    }
}

impl EncoderSpec {
    /// Whether the family's head for masked words is known.
    pub fn has_masked_words(&self) -> bool {
        head(self.kind).is_some()
    }
}

impl LexicalEncoder {
    /// Loads the weights of `spec` and of its head for masked words, to whose logits above 0 the
    /// logarithm of 1 and more is applied `logarithms` times.
    ///
    /// # Errors
    ///
    /// A family whose head is not known, a tensor that is absent or has another shape.
    pub fn load(
        spec: &EncoderSpec,
        weights: &Weights,
        logarithms: usize,
    ) -> std::result::Result<Self, ModelError> {
        let Some((names, activation)) = head(spec.kind) else {
            return Err(ModelError::Unsupported {
                what: "the head for masked words of this family".to_owned(),
                supported: "supported are those of BERT, DistilBERT, RoBERTa and MPNet".to_owned(),
            });
        };
        let hidden = spec.hidden_size;
        let encoder = Encoder::load(spec, weights)?;
        Ok(Self {
            transform: Linear::load(&weights.scope(names.transform), hidden, hidden, true)?,
            activation: activation.unwrap_or(spec.activation),
            norm: LayerNorm::load(&weights.scope(names.norm), hidden, spec.norm_eps)?,
            decoder: decoder(spec, names, &encoder, weights)?,
            encoder,
            logarithms,
        })
    }

    /// What a text's hidden states `[num_tokens, hidden]` say of each token of the vocabulary.
    fn weigh(&self, hidden: &Tensor) -> Result<Vec<f32>> {
        let rows = hidden.dim(0)?;
        let mut most: Option<Tensor> = None;
        for first in (0..rows).step_by(ROWS) {
            let rows = hidden.narrow(0, first, ROWS.min(rows - first))?;
            let logits = self.decoder.forward(&rows)?.max(0)?;
            most = Some(match most {
                Some(most) => most.maximum(&logits)?,
                None => logits,
            });
        }
        let most = most.map(|most| most.to_vec1::<f32>()).transpose()?.unwrap_or_default();
        let weight = |logit: f32| {
            (0..self.logarithms).fold(f64::from(logit.max(0.0)), |weight, _| weight.ln_1p())
        };
        #[expect(clippy::cast_possible_truncation, reason = "a logarithm of an f32 is one")]
        let weights = most.into_iter().map(|logit| weight(logit) as f32);
        Ok(weights.collect())
    }
}

/// The product with the vocabulary's matrix, which most checkpoints share with the embedding.
fn decoder(
    spec: &EncoderSpec,
    names: &Names,
    encoder: &Encoder,
    weights: &Weights,
) -> Loaded<Linear> {
    let stored = names.biases.iter().find(|name| weights.contains(name));
    let bias = weights.dense(stored.unwrap_or(&names.biases[0]), &[spec.vocab_size], DType::F32)?;
    if spec.tied {
        return Ok(encoder.network.words().head(Some(bias))?);
    }
    let matrix = Matrix::load(weights, names.decoder, spec.vocab_size, spec.hidden_size)?;
    Ok(Linear::from_matrix(matrix, Some(bias))?)
}

impl TextEncoder for LexicalEncoder {
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        let Some(hidden) = self.encoder.forward(texts, device, go_on)? else { return Ok(None) };
        let hidden = pointwise(self.activation, &self.transform.forward(&hidden)?)?;
        let hidden = self.norm.forward(&hidden)?;
        let mut first = 0;
        let mut weights = Vec::with_capacity(texts.len() * self.vocab_size());
        for text in texts {
            if !go_on() {
                return Ok(None);
            }
            let length = text.token_ids.len();
            weights.extend(self.weigh(&hidden.narrow(0, first, length)?)?);
            first += length;
        }
        Tensor::from_vec(weights, (texts.len(), self.vocab_size()), device).map(Some)
    }

    fn vocab_size(&self) -> usize {
        self.encoder.vocab_size()
    }

    fn hidden_size(&self) -> usize {
        self.vocab_size()
    }

    fn max_tokens(&self) -> usize {
        self.encoder.max_tokens()
    }

    fn pools(&self) -> bool {
        true
    }
}
