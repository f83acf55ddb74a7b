//! GGUF metadata in the words of a Hugging Face `config.json` and `generation_config.json`.
//!
//! Here is what all architectures share; a key that changes the numbers and that nobody asked for
//! is an error, never dropped.

use serde_json::{Map, Value as Json, json};

use super::architecture::Architecture;
use super::header::TensorInfo;
use super::keys::ModelKeys;
use super::rope;
use super::rope_tensors::RopeTensors;
use super::value::{Metadata, Value};
use super::vocabulary::GgufVocabulary;
use super::{drafters, encoders};

impl ModelKeys<'_> {
    /// Elements inside of the first feed-forward part. Where others have more, the architecture
    /// reads the key itself.
    fn feed_forward_length(&self) -> Result<u64, String> {
        let end = "feed_forward_length";
        if self.gguf() == "gemma4" {
            let widths = self.per_layer(end, Value::as_u64)?;
            if let Some(width) = widths.and_then(|widths| widths.first().copied()) {
                return Ok(width);
            }
        }
        match self.gguf() {
            // One for each layer, which the architecture reads itself.
            "gemma3n" | "deci" => {
                let widths = self.each_layer(end)?;
                Ok(widths.into_iter().max().unwrap_or(0).max(1))
            }
            // Where there are experts in every layer, the file need not say more.
            "qwen35moe" if self.count(end)?.is_none_or(|width| width == 0) => {
                self.required("expert_feed_forward_length")
            }
            "cohere2moe" => match self.count(end)? {
                Some(width) => Ok(width),
                None => self.required("expert_feed_forward_length"),
            },
            // Layers have no such part.
            "mamba" | "mamba2" => Ok(1),
            // Some have none.
            "nemotron_h" | "nemotron_h_moe" => match self.per_layer(end, Value::as_u64)? {
                Some(widths) => Ok(widths.into_iter().max().unwrap_or(0).max(1)),
                None => self.required(end),
            },
            _ => self.required(end),
        }
    }

    /// Rows of the embedding, which the file of a drafter may leave to its model.
    fn vocab_size(&self, vocabulary: &GgufVocabulary) -> Result<u64, String> {
        let tokens = vocabulary.tokens.len() as u64;
        if drafters::shares_tokens(self.gguf()) && !self.has("token_embd.weight") {
            return Ok(self.count("vocab_size")?.unwrap_or(tokens));
        }
        vocab_size(self.tensors(), vocabulary).map(|rows| rows as u64)
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
        architecture: &Architecture,
        rope_tensors: &RopeTensors,
        vocabulary: &GgufVocabulary,
    ) -> Result<Json, String> {
        let config = self.fields(architecture, rope_tensors, vocabulary)?;
        self.refuse_unread()?;
        Ok(config)
    }

    /// The same, whatever keys there are besides.
    pub(super) fn fields(
        &self,
        architecture: &Architecture,
        rope_tensors: &RopeTensors,
        vocabulary: &GgufVocabulary,
    ) -> Result<Json, String> {
        let Architecture { class, model_type, activation, norm_eps, numbers, more, .. } =
            architecture;
        let heads = self.heads()?;
        let layers = self.layers()?;
        let mut config = Map::new();
        let mut set = |name: &str, value: Json| config.insert(name.to_owned(), value);
        set("architectures", json!([class]));
        set("model_type", (*model_type).into());
        set("vocab_size", self.vocab_size(vocabulary)?.into());
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
        if self.bool("attention.causal")? == Some(false) && !encoders::is_encoder(architecture) {
            config.insert("is_causal".to_owned(), false.into());
        }
        self.set_windows(&mut config)?;
        rope::set(self, rope_tensors, &mut config)?;
        more(self, &mut config)?;
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

/// Numbers of sampling that files recommend: `general.sampling.NAME`, and the field of `generation_config.json`.
pub(super) const SAMPLING_NUMBERS: [(&str, &str); 4] = [
    ("temp", "temperature"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("penalty_repeat", "repetition_penalty"),
];

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
    for (gguf, name) in SAMPLING_NUMBERS {
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
