//! A checkpoint's `config.json`: parsed, checked, with the defaults of the transformers library.
//!
//! It answers what the file says; which default belongs to an absent field is up to the
//! architecture, so those fields are options here.

use candle_core::DType;
use serde::Deserialize;

use super::ModelError;
use crate::layers::rope::{RopeScaling, RopeSpec};

/// The fields of `config.json` that any architecture here reads.
#[derive(Clone, Debug, Deserialize)]
pub struct HfConfig {
    /// Class names; the first known one decides.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Tokens in the vocabulary: rows of the embedding.
    pub vocab_size: usize,
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements inside the feed-forward part.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; the outer option tells an absent field from `null`.
    #[serde(default, deserialize_with = "present")]
    pub num_key_value_heads: Option<Option<usize>>,
    /// Elements of a head, if not `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// Activation of the feed-forward part.
    pub hidden_act: Option<String>,
    /// Longest sequence.
    pub max_position_embeddings: Option<usize>,
    /// Epsilon of the normalizations.
    pub rms_norm_eps: Option<f64>,
    /// Whether the output head is the embedding.
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// Biases of the attention projections.
    pub attention_bias: Option<bool>,
    /// Biases of the feed-forward projections.
    pub mlp_bias: Option<bool>,
    /// Base of the rotary embedding, in files of before transformers 5.
    pub rope_theta: Option<f64>,
    /// Share of a head that is rotated, in files of before transformers 5.
    pub partial_rotary_factor: Option<f64>,
    /// Stretching of the rotary embedding, in files of before transformers 5.
    pub rope_scaling: Option<RopeParameters>,
    /// The rotary embedding, in files of transformers 5.
    pub rope_parameters: Option<RopeParameters>,
    /// Positions a query sees; the outer option tells an absent field from `null`.
    #[serde(default, deserialize_with = "present")]
    pub sliding_window: Option<Option<usize>>,
    /// Whether `sliding_window` applies (Qwen).
    pub use_sliding_window: Option<bool>,
    /// Layers below this see everything (Qwen).
    pub max_window_layers: Option<usize>,
    /// `full_attention` or `sliding_attention` per layer.
    pub layer_types: Option<Vec<String>>,
    /// Dtype of the checkpoint, as transformers 5 spells it.
    pub dtype: Option<String>,
    /// Dtype of the checkpoint, as older files spell it.
    pub torch_dtype: Option<String>,
    /// Tokens that end a text.
    pub eos_token_id: Option<TokenIds>,
    /// A quantization that other software reads.
    pub quantization_config: Option<serde_json::Value>,
}

/// One token id or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum TokenIds {
    /// One.
    One(u32),
    /// Several.
    Many(Vec<u32>),
}

/// Rotary embedding as written in `rope_scaling` or `rope_parameters`.
#[derive(Clone, Debug, Deserialize)]
pub struct RopeParameters {
    /// Kind of stretching.
    pub rope_type: Option<String>,
    /// Kind of stretching, as older files spell it.
    #[serde(rename = "type")]
    pub old_type: Option<String>,
    /// Base.
    pub rope_theta: Option<f64>,
    /// Share of a head that is rotated.
    pub partial_rotary_factor: Option<f64>,
    /// Divisor of frequencies.
    pub factor: Option<f64>,
    /// Of `llama3`.
    pub low_freq_factor: Option<f64>,
    /// Of `llama3`.
    pub high_freq_factor: Option<f64>,
    /// Of `llama3`: context of the pretraining.
    pub original_max_position_embeddings: Option<usize>,
    /// Of `factors`: a divisor for each frequency.
    pub factors: Option<Vec<f64>>,
}

#[expect(clippy::option_option, reason = "an absent field and `null` mean different things")]
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<usize>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Makes the error for a field that can't have its value.
pub(super) fn bad(
    field: &'static str,
    value: impl std::fmt::Debug,
    bound: impl Into<String>,
) -> ModelError {
    ModelError::Field { field, value: format!("{value:?}"), bound: bound.into() }
}

impl HfConfig {
    /// Parses and checks the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// Broken JSON, an absent size, a size of zero, sizes that don't divide, a quantization of
    /// other software.
    pub fn from_json(text: &str) -> Result<Self, ModelError> {
        Self::from_value(&serde_json::from_str(text)?)
    }

