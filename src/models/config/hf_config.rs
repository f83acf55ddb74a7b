//! The fields of a `config.json` that architectures read, and their bounds.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use candle_core::DType;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::raw_fields::{Completion, RawFields};
use super::rope_parameters::RopeParameters;
use crate::models::error::{ModelError, Result, bad, check_size};

/// The largest size of a model in any direction; products of two stay far from overflow.
pub(crate) const MAX_SIZE: usize = 1 << 28;
/// The most layers of a model.
const MAX_LAYERS: usize = 1 << 12;

/// The fields of `config.json` that most architectures read.
#[derive(Clone, Debug, Deserialize)]
pub struct HfConfig {
    /// Class names; the first known one decides.
    #[serde(default)]
    pub architectures: Vec<String>,
    /// Tokens in the vocabulary: rows of the embedding.
    pub vocab_size: usize,
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements between the feed-forward projections.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key and value heads; the outer option tells an absent field from `null`.
    #[serde(default, deserialize_with = "present")]
    pub num_key_value_heads: Option<Option<usize>>,
    /// Elements of a head, if not `hidden_size / num_attention_heads`.
    pub head_dim: Option<usize>,
    /// Activation of the feed-forward part.
    pub hidden_act: Option<String>,
    /// Longest sequence.
    pub max_position_embeddings: Option<usize>,
    /// Epsilon of RMS norms.
    pub rms_norm_eps: Option<f64>,
    /// Whether the output head shares the embedding's weights.
    pub tie_word_embeddings: Option<bool>,
    /// Whether the attention projections have biases.
    pub attention_bias: Option<bool>,
    /// Whether the feed-forward projections have biases.
    pub mlp_bias: Option<bool>,
    /// Base of the rotary embedding, in files from before transformers 5.
    pub rope_theta: Option<f64>,
    /// Share of a head that is rotated, in files from before transformers 5.
    pub partial_rotary_factor: Option<f64>,
    /// Scaling of the rotary embedding, in files from before transformers 5.
    pub rope_scaling: Option<RopeParameters>,
    /// The rotary embedding, in files of transformers 5.
    pub rope_parameters: Option<RopeParameters>,
    /// Size of the attention window; the outer option tells an absent field from `null`.
    #[serde(default, deserialize_with = "present")]
    pub sliding_window: Option<Option<usize>>,
    /// Whether `sliding_window` applies (Qwen).
    pub use_sliding_window: Option<bool>,
    /// First layer with a window (Qwen).
    pub max_window_layers: Option<usize>,
    /// Kind of each layer: `full_attention`, `sliding_attention`, or an architecture's own.
    pub layer_types: Option<Vec<String>>,
    /// Dtype of the checkpoint, as transformers 5 spells it.
    pub dtype: Option<String>,
    /// Dtype of the checkpoint, as older files spell it.
    pub torch_dtype: Option<String>,
    /// Token ids that end a text.
    pub eos_token_id: Option<TokenIds>,
    /// A quantization that other software reads.
    pub quantization_config: Option<Value>,
    /// The whole file, for fields of few architectures.
    #[serde(skip)]
    all: Map<String, Value>,
}

/// One token id or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum TokenIds {
    /// A single id.
    One(u32),
    /// A list of ids.
    Many(Vec<u32>),
}

#[expect(clippy::option_option, reason = "an absent field and `null` mean different things")]
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<usize>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The fields of the file; those of `text_config`, the language model of a multimodal one, override
/// them. Models that speak have it in `thinker_config`, and InternVL's own files in `llm_config`.
fn language_part(value: &Value) -> Value {
    let mut whole = value.clone();
    let Some(fields) = whole.as_object_mut() else { return whole };
    for name in ["thinker_config", "llm_config", "text_config"] {
        if let Some(Value::Object(mut part)) = fields.remove(name) {
            // The outer class decides: it is the one that the table of architectures knows.
            part.remove("architectures");
            fields.extend(part);
        }
    }
    whole
}

