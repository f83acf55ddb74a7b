//! The named special tokens of a model (`bos_token`, `eos_token`, ...): their texts, not their ids.
//!
//! Chat templates see them as variables; a name that a model does not set stays undefined there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names that hold one token; transformers calls them the special token attributes.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Special token texts by name. Deserializes from `{"bos_token": "<s>", ...}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpecialTokens {
    tokens: BTreeMap<String, String>,
}

impl SpecialTokens {
    /// Reads what `tokenizer_config.json` or `special_tokens_map.json` say: a token is a string or
    /// an object with `content`. Names ending in `_token` beyond the well-known seven are taken
    /// too (`image_token`, ...), as transformers hands them to templates.
    pub fn from_json(config: &Value) -> Self {
        let mut tokens = BTreeMap::new();
        let entries = config.as_object().into_iter().flatten();
        let extra = config.get("extra_special_tokens").and_then(Value::as_object);
        for (name, value) in entries.chain(extra.into_iter().flatten()) {
            let content = value.as_str().or_else(|| value.get("content").and_then(Value::as_str));
            if let Some(content) = content
                && (NAMES.contains(&name.as_str()) || name.ends_with("_token"))
            {
                tokens.insert(name.clone(), content.to_owned());
            }
        }
        Self { tokens }
    }

    /// The text of the token called `name`, for example `bos_token`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.tokens.get(name).map(String::as_str)
    }

    /// Sets the text of the token called `name`.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.tokens.insert(name.into(), text.into());
    }

    /// The text of the token that begins a sequence.
    pub fn bos(&self) -> Option<&str> {
        self.get("bos_token")
    }

    /// The text of the token that ends a sequence.
    pub fn eos(&self) -> Option<&str> {
        self.get("eos_token")
    }

    /// Takes from `other` every name that is not set here.
    pub fn fill_from(&mut self, other: &Self) {
        for (name, text) in &other.tokens {
            self.tokens.entry(name.clone()).or_insert_with(|| text.clone());
        }
    }

    /// All names with their texts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tokens.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_strings_and_objects_and_ignores_the_rest() {
        let tokens = SpecialTokens::from_json(&json!({
            "bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>",
            "pad_token": null, "add_bos_token": true, "chat_template": "x", "image_token": "<img>"
        }));
        let all: Vec<_> = tokens.iter().collect();
        assert_eq!(all, [("bos_token", "<s>"), ("eos_token", "</s>"), ("image_token", "<img>")]);
    }
}