    /// Checks the content of a `config.json`.
    ///
    /// # Errors
    ///
    /// As [`HfConfig::from_json`].
    pub fn from_value(value: &serde_json::Value) -> Result<Self, ModelError> {
        let config = Self::deserialize(value)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ModelError> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads.flatten().unwrap_or(1)),
            ("head_dim", self.head_dim.unwrap_or(1)),
            ("max_position_embeddings", self.max_position_embeddings.unwrap_or(1)),
        ];
        for (field, value) in sizes {
            let most = if field == "num_hidden_layers" { MAX_LAYERS } else { MAX_SIZE };
            if value == 0 || value > most {
                return Err(bad(field, value, format!("must be 1 to {most}")));
            }
        }
        if let Some(eps) = self.rms_norm_eps.filter(|eps| !(0.0..1.0).contains(eps)) {
            return Err(bad("rms_norm_eps", eps, "must be at least 0 and less than 1"));
        }
        if let Some(Some(0)) = self.sliding_window {
            return Err(bad("sliding_window", 0, "must be at least 1, or null for none"));
        }
        match self.layer_types.as_ref().filter(|types| types.len() != self.num_hidden_layers) {
            Some(types) => Err(bad(
                "layer_types",
                types.len(),
                format!("must name {} layers", self.num_hidden_layers),
            )),
            None => self.check_quantization(),
        }
    }

    fn check_quantization(&self) -> Result<(), ModelError> {
        let Some(quantization) = &self.quantization_config else { return Ok(()) };
        let method = quantization.get("quant_method").and_then(|m| m.as_str()).unwrap_or("unnamed");
        Err(ModelError::Unsupported {
            what: format!("a checkpoint quantized with method `{method}`"),
            supported: "supported are gptq, awq, fp8 and compressed-tensors, bf16, f16 and f32 \
                        checkpoints, and GGUF files"
                .to_owned(),
        })
    }

    /// Elements of a head.
    pub(super) fn head_dim(&self) -> Result<usize, ModelError> {
        let heads = self.num_attention_heads;
        match self.head_dim {
            Some(head_dim) => Ok(head_dim),
            None if self.hidden_size.is_multiple_of(heads) => Ok(self.hidden_size / heads),
            None => Err(bad(
                "hidden_size",
                self.hidden_size,
                format!("must be a multiple of `num_attention_heads` = {heads}"),
            )),
        }
    }

    /// Key and value heads: `default` where the file says nothing, all heads where it says `null`.
    pub(super) fn num_kv_heads(&self, default: usize) -> Result<usize, ModelError> {
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(Some(default)).unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let bound = format!("must divide `num_attention_heads` = {heads}");
            return Err(bad("num_key_value_heads", kv_heads, bound));
        }
        Ok(kv_heads)
    }

    /// The rotary embedding over all of a head.
    pub(super) fn rope(&self, head_dim: usize) -> Result<RopeSpec, ModelError> {
        if !head_dim.is_multiple_of(2) {
            return Err(bad("head_dim", head_dim, "must be even for a rotary embedding"));
        }
        let parameters = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref());
        let theta = parameters.and_then(|p| p.rope_theta).or(self.rope_theta).unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(bad("rope_theta", theta, "must be a positive number"));
        }
        let share = parameters.and_then(|p| p.partial_rotary_factor).or(self.partial_rotary_factor);
        if let Some(share) = share.filter(|share| (share - 1.0).abs() > 0.0) {
            return Err(bad("partial_rotary_factor", share, "must be 1 for this architecture"));
        }
        let scaling = match parameters {
            Some(parameters) => parameters.scaling(self.max_position_embeddings, head_dim / 2)?,
            None => RopeScaling::None,
        };
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Ok(RopeSpec { theta: theta as f32, rotary_dim: head_dim, scaling })
    }

    /// The checkpoint's dtype, as far as it is one that the KV cache can have.
    pub fn dtype(&self) -> Option<DType> {
        match self.dtype.as_deref().or(self.torch_dtype.as_deref())? {
            "bfloat16" => Some(DType::BF16),
            "float16" => Some(DType::F16),
            "float32" => Some(DType::F32),
            _ => None,
        }
    }

    /// Tokens that end a text, as `config.json` names them.
    pub fn eos_token_ids(&self) -> Vec<u32> {
        match &self.eos_token_id {
            None => Vec::new(),
            Some(TokenIds::One(id)) => vec![*id],
            Some(TokenIds::Many(ids)) => ids.clone(),
        }
    }
}

/// No dimension of a model is larger; products of two stay far from overflow.
const MAX_SIZE: usize = 1 << 28;
/// No model has more layers.
const MAX_LAYERS: usize = 1 << 12;

impl RopeParameters {
    fn scaling(
        &self,
        max_positions: Option<usize>,
        frequencies: usize,
    ) -> Result<RopeScaling, ModelError> {
        let kind = self.rope_type.as_deref().or(self.old_type.as_deref()).unwrap_or("default");
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear { factor: positive("factor", self.factor)? }),
            "llama3" => self.llama3(max_positions),
            "factors" => self.factors(frequencies),
            other => Err(ModelError::Unsupported {
                what: format!("rope type `{other}`"),
                supported: "supported are default, linear and llama3".to_owned(),
            }),
        }
    }

    fn factors(&self, frequencies: usize) -> Result<RopeScaling, ModelError> {
        let factors = self.factors.as_deref().unwrap_or_default();
        if factors.len() != frequencies {
            let bound = format!("must have one for each of {frequencies} frequencies");
            return Err(bad("factors", factors.len(), bound));
        }
        let factors = factors.iter().map(|factor| positive("factors", Some(*factor)));
        Ok(RopeScaling::Factors(factors.collect::<Result<_, _>>()?))
    }

    fn llama3(&self, max_positions: Option<usize>) -> Result<RopeScaling, ModelError> {
        let original = self.original_max_position_embeddings.or(max_positions);
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        let original = original.map(|original| original as f64);
        let low_freq_factor = positive("low_freq_factor", self.low_freq_factor)?;
        let high_freq_factor = positive("high_freq_factor", self.high_freq_factor)?;
        if high_freq_factor <= low_freq_factor {
            let bound = format!("must be more than `low_freq_factor` = {low_freq_factor}");
            return Err(bad("high_freq_factor", high_freq_factor, bound));
        }
        Ok(RopeScaling::Llama3 {
            factor: positive("factor", self.factor)?,
            low_freq_factor,
            high_freq_factor,
            original_context: positive("original_max_position_embeddings", original)?,
        })
    }
}

/// A rope parameter that must be there and be positive.
fn positive(field: &'static str, value: Option<f64>) -> Result<f32, ModelError> {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Some(value) if value.is_finite() && value > 0.0 => Ok(value as f32),
        Some(value) => Err(bad(field, value, "must be a positive number")),
        None => Err(bad(field, "absent", "must be a positive number for this rope type")),
    }
}

#[cfg(test)]
mod tests;
