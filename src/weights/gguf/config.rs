//! GGUF metadata in the words of a Hugging Face `config.json` and `generation_config.json`.
//!
//! A key that changes the numbers and has no counterpart is an error, never dropped.

use serde_json::{Map, Value as Json, json};

use super::header::TensorInfo;
use super::names::Architecture;
use super::value::{Metadata, Value};
use super::vocabulary::GgufVocabulary;

/// Keys that change what a layer computes; present and not zero, they mean another model.
const UNSUPPORTED: [&str; 11] = [
    "expert_count",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attention.scale",
    "attention.temperature_scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "use_parallel_residual",
];

/// The metadata of one architecture, by the end of its keys.
pub(crate) struct ModelKeys<'a> {
    metadata: &'a Metadata<'a>,
    architecture: &'static Architecture,
}

/// How the attention heads are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadCounts {
    pub(crate) query: usize,
    pub(crate) key: usize,
    pub(crate) dim: usize,
}

impl<'a> ModelKeys<'a> {
    pub(crate) fn new(metadata: &'a Metadata<'a>, architecture: &'static Architecture) -> Self {
        Self { metadata, architecture }
    }

    fn key(&self, end: &str) -> String {
        format!("{}.{end}", self.architecture.gguf)
    }

    /// A count that the format stores once, or once for every layer.
    fn count(&self, end: &str) -> Result<Option<u64>, String> {
        let key = self.key(end);
        if let Some(array) = self.metadata.get(&key).and_then(Value::as_array) {
            let counts = array.collect(Value::as_u64).filter(|counts| !counts.is_empty());
            let counts = counts.ok_or_else(|| format!("metadata `{key}` is no array of counts"))?;
            if counts.iter().any(|count| *count != counts[0]) {
                return Err(format!("metadata `{key}` differs from layer to layer: not supported"));
            }
            return Ok(Some(counts[0]));
        }
        self.metadata.u64(&key)
    }

    fn required(&self, end: &str) -> Result<u64, String> {
        match self.count(end)? {
            Some(0) => Err(format!("metadata `{}` is 0, expected at least 1", self.key(end))),
            Some(count) => Ok(count),
            None => Err(format!("metadata `{}` is missing", self.key(end))),
        }
    }

    fn float(&self, end: &str) -> Result<Option<f64>, String> {
        self.metadata.f64(&self.key(end))
    }

    /// How the attention heads are cut.
    pub(crate) fn heads(&self) -> Result<HeadCounts, String> {
        let hidden = self.required("embedding_length")?;
        let query = self.required("attention.head_count")?;
        let key = self.count("attention.head_count_kv")?.unwrap_or(query);
        if key == 0 || query % key != 0 {
            return Err(format!("{query} query heads can't share {key} key heads evenly"));
        }
        let dim = self.count("attention.key_length")?.unwrap_or(hidden / query);
        let value_dim = self.count("attention.value_length")?.unwrap_or(dim);
        let rotary = self.count("rope.dimension_count")?.unwrap_or(dim);
        if dim == 0 || dim % 2 != 0 || value_dim != dim || rotary != dim {
            return Err(format!(
                "heads have {dim} key, {value_dim} value and {rotary} rotary dimensions, expected \
                 three equal and even numbers"
            ));
        }
        let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
        Ok(HeadCounts { query: small(query)?, key: small(key)?, dim: small(dim)? })
    }

    fn refuse_unsupported(&self) -> Result<(), String> {
        for end in UNSUPPORTED {
            let key = self.key(end);
            let set = self.metadata.get(&key).and_then(Value::as_f64).is_some_and(|v| v != 0.0);
            let on = self.metadata.get(&key).and_then(Value::as_bool) == Some(true);
            if set || on {
                return Err(format!("metadata `{key}` is set, which is not supported in GGUF"));
            }
        }
        if self.metadata.bool(&self.key("attention.causal"))? == Some(false) {
            return Err("the model looks both ways: it can embed text, not write it".to_owned());
        }
        Ok(())
    }

    /// `config.json`'s fields.
    pub(crate) fn config(
        &self,
        tensors: &[TensorInfo],
        rope_factors: Option<&[f32]>,
        vocabulary: &GgufVocabulary,
    ) -> Result<Json, String> {
        self.refuse_unsupported()?;
        let heads = self.heads()?;
        let has = |name: &str| tensors.iter().any(|tensor| tensor.name == name);
        let window = self.count("attention.sliding_window")?.filter(|window| *window > 0);
        let (class, model_type) = self.class(window.is_some());
        let mut config = json!({
            "architectures": [class],
            "model_type": model_type,
            "vocab_size": vocab_size(tensors, vocabulary)?,
            "hidden_size": self.required("embedding_length")?,
            "intermediate_size": self.required("feed_forward_length")?,
            "num_hidden_layers": self.required("block_count")?,
            "num_attention_heads": heads.query,
            "num_key_value_heads": heads.key,
            "head_dim": heads.dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.required("context_length")?,
            "rms_norm_eps": self
                .float("attention.layer_norm_rms_epsilon")?
                .ok_or_else(|| format!("metadata `{}` is missing",
                    self.key("attention.layer_norm_rms_epsilon")))?,
            "rope_theta": self.float("rope.freq_base")?.unwrap_or(10_000.0),
            "tie_word_embeddings": !has("output.weight"),
            "attention_bias": has("blk.0.attn_q.bias"),
            "mlp_bias": has("blk.0.ffn_up.bias"),
        });
        if let Some(window) = window {
            config["sliding_window"] = window.into();
        }
        if let Some(scaling) = self.rope_scaling(rope_factors, heads.dim)? {
            config["rope_scaling"] = scaling;
        }
        if let Some(id) = vocabulary.bos_token_id {
            config["bos_token_id"] = id.into();
        }
        config["eos_token_id"] = vocabulary.end_token_ids().into();
        Ok(config)
    }

