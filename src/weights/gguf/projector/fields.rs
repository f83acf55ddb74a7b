//! What a projector's metadata says, in the words of `config.json` and `preprocessor_config.json`.

use serde_json::{Map, Value as Json};

use super::super::header::TensorInfo;
use super::super::value::{Metadata, Value};
use super::super::vocabulary::GgufVocabulary;

/// What a projector adds to the configuration of a decoder.
pub(super) struct Added {
    /// The class of both together.
    pub(super) class: &'static str,
    pub(super) model_type: &'static str,
    /// Fields around the parts.
    pub(super) config: Map<String, Json>,
    /// Fields of the decoder's that its own file doesn't have.
    pub(super) text: Map<String, Json>,
    /// `vision_config`
    pub(super) vision: Map<String, Json>,
    /// `preprocessor_config.json`
    pub(super) processor: Map<String, Json>,
}

/// Sets a field.
pub(super) fn set(fields: &mut Map<String, Json>, name: &str, value: impl Into<Json>) {
    fields.insert(name.to_owned(), value.into());
}

/// What the fields are made of.
pub(super) struct Facts<'a> {
    pub(super) metadata: &'a Metadata<'a>,
    pub(super) tensors: &'a [TensorInfo],
    /// The decoder's.
    pub(super) vocabulary: &'a GgufVocabulary,
    /// The decoder's `config.json`.
    pub(super) decoder: &'a Json,
}

impl<'a> Facts<'a> {
    /// A count under `clip.vision.`.
    pub(super) fn count(&self, end: &str) -> Result<Option<u64>, String> {
        self.metadata.u64(&format!("clip.vision.{end}"))
    }

    pub(super) fn required(&self, end: &str) -> Result<u64, String> {
        match self.count(end)? {
            Some(count) if count > 0 => Ok(count),
            Some(_) => Err(format!("metadata `clip.vision.{end}` is 0, expected at least 1")),
            None => Err(format!("metadata `clip.vision.{end}` is missing")),
        }
    }

    /// A count that is 1 at least, or this one.
    pub(super) fn count_or(&self, end: &str, default: u64) -> Result<u64, String> {
        Ok(self.count(end)?.filter(|count| *count > 0).unwrap_or(default))
    }

    /// A switch under `clip.`.
    pub(super) fn is_on(&self, end: &str) -> Result<bool, String> {
        Ok(self.metadata.bool(&format!("clip.{end}"))?.unwrap_or(false))
    }

    /// A list of numbers or switches under `clip.vision.`.
    pub(super) fn list<T>(
        &self,
        end: &str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, String> {
        self.metadata.array(&format!("clip.vision.{end}"), "an array", convert)
    }

    /// The shape of a tensor, outermost dimension first.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name)?;
        Some(&tensor.shape)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    /// The first of these tokens that the vocabulary has.
    pub(super) fn token(&self, texts: &[&str]) -> Result<u32, String> {
        let find = |text: &&str| self.vocabulary.tokens.iter().position(|token| token == text);
        let id = texts.iter().find_map(find).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("the model's vocabulary has no token {}", texts.join(" or ")))
    }

    /// Elements of the decoder's hidden states.
    pub(super) fn width(&self) -> u64 {
        self.decoder["hidden_size"].as_u64().unwrap_or(0)
    }

    /// Whether the first converters' names of the projections up and down are the wrong way round.
    pub(super) fn is_swapped(&self) -> bool {
        let (up, down) =
            (self.shape("v.blk.0.ffn_up.weight"), self.shape("v.blk.0.ffn_down.weight"));
        match (up, down) {
            (Some(&[up, _]), Some(&[down, _])) => down > up,
            _ => false,
        }
    }

    /// The fields of `vision_config` that most towers share.
    pub(super) fn vision(&self) -> Result<Map<String, Json>, String> {
        let mut vision = Map::new();
        let (layers, tensors) = (self.count("block_count")?.unwrap_or(0), self.tensors.len());
        if layers > tensors as u64 {
            return Err(format!("{tensors} tensors are too few for {layers} layers"));
        }
        for (end, field) in [
            ("embedding_length", "hidden_size"),
            ("attention.head_count", "num_attention_heads"),
            ("block_count", "num_hidden_layers"),
            ("image_size", "image_size"),
            ("patch_size", "patch_size"),
        ] {
            if let Some(count) = self.count(end)?.filter(|count| *count > 0) {
                set(&mut vision, field, count);
            }
        }
        let up =
            if self.is_swapped() { "v.blk.0.ffn_down.weight" } else { "v.blk.0.ffn_up.weight" };
        if let Some(width) = self.shape(up).and_then(|shape| shape.first()) {
            set(&mut vision, "intermediate_size", *width);
        }
        if let Some(eps) = self.metadata.f64("clip.vision.attention.layer_norm_epsilon")? {
            set(&mut vision, "layer_norm_eps", eps);
        }
        Ok(vision)
    }

    /// The normalization of pixels.
    pub(super) fn processor(&self) -> Result<Map<String, Json>, String> {
        let mut processor = Map::new();
        for field in ["image_mean", "image_std"] {
            if let Some(numbers) = self.list(field, Value::as_f64)? {
                set(&mut processor, field, numbers);
            }
        }
        Ok(processor)
    }
}
