//! GGUF metadata in the words of a Hugging Face `config.json` and `generation_config.json`.
//!
//! Here is what all architectures share; a key that changes the numbers and that nobody asked for
//! is an error, never dropped.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::header::TensorInfo;
use super::names::Architecture;
use super::rope::{self, RopeTensors};
use super::value::{Metadata, Value};
use super::vocabulary::GgufVocabulary;

/// Keys that change what a layer computes; present, not zero and of no use to an architecture,
/// they mean another model.
const NUMERICAL: [&str; 30] = [
    "expert_count",
    "expert_weights_scale",
    "expert_weights_norm",
    "expert_gating_func",
    "expert_shared_count",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attention.scale",
    "attention.output_scale",
    "attention.value_scale",
    "attention.temperature_scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sliding_window_pattern",
    "attention.shared_kv_layers",
    "attention.key_length_swa",
    "attention.key_length_mla",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "embedding_length_per_layer_input",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "use_parallel_residual",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scaling.yarn_log_multiplier",
];

/// The metadata of one architecture, by the end of its keys, and which tensors there are.
pub(crate) struct ModelKeys<'a> {
    metadata: &'a Metadata<'a>,
    architecture: &'static Architecture,
    tensors: &'a [TensorInfo],
    asked: RefCell<BTreeSet<&'static str>>,
}

/// How the attention heads are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadCounts {
    pub(crate) query: usize,
    pub(crate) key: usize,
    pub(crate) dim: usize,
    /// Elements of a head that are rotated.
    pub(crate) rotary: usize,
}

impl<'a> ModelKeys<'a> {
    pub(crate) fn new(
        metadata: &'a Metadata<'a>,
        architecture: &'static Architecture,
        tensors: &'a [TensorInfo],
    ) -> Self {
        Self { metadata, architecture, tensors, asked: RefCell::default() }
    }

    pub(super) fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    pub(super) fn metadata(&self) -> &'a Metadata<'a> {
        self.metadata
    }

    /// The whole key, which counts as asked for.
    pub(super) fn key(&self, end: &'static str) -> String {
        self.asked.borrow_mut().insert(end);
        format!("{}.{end}", self.architecture.gguf)
    }

    /// A count that the format stores once, or once for every layer.
    pub(super) fn count(&self, end: &'static str) -> Result<Option<u64>, String> {
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

    pub(super) fn required(&self, end: &'static str) -> Result<u64, String> {
        match self.count(end)? {
            Some(0) => Err(format!("metadata `{}` is 0, expected at least 1", self.key(end))),
            Some(count) => Ok(count),
            None => Err(format!("metadata `{}` is missing", self.key(end))),
        }
    }

    pub(super) fn float(&self, end: &'static str) -> Result<Option<f64>, String> {
        self.metadata.f64(&self.key(end))
    }

    pub(super) fn required_float(&self, end: &'static str) -> Result<f64, String> {
        self.float(end)?.ok_or_else(|| format!("metadata `{}` is missing", self.key(end)))
    }

    pub(super) fn text(&self, end: &'static str) -> Result<Option<String>, String> {
        self.metadata.text(&self.key(end))
    }

    pub(super) fn bool(&self, end: &'static str) -> Result<Option<bool>, String> {
        self.metadata.bool(&self.key(end))
    }

    /// An array with one value for each layer.
    pub(super) fn per_layer<T>(
        &self,
        end: &'static str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, String> {
        let key = self.key(end);
        if self.metadata.get(&key).is_some_and(|value| value.as_array().is_none()) {
            return Ok(None);
        }
        let values = self.metadata.array(&key, "an array with a value for each layer", convert)?;
        let layers = self.layers()?;
        match values {
            Some(values) if values.len() < layers => Err(format!(
                "metadata `{key}` has {} values, expected {layers}, one for each layer",
                values.len()
            )),
            values => Ok(values.map(|mut values| {
                values.truncate(layers);
                values
            })),
        }
    }

    pub(super) fn tensors(&self) -> &'a [TensorInfo] {
        self.tensors
    }