    /// A llama with a sliding window is a Mistral.
    fn class(&self, windowed: bool) -> (&'static str, &'static str) {
        match (self.architecture.gguf, windowed) {
            ("llama", true) => ("MistralForCausalLM", "mistral"),
            _ => (self.architecture.class, self.architecture.model_type),
        }
    }

    /// `rope_scaling`: `linear`, `yarn`, or `factors`, our word for one divisor per frequency.
    fn rope_scaling(&self, factors: Option<&[f32]>, dim: usize) -> Result<Option<Json>, String> {
        let kind = self.metadata.text(&self.key("rope.scaling.type"))?;
        let old_linear = self.float("rope.scale_linear")?.filter(|factor| !is_one(*factor));
        let factor = self.float("rope.scaling.factor")?.or(old_linear).unwrap_or(1.0);
        if factor <= 0.0 {
            return Err(format!("rope scaling factor is {factor}, expected more than 0"));
        }
        let kind =
            kind.unwrap_or_else(|| if is_one(factor) { "none" } else { "linear" }.to_owned());
        match (kind.as_str(), factors) {
            ("none", None) => Ok(None),
            ("linear", None) if is_one(factor) => Ok(None),
            ("linear", None) => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
            ("none", Some(factors)) => rope_factors(factors, 1.0, dim).map(Some),
            ("linear", Some(factors)) => rope_factors(factors, factor, dim).map(Some),
            ("yarn", None) => self.yarn(factor).map(Some),
            ("yarn", Some(_)) => Err("yarn together with rope_freqs.weight".to_owned()),
            (other, _) => Err(format!(
                "rope scaling type `{other}` is not supported; supported are none, linear, yarn \
                 and rope_freqs.weight"
            )),
        }
    }

    fn yarn(&self, factor: f64) -> Result<Json, String> {
        let mut yarn = Map::new();
        yarn.insert("rope_type".to_owned(), "yarn".into());
        yarn.insert("factor".to_owned(), factor.into());
        let original = self
            .count("rope.scaling.original_context_length")?
            .ok_or("yarn without `rope.scaling.original_context_length`")?;
        yarn.insert("original_max_position_embeddings".to_owned(), original.into());
        for (end, name) in [("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")] {
            if let Some(value) = self.float(&format!("rope.scaling.{end}"))? {
                yarn.insert(name.to_owned(), value.into());
            }
        }
        if self.float("rope.scaling.yarn_log_multiplier")?.is_some_and(|value| value != 0.0) {
            return Err("`rope.scaling.yarn_log_multiplier` is not supported".to_owned());
        }
        let attention = match self.float("rope.scaling.attn_factor")? {
            Some(value) => Some(value),
            None => self.float("rope.scaling.yarn_attn_factor")?,
        };
        if let Some(attention) = attention.filter(|value| !is_one(*value)) {
            // The file's number multiplies YaRN's own, the configuration's replaces it.
            let own = 1.0 + 0.1 * factor.max(1.0).ln();
            yarn.insert("attention_factor".to_owned(), (attention * own).into());
        }
        Ok(Json::Object(yarn))
    }
}

/// `generation_config.json`'s fields: end tokens, and the sampling that the file recommends.
pub(crate) fn generation_config(
    metadata: &Metadata<'_>,
    vocabulary: &GgufVocabulary,
) -> Result<Json, String> {
    let mut config = json!({"eos_token_id": vocabulary.end_token_ids()});
    if let Some(id) = vocabulary.bos_token_id {
        config["bos_token_id"] = id.into();
    }
    if let Some(top_k) = metadata.u64("general.sampling.top_k")? {
        config["top_k"] = top_k.into();
    }
    let floats = [
        ("temp", "temperature"),
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("penalty_repeat", "repetition_penalty"),
    ];
    for (gguf, name) in floats {
        if let Some(value) = metadata.f64(&format!("general.sampling.{gguf}"))? {
            config[name] = value.into();
        }
    }
    Ok(config)
}

/// Whether a factor changes nothing.
fn is_one(factor: f64) -> bool {
    (factor - 1.0).abs() < f64::EPSILON
}

fn vocab_size(tensors: &[TensorInfo], vocabulary: &GgufVocabulary) -> Result<usize, String> {
    let embedding = tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    let embedding = embedding.ok_or("tensor `token_embd.weight` is missing")?;
    let tokens = vocabulary.tokens.len();
    match embedding.shape.first() {
        Some(rows) if *rows >= tokens => Ok(*rows),
        rows => Err(format!(
            "the vocabulary has {tokens} tokens, `token_embd.weight` has {} rows",
            rows.copied().unwrap_or(0)
        )),
    }
}

fn rope_factors(factors: &[f32], scale: f64, dim: usize) -> Result<Json, String> {
    if factors.len() != dim / 2 {
        return Err(format!(
            "`rope_freqs.weight` has {} factors, expected {} for {dim} rotary dimensions",
            factors.len(),
            dim / 2
        ));
    }
    if let Some(bad) = factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        return Err(format!("`rope_freqs.weight` holds {bad}, expected more than 0"));
    }
    let factors: Vec<f64> = factors.iter().map(|factor| f64::from(*factor) * scale).collect();
    Ok(json!({"rope_type": "factors", "factors": factors}))
}
