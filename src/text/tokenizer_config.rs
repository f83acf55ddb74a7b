//! What `tokenizer_config.json` says beside the vocabulary: special tokens, and whether to add them.
//!
//! Keys that change nothing for a server (class names, padding sides) are not read, nor are the
//! chat templates, which may lie in other files as well.

use serde_json::Value;

use super::special_tokens::SpecialTokens;

/// The parts of `tokenizer_config.json` that a server acts on.
#[derive(Debug, Clone, Default)]
pub struct TokenizerConfig {
    /// Texts of the named special tokens.
    pub special_tokens: SpecialTokens,
    /// `add_bos_token`: whether plain prompts begin with bos; `None` leaves it to the tokenizer.
    pub add_bos: Option<bool>,
    /// `add_eos_token`: whether plain prompts end with eos; `None` leaves it to the tokenizer.
    pub add_eos: Option<bool>,
}

impl TokenizerConfig {
    /// Reads a parsed `tokenizer_config.json`; what is missing or of another type is left out.
    pub fn from_json(config: &Value) -> Self {
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        Self {
            special_tokens: SpecialTokens::from_json(config),
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_flags_and_special_tokens_and_leaves_out_the_rest() {
        let config = TokenizerConfig::from_json(&json!({
            "add_bos_token": false, "add_eos_token": "yes", "eos_token": "</s>",
            "chat_template": [{"name": "default", "template": "d"}]
        }));
        assert_eq!((config.add_bos, config.add_eos), (Some(false), None));
        assert_eq!(config.special_tokens.eos(), Some("</s>"));
        let empty = TokenizerConfig::from_json(&json!({}));
        assert_eq!((empty.add_bos, empty.special_tokens.bos()), (None, None));
    }
}
