//! A checkpoint's `config.json`: parsed, checked, with the defaults of the transformers library.
//!
//! It answers what the file says; which default belongs to an absent field is up to the
//! architecture, so those fields are options here.

use std::fmt::Debug;

use candle_core::DType;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::ModelError;

pub(super) mod rope;

pub use rope::RopeParameters;

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
    pub tie_word_embeddings: Option<bool>,
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
    pub quantization_config: Option<Value>,
    /// The whole file, for fields of few architectures.
    #[serde(skip)]
    all: Map<String, Value>,
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

#[expect(clippy::option_option, reason = "an absent field and `null` mean different things")]
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<usize>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The language model's own fields on top of those of the file, where it has both.
fn language_part(value: &Value) -> Value {
    let mut whole = value.clone();
    let Some(fields) = whole.as_object_mut() else { return whole };
    if let Some(Value::Object(mut part)) = fields.remove("text_config") {
        // The class that the file is of decides, whatever the part would be alone.
        part.remove("architectures");
        fields.extend(part);
    }
    whole
}

/// With the fields that files of its class need not have although sizes depend on them.
fn with_absent_fields(mut value: Value) -> Value {
    let Some(fields) = value.as_object_mut() else { return value };
    let classes = fields.get("architectures").and_then(Value::as_array).cloned();
    for class in classes.iter().flatten().filter_map(Value::as_str) {
        if let Some(complete) = super::completion(class) {
            complete(&mut Fields(fields));
        }
    }
    value
}

/// The fields of a file, to be completed.
pub(super) struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// What `name` is where the file doesn't say.
    pub(super) fn default(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) {
            self.0.insert(name.to_owned(), value.into());
        }
    }

    /// What the file calls `theirs` is `name`.
    pub(super) fn same(&mut self, name: &str, theirs: &str) {
        if let Some(value) = self.0.get(theirs).filter(|value| !value.is_null()).cloned() {
            self.default(name, value);
        }
    }

    /// The same, even if the file says what `name` is.
    pub(super) fn replace(&mut self, name: &str, theirs: &str) {
        if self.has(theirs) {
            self.0.remove(name);
            self.same(name, theirs);
        }
    }

    /// Where the file doesn't say, `name` is how many `of` has.
    pub(super) fn length(&mut self, name: &str, of: &str) {
        if let Some(count) = self.0.get(of).and_then(Value::as_array).map(Vec::len) {
            self.default(name, count);
        }
    }

    /// Where the file doesn't say, `name` is a word for each letter of `theirs`.
    pub(super) fn words(&mut self, name: &str, theirs: &str, word: impl Fn(char) -> String) {
        if let Some(letters) = self.0.get(theirs).and_then(Value::as_str) {
            let words: Vec<String> = letters.chars().map(word).collect();
            self.default(name, words);
        }
    }

    /// Where the file doesn't say, `name` is `of`, multiplied.
    pub(super) fn multiple(&mut self, name: &str, of: &str, times: u64) {
        if let Some(value) = self.0.get(of).and_then(Value::as_u64) {
            self.default(name, value.saturating_mul(times));
        }
    }
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
    pub fn from_value(value: &Value) -> Result<Self, ModelError> {
        let value = &with_absent_fields(language_part(value));
        let mut config = Self::deserialize(value)?;
        config.all = value.as_object().cloned().unwrap_or_default();
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

    fn check_quantization(&self) -> Result<(), ModelError> {
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
    pub(super) fn head_dim(&self, default: Option<usize>) -> Result<usize, ModelError> {
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

    /// Key and value heads: `default` where the file says nothing, all heads where it says `null`.
    pub(super) fn num_kv_heads(&self, default: Option<usize>) -> Result<usize, ModelError> {
        let heads = self.num_attention_heads;
        let kv_heads = self.num_key_value_heads.unwrap_or(default).unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let bound = format!("must divide `num_attention_heads` = {heads}");
            return Err(bad("num_key_value_heads", kv_heads, bound));
        }
        Ok(kv_heads)
    }

    /// A field that only some architectures have; `null` is as good as absent.
    pub(super) fn field<T: DeserializeOwned>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, ModelError> {
        match self.all.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match T::deserialize(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(bad(name, value, error.to_string())),
            },
        }
    }

    /// Whether a field is there and `null`.
    pub(super) fn says_null(&self, name: &str) -> bool {
        self.all.get(name) == Some(&Value::Null)
    }

    /// A finite number that only some architectures have, narrowed.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<f32>, ModelError> {
        let Some(value) = self.field::<f64>(name)? else { return Ok(None) };
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        let narrow = value as f32;
        if narrow.is_finite() { Ok(Some(narrow)) } else { Err(bad(name, value, "must be finite")) }
    }

    /// A number above zero that only some architectures have.
    pub(super) fn positive(&self, name: &'static str) -> Result<Option<f32>, ModelError> {
        match self.number(name)? {
            Some(value) if value <= 0.0 => Err(bad(name, value, "must be a positive number")),
            value => Ok(value),
        }
    }

    /// Refuses a file in which a field has another value than the one that is implemented.
    pub(super) fn only<T: DeserializeOwned + PartialEq + Debug + Copy>(
        &self,
        name: &'static str,
        supported: T,
    ) -> Result<(), ModelError> {
        match self.field::<T>(name)? {
            Some(value) if value != supported => {
                Err(bad(name, value, format!("supported is {supported:?}")))
            }
            _ => Ok(()),
        }
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

#[cfg(test)]
mod tests;
