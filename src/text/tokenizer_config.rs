//! What `tokenizer_config.json` says beside the vocabulary: special tokens, whether to add them,
//! and the chat templates.
//!
//! Keys that change nothing for a server (class names, padding sides) are not read.

use serde_json::Value;
use thiserror::Error;

use super::special_tokens::SpecialTokens;

/// A `tokenizer_config.json` that cannot be used.
#[derive(Debug, Error)]
pub enum TokenizerConfigError {
    /// The file is no JSON object.
    #[error("tokenizer config: {0}")]
    Json(#[from] serde_json::Error),
}

/// The parts of `tokenizer_config.json` that a server acts on.
#[derive(Debug, Clone, Default)]
pub struct TokenizerConfig {
    /// Texts of the named special tokens.
    pub special_tokens: SpecialTokens,
    /// `add_bos_token`: whether plain prompts begin with bos; `None` leaves it to the tokenizer.
    pub add_bos: Option<bool>,
    /// `add_eos_token`: whether plain prompts end with eos; `None` leaves it to the tokenizer.
    pub add_eos: Option<bool>,
    /// Chat template sources by name; a lone template is called `default`.
    pub(super) chat_templates: Vec<(String, String)>,
}

impl TokenizerConfig {
    /// Parses `tokenizer_config.json`.
    ///
    /// # Errors
    /// When the bytes are not a JSON object.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerConfigError> {
        let object: serde_json::Map<String, Value> = serde_json::from_slice(bytes)?;
        let flag = |name: &str| object.get(name).and_then(Value::as_bool);
        Ok(Self {
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            chat_templates: chat_templates(object.get("chat_template")),
            special_tokens: SpecialTokens::from_json(&Value::Object(object)),
        })
    }

    /// The source of the template to use: with tools the one called `tool_use` where there is one,
    /// else `default`.
    pub fn chat_template(&self, with_tools: bool) -> Option<&str> {
        let named = |wanted: &str| self.chat_templates.iter().find(|(name, _)| name == wanted);
        let tool_use = if with_tools { named("tool_use") } else { None };
        tool_use.or_else(|| named("default")).map(|(_, source)| source.as_str())
    }
}

fn chat_templates(value: Option<&Value>) -> Vec<(String, String)> {
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    match value {
        Some(Value::String(source)) => vec![("default".to_owned(), source.clone())],
        Some(Value::Array(entries)) => entries
            .iter()
            .filter_map(|entry| Some((text(entry, "name")?, text(entry, "template")?)))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_the_tool_template_only_with_tools() {
        let config = TokenizerConfig::from_json(
            br#"{"add_bos_token": false, "eos_token": "</s>", "chat_template": [
                {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#,
        )
        .unwrap();
        assert_eq!(config.chat_template(true), Some("t"));
        assert_eq!(config.chat_template(false), Some("d"));
        assert_eq!((config.add_bos, config.add_eos), (Some(false), None));
        assert_eq!(config.special_tokens.eos(), Some("</s>"));
        assert!(TokenizerConfig::from_json(b"[]").is_err());
    }

    #[test]
    fn a_lone_template_serves_both() {
        let config = TokenizerConfig::from_json(br#"{"chat_template": "x"}"#).unwrap();
        assert_eq!(
            (config.chat_template(true), config.chat_template(false)),
            (Some("x"), Some("x"))
        );
        assert_eq!(TokenizerConfig::from_json(b"{}").unwrap().chat_template(true), None);
    }
}