impl HfConfig {
    /// Parses and checks the content of a `config.json`, completed by the classes it names.
    pub(crate) fn read(
        value: &Value,
        completion: impl Fn(&str) -> Option<Completion>,
    ) -> Result<Self> {
        let mut value = language_part(value);
        if let Some(fields) = value.as_object_mut() {
            let classes = fields.get("architectures").and_then(Value::as_array).cloned();
            let classes = classes.iter().flatten().filter_map(Value::as_str);
            classes.filter_map(completion).for_each(|complete| complete(&mut RawFields(fields)));
        }
        let mut config = Self::deserialize(&value)?;
        if let Value::Object(fields) = value {
            config.all = fields;
        }
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<()> {
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
            check_size(field, value, 1..=most)?;
        }
        if let Some(eps) = self.rms_norm_eps.filter(|eps| !(0.0..1.0).contains(eps)) {
            return Err(bad("rms_norm_eps", eps, "must be at least 0 and less than 1"));
        }
        // Files without windows may say 0.
        let unused = self.use_sliding_window == Some(false);
        if self.sliding_window == Some(Some(0)) && !unused {
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

    fn check_quantization(&self) -> Result<()> {
        let Some(quantization) = &self.quantization_config else { return Ok(()) };
        let method = quantization.get("quant_method").and_then(|m| m.as_str()).unwrap_or("unnamed");
        Err(ModelError::Unsupported {
            what: format!("a checkpoint quantized with method `{method}`"),
            supported:
                "supported are gptq, awq, fp8, mxfp4 and compressed-tensors, bf16, f16 and f32 \
                        checkpoints, and GGUF files"
                    .to_owned(),
        })
    }

    /// Elements of a head.
    pub(crate) fn head_dim(&self, default: Option<usize>) -> Result<usize> {
        let heads = self.num_attention_heads;
        match self.head_dim.or(default) {
            Some(head_dim) => Ok(head_dim),
            None if self.hidden_size.is_multiple_of(heads) => Ok(self.hidden_size / heads),
            None => Err(bad(
                "hidden_size",
                self.hidden_size,
                format!("must be a multiple of `num_attention_heads` = {heads}"),
            )),
        }
    }

    /// Number of key and value heads: `default` where the field is absent, all heads where it is
    /// `null`.
    pub(crate) fn num_kv_heads(&self, default: Option<usize>) -> Result<usize> {
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(default).unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let bound = format!("must divide `num_attention_heads` = {heads}");
            return Err(bad("num_key_value_heads", kv_heads, bound));
        }
        Ok(kv_heads)
    }

    /// A field that only some architectures have; `null` counts as absent.
    pub(crate) fn field<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>> {
        match self.all.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(bad(name, value, error.to_string())),
            },
        }
    }

    /// A field, or `default` where it is absent or `null`.
    pub(crate) fn field_or<T: DeserializeOwned>(
        &self,
        name: &'static str,
        default: T,
    ) -> Result<T> {
        Ok(self.field(name)?.unwrap_or(default))
    }

    /// Whether a field is there and `null`.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.all.get(name) == Some(&Value::Null)
    }

    /// A size within `range`, or `default` where it is absent or `null`.
    pub(crate) fn size_or(
        &self,
        name: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize> {
        check_size(name, self.field_or(name, default)?, range)
    }

    /// A size that must be there, from 1 to `most`.
    pub(crate) fn size(&self, name: &'static str, most: usize) -> Result<usize> {
        match self.field(name)? {
            Some(size) => check_size(name, size, 1..=most),
            None => Err(bad(name, "absent", format!("must be 1 to {most}"))),
        }
    }

    /// A finite number, as f32.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<f32>> {
        let Some(value) = self.field::<f64>(name)? else { return Ok(None) };
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        let narrow = value as f32;
        if narrow.is_finite() { Ok(Some(narrow)) } else { Err(bad(name, value, "must be finite")) }
    }

    /// A finite number, or `default` where it is absent or `null`.
    pub(crate) fn number_or(&self, name: &'static str, default: f32) -> Result<f32> {
        Ok(self.number(name)?.unwrap_or(default))
    }

    /// A number above zero.
    pub(crate) fn positive(&self, name: &'static str) -> Result<Option<f32>> {
        match self.number(name)? {
            Some(value) if value <= 0.0 => Err(bad(name, value, "must be a positive number")),
            value => Ok(value),
        }
    }

    /// The kind of each layer by its word in `layer_types`; `None` if the file has no such list.
    pub(crate) fn layer_kinds<T: Copy>(
        &self,
        kinds: &[(&str, T)],
        supported: &str,
    ) -> Result<Option<Vec<T>>> {
        let kind = |word: &String| match kinds.iter().find(|(known, _)| known == word) {
            Some((_, kind)) => Ok(*kind),
            None => Err(bad("layer_types", word, format!("supported are {supported}"))),
        };
        self.layer_types.as_ref().map(|words| words.iter().map(kind).collect()).transpose()
    }

    /// Refuses a file in which a field has another value than the one that is implemented.
    pub(crate) fn only<T: DeserializeOwned + PartialEq + Debug + Copy>(
        &self,
        name: &'static str,
        supported: T,
    ) -> Result<()> {
        match self.field::<T>(name)? {
            Some(value) if value != supported => {
                Err(bad(name, value, format!("supported is {supported:?}")))
            }
            _ => Ok(()),
        }
    }

    /// The checkpoint's dtype; `None` if the KV cache can't have it.
    pub fn dtype(&self) -> Option<DType> {
        match self.dtype.as_deref().or(self.torch_dtype.as_deref())? {
            "bfloat16" => Some(DType::BF16),
            "float16" => Some(DType::F16),
            "float32" => Some(DType::F32),
            _ => None,
        }
    }

    /// Token ids that end a text, as `config.json` lists them.
    pub fn eos_token_ids(&self) -> Vec<u32> {
        match &self.eos_token_id {
            None => Vec::new(),
            Some(TokenIds::One(id)) => vec![*id],
            Some(TokenIds::Many(ids)) => ids.clone(),
        }
    }
}