    /// A tensor by its GGUF name.
    pub(super) fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensor(name).is_some()
    }

    /// Layers that generate text; others only draft tokens.
    pub(crate) fn layers(&self) -> Result<usize, String> {
        let all = self.required("block_count")?;
        let drafting = self.count("nextn_predict_layers")?.unwrap_or(0);
        match usize::try_from(all.saturating_sub(drafting)) {
            Ok(0) => Err(format!("{drafting} of {all} layers draft tokens, expected fewer")),
            Ok(layers) if layers <= self.tensors.len() => Ok(layers),
            _ => Err(format!("{} tensors are too few for {all} layers", self.tensors.len())),
        }
    }

    /// How the attention heads are cut.
    pub(crate) fn heads(&self) -> Result<HeadCounts, String> {
        (self.architecture.heads)(self)
    }

    /// The same where all layers and keys and values have heads of the same size.
    pub(super) fn equal_heads(&self) -> Result<HeadCounts, String> {
        let query = self.required("attention.head_count")?;
        let key = self.count("attention.head_count_kv")?.unwrap_or(query);
        self.heads_of(query, key)
    }

    /// The same with this many query and key heads.
    pub(super) fn heads_of(&self, query: u64, key: u64) -> Result<HeadCounts, String> {
        let hidden = self.required("embedding_length")?;
        if key == 0 || !query.is_multiple_of(key) {
            return Err(format!("{query} query heads can't share {key} key heads evenly"));
        }
        let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
        let dim = match self.count("attention.key_length")? {
            Some(dim) => dim,
            None => self.stored_head_dim(query).unwrap_or(hidden / query),
        };
        let value_dim = self.count("attention.value_length")?.unwrap_or(dim);
        let rotary = self.count("rope.dimension_count")?.unwrap_or(dim);
        if dim == 0 || dim % 2 != 0 || value_dim != dim {
            return Err(format!(
                "heads have {dim} key and {value_dim} value dimensions, expected two equal and \
                 even numbers"
            ));
        }
        if rotary == 0 || rotary > dim || rotary % 2 != 0 {
            return Err(format!(
                "{rotary} of the {dim} dimensions of a head are rotary, expected an even number \
                 from 2 to {dim}"
            ));
        }
        Ok(HeadCounts {
            query: small(query)?,
            key: small(key)?,
            dim: small(dim)?,
            rotary: small(rotary)?,
        })
    }

    /// Rows of the query projection for each head: some files don't say it otherwise.
    fn stored_head_dim(&self, heads: u64) -> Option<u64> {
        let rows = *self.tensor("blk.0.attn_q.weight")?.shape.first()? as u64;
        rows.is_multiple_of(heads).then_some(rows / heads)
    }

    /// Elements inside of the first feed-forward part. Where others have more, the architecture
    /// reads the key itself.
    fn feed_forward_length(&self) -> Result<u64, String> {
        let end = "feed_forward_length";
        if self.architecture.gguf == "gemma4" {
            let widths = self.per_layer(end, Value::as_u64)?;
            if let Some(width) = widths.and_then(|widths| widths.first().copied()) {
                return Ok(width);
            }
        }
        match self.architecture.gguf {
            // Where there are experts in every layer, the file need not say more.
            "qwen35moe" if self.count(end)?.is_none_or(|width| width == 0) => {
                self.required("expert_feed_forward_length")
            }
            // Layers have no such part.
            "mamba2" => Ok(1),
            // Some have none.
            "nemotron_h" | "nemotron_h_moe" => match self.per_layer(end, Value::as_u64)? {
                Some(widths) => Ok(widths.into_iter().max().unwrap_or(0).max(1)),
                None => self.required(end),
            },
            _ => self.required(end),
        }
    }

    fn refuse_unread(&self) -> Result<(), String> {
        for end in NUMERICAL {
            if self.asked.borrow().contains(end) {
                continue;
            }
            let key = format!("{}.{end}", self.architecture.gguf);
            let value = self.metadata.get(&key);
            let set = value.and_then(Value::as_f64).is_some_and(|v| v != 0.0);
            let on = value.and_then(Value::as_bool) == Some(true);
            let any = value
                .and_then(Value::as_array)
                .is_some_and(|array| array.values().any(|value| value.as_f64() != Some(0.0)));
            if set || on || any {
                return Err(format!("metadata `{key}` is set, which is not supported in GGUF"));
            }
        }
        if self.bool("attention.causal")? == Some(false) {
            return Err("the model looks both ways: it can embed text, not write it".to_owned());
        }
        Ok(())
    }

    /// The norms' epsilon, which is under `end` or, where a converter took it for that of the other
    /// kind of norm, under the other key.
    fn norm_eps(&self, end: &'static str) -> Result<f64, String> {
        match self.float(end)? {
            Some(eps) => Ok(eps),
            None => match self.float("attention.layer_norm_epsilon")? {
                Some(eps) => Ok(eps),
                None => self.required_float(end),
            },
        }
    }

    /// `config.json`'s fields.
    pub(crate) fn config(
        &self,
        rope_tensors: &RopeTensors,
        vocabulary: &GgufVocabulary,
    ) -> Result<Json, String> {
        let Architecture { class, model_type, activation, norm_eps, numbers, more, .. } =
            self.architecture;
        let heads = self.heads()?;
        let layers = self.layers()?;
        let mut config = Map::new();
        let mut set = |name: &str, value: Json| config.insert(name.to_owned(), value);
        set("architectures", json!([class]));
        set("model_type", (*model_type).into());
        set("vocab_size", vocab_size(self.tensors, vocabulary)?.into());
        set("hidden_size", self.required("embedding_length")?.into());
        set("intermediate_size", self.feed_forward_length()?.into());
        set("num_hidden_layers", layers.into());
        set("num_attention_heads", heads.query.into());
        set("num_key_value_heads", heads.key.into());
        set("head_dim", heads.dim.into());
        set("hidden_act", (*activation).into());
        set("max_position_embeddings", self.required("context_length")?.into());
        set(norm_eps.1, self.norm_eps(norm_eps.0)?.into());
        set("tie_word_embeddings", (!self.has("output.weight")).into());
        set("attention_bias", self.has("blk.0.attn_q.bias").into());
        set("mlp_bias", self.has("blk.0.ffn_up.bias").into());
        for (end, field) in *numbers {
            if let Some(number) = self.float(end)?.filter(|number| *number != 0.0) {
                set(field, number.into());
            }
        }
        self.set_windows(&mut config)?;
        rope::set(self, rope_tensors, &mut config)?;
        more(self, &mut config)?;
        self.refuse_unread()?;
        if let Some(id) = vocabulary.bos_token_id {
            config.insert("bos_token_id".to_owned(), id.into());
        }
        config.insert("eos_token_id".to_owned(), vocabulary.end_token_ids().into());
        Ok(Json::Object(config))
    }

    /// `sliding_window`, and `layer_types` where the file says which layers have it.
    fn set_windows(&self, config: &mut Map<String, Json>) -> Result<(), String> {
        let window = self.count("attention.sliding_window")?.filter(|window| *window > 0);
        // `null`: an absent field stands for a default.
        config.insert("sliding_window".to_owned(), window.into());
        let end = "attention.sliding_window_pattern";
        if window.is_none() {
            // What a window's layers would be says nothing without one.
            self.key(end);
            return Ok(());
        }
        let windowed = match self.per_layer(end, Value::as_bool)? {
            Some(windowed) => windowed,
            None => match self.count(end)? {
                // Every so many layers one without a window.
                Some(period) if period > 1 => {
                    (1..=self.layers()? as u64).map(|layer| layer % period != 0).collect()
                }
                Some(_) => vec![false; self.layers()?],
                None => return Ok(()),
            },
        };
        let kind = |windowed| if windowed { "sliding_attention" } else { "full_attention" };
        let kinds: Vec<&str> = windowed.into_iter().map(kind).collect();
        config.insert("layer_types".to_owned(), kinds.into());
        Ok(())
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
