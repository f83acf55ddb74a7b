//! Jina's fifth embeddings: Qwen3 (small) or, where `is_decoder` is false, EuroBERT (nano), with an
//! adapter for each task in folders of their own. Akram et al., "jina-embeddings-v5-text", 2026.
//!
//! Their own code pools, and no module of sentence-transformers says so: a text's vector is the state of
//! its last token, scaled to length 1.

use serde_json::Value;

use super::{euro_bert, qwen3};
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Result};

const CLASS: &str = "JinaEmbeddingsV5Model";

pub(super) const CLASSES: &[Architecture] = &[Architecture::new(CLASS, spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let is_decoder = config.field_or("is_decoder", true)?;
    if is_decoder { qwen3::spec(config) } else { euro_bert::spec(config) }
}

/// Whether a `config.json` is of this class.
pub(crate) fn is_of_class(config: &Value) -> bool {
    let names = config.get("architectures").and_then(Value::as_array);
    names.is_some_and(|names| names.iter().any(|name| name == CLASS))
}

/// Whether a `config.json` is of this class and says that every token sees all of a text.
pub(crate) fn reads_whole_texts(config: &Value) -> bool {
    is_of_class(config) && config.get("is_decoder").and_then(Value::as_bool) == Some(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_smaller_one_is_an_encoder() {
        let of = |changes: Value| {
            let mut config = json!({
                "architectures": [CLASS], "hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 9,
                "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 8,
                "max_position_embeddings": 16,
            });
            config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let spec = spec(&HfConfig::from_value(&config).unwrap()).unwrap();
            (reads_whole_texts(&config), spec.attention[0].query_key_norm.is_some())
        };
        assert_eq!(of(json!({"is_decoder": false})), (true, false));
        assert_eq!(of(json!({"head_dim": 8})), (false, true));
        let bert = json!({"architectures": ["BertModel"], "is_decoder": false});
        assert!(!is_of_class(&bert) && !reads_whole_texts(&bert));
    }
}
