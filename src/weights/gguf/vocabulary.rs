//! The vocabulary of a GGUF file, as plain data: tokens, their kinds, merges, special ids.
//!
//! Checks that the parts fit together; how text becomes tokens is for others.

use super::value::{Metadata, Value};

/// `token_type` of tokens that steer the model and are no text.
const CONTROL: i32 = 3;

/// Control tokens after which a model has nothing more to say, by their text. A file names one
/// end token, models have up to three (of the turn, of the message, of the document).
const END_TEXTS: [&str; 10] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
];

/// What `tokenizer.ggml.*` says.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `llama` (SentencePiece), ...
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the pre-tokenizer's rules.
    pub pre_tokenizer: Option<String>,
    /// Token texts by id.
    pub tokens: Vec<String>,
    /// Scores by id; empty if the file has none.
    pub scores: Vec<f32>,
    /// Kinds by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty if the
    /// file has none.
    pub token_types: Vec<i32>,
    /// BPE merges, `left right`, best first.
    pub merges: Vec<String>,
    /// Id of the token that begins a sequence.
    pub bos_token_id: Option<u32>,
    /// Id of the token that ends a sequence.
    pub eos_token_id: Option<u32>,
    /// Id of the token that ends a turn.
    pub eot_token_id: Option<u32>,
    /// Id of the token that ends a message.
    pub eom_token_id: Option<u32>,
    /// Stands for what no token covers.
    pub unknown_token_id: Option<u32>,
    /// Id of the token that separates sentences.
    pub separator_token_id: Option<u32>,
    /// Begins what is classified.
    pub classifier_token_id: Option<u32>,
    /// Id of the token that fills up batches.
    pub padding_token_id: Option<u32>,
    /// Whether encoding puts the begin token first.
    pub add_bos_token: Option<bool>,
    /// Whether encoding puts the end token last.
    pub add_eos_token: Option<bool>,
    /// Whether SentencePiece text gets a leading space.
    pub add_space_prefix: Option<bool>,
    /// Whether SentencePiece text loses repeated spaces.
    pub remove_extra_whitespaces: Option<bool>,
    /// SentencePiece's table of respelled characters; empty if there is none.
    pub precompiled_charsmap: Vec<u8>,
    /// Whether word pieces are of small letters only.
    pub lowercase: Option<bool>,
}

impl GgufVocabulary {
    /// Every token that ends an answer, ascending.
    pub fn end_token_ids(&self) -> Vec<u32> {
        let named = [self.eos_token_id, self.eot_token_id, self.eom_token_id];
        let by_text = self.tokens.iter().zip(&self.token_types).enumerate();
        let by_text = by_text
            .filter(|(_, (text, kind))| **kind == CONTROL && END_TEXTS.contains(&text.as_str()));
        // Ids fit: they were checked to be below a number of tokens that fits.
        let by_text = by_text.filter_map(|(id, _)| u32::try_from(id).ok());
        let mut ids: Vec<u32> = named.into_iter().flatten().chain(by_text).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(crate) fn read(metadata: &Metadata<'_>) -> Result<Self, String> {
        let texts = |key: &str| {
            let text = |value: &Value<'_>| value.as_text().map(str::to_owned);
            metadata.array(key, "an array of strings", text)
        };
        let tokens = texts("tokenizer.ggml.tokens")?
            .filter(|tokens| !tokens.is_empty())
            .ok_or("metadata `tokenizer.ggml.tokens` is missing: the file has no vocabulary")?;
        let id = |name: &str| special_id(metadata, name, tokens.len());
        let flag = |name: &str| metadata.bool(&format!("tokenizer.ggml.{name}"));
        let vocabulary = Self {
            model: metadata
                .text("tokenizer.ggml.model")?
                .ok_or("metadata `tokenizer.ggml.model` is missing")?,
            pre_tokenizer: metadata.text("tokenizer.ggml.pre")?,
            scores: per_token(metadata, "scores", &tokens, "numbers", score)?,
            token_types: per_token(metadata, "token_type", &tokens, "integers", token_type)?,
            merges: texts("tokenizer.ggml.merges")?.unwrap_or_default(),
            bos_token_id: id("bos_token_id")?,
            eos_token_id: id("eos_token_id")?,
            eot_token_id: id("eot_token_id")?,
            eom_token_id: id("eom_token_id")?,
            unknown_token_id: id("unknown_token_id")?,
            // The format's own spelling.
            separator_token_id: id("seperator_token_id")?,
            classifier_token_id: id("cls_token_id")?,
            padding_token_id: id("padding_token_id")?,
            add_bos_token: flag("add_bos_token")?,
            add_eos_token: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
            lowercase: flag("normalizer.lowercase")?,
            precompiled_charsmap: metadata
                .array("tokenizer.ggml.precompiled_charsmap", "an array of bytes", byte)?
                .unwrap_or_default(),
            tokens,
        };
        Ok(vocabulary)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "scores are stored as f32")]
fn score(value: &Value<'_>) -> Option<f32> {
    value.as_f64().map(|score| score as f32)
}

fn byte(value: &Value<'_>) -> Option<u8> {
    // Some files have them with a sign.
    let signed = value.as_i64().and_then(|byte| i8::try_from(byte).ok());
    let byte = value.as_u64().and_then(|byte| u8::try_from(byte).ok());
    byte.or_else(|| signed.map(i8::cast_unsigned))
}

fn token_type(value: &Value<'_>) -> Option<i32> {
    value.as_i64().and_then(|kind| kind.try_into().ok())
}

/// An array with one value for every token, empty if it is absent.
fn per_token<'a, T>(
    metadata: &Metadata<'a>,
    name: &str,
    tokens: &[String],
    kind: &str,
    convert: impl Fn(&Value<'a>) -> Option<T>,
) -> Result<Vec<T>, String> {
    let key = format!("tokenizer.ggml.{name}");
    let values = metadata.array(&key, &format!("an array of {kind}"), convert)?.unwrap_or_default();
    if values.is_empty() || values.len() == tokens.len() {
        return Ok(values);
    }
    let (found, expected) = (values.len(), tokens.len());
    Err(format!("metadata `{key}` has {found} values, expected {expected}, one for every token"))
}

/// A special token's id. One that is no token is ignored with a warning: files in the wild name a
/// padding token that was never added.
fn special_id(metadata: &Metadata<'_>, name: &str, tokens: usize) -> Result<Option<u32>, String> {
    let key = format!("tokenizer.ggml.{name}");
    let id = metadata.u32(&key)?;
    if let Some(id) = id.filter(|id| *id as usize >= tokens) {
        tracing::warn!("metadata `{key}` is {id}, expected less than {tokens}; ignored");
        return Ok(None);
    }
    Ok(id)
}
