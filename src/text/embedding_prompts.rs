//! Texts that a model's author puts before texts to embed, such as `query: `.
//!
//! Reference: `prompts` and `default_prompt_name` of `config_sentence_transformers.json`.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

use crate::late_interaction::LateInteraction;

/// The prompts that a sentence-transformers model puts before texts, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingPrompts {
    prompts: BTreeMap<String, String>,
    /// The name of the prompt that is used where a request names none.
    default_name: Option<String>,
    late_interaction: Option<LateInteraction>,
}

/// A name that no prompt has.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no prompt is named {name:?}; names are {known}")]
pub struct UnknownPrompt {
    /// The name that was asked for.
    pub name: String,
    /// The names that there are.
    pub known: String,
}

impl Default for EmbeddingPrompts {
    fn default() -> Self {
        // Names that every model has.
        let empty = ["document", "query"].map(|name| (name.to_owned(), String::new()));
        Self { prompts: empty.into(), default_name: None, late_interaction: None }
    }
}

impl EmbeddingPrompts {
    /// Reads a parsed `config_sentence_transformers.json`.
    ///
    /// # Errors
    /// When the default's name is not that of a prompt.
    pub fn from_json(config: &Value) -> Result<Self, UnknownPrompt> {
        let mut read = Self::default();
        let listed = config.get("prompts").and_then(Value::as_object).into_iter().flatten();
        for (name, prompt) in listed {
            let prompt = prompt.as_str().unwrap_or_default();
            read.prompts.insert(name.clone(), prompt.to_owned());
        }
        let default = config.get("default_prompt_name").and_then(Value::as_str);
        if let Some(name) = default {
            read.get(Some(name))?;
        }
        read.default_name = default.map(str::to_owned);
        Ok(read)
    }

    /// The same of a model that reads queries and documents each in their own way.
    #[must_use]
    pub fn with_sides(self, late_interaction: Option<LateInteraction>) -> Self {
        Self { late_interaction, ..self }
    }

    /// How queries and documents are read, where texts are compared token by token.
    pub fn sides(&self) -> Option<&LateInteraction> {
        self.late_interaction.as_ref()
    }

    /// The prompt of that name, or the one for texts that ask for none.
    ///
    /// # Errors
    /// When there is no such prompt.
    pub fn get(&self, name: Option<&str>) -> Result<&str, UnknownPrompt> {
        let Some(name) = name.or(self.default_name.as_deref()) else { return Ok("") };
        let prompt = self.prompts.get(name).map(String::as_str);
        prompt.ok_or_else(|| UnknownPrompt {
            name: name.to_owned(),
            known: self.prompts.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_found_by_its_name_or_the_default_one() {
        let config = json!({"prompts": {"query": "query: ", "document": null, "task": "t "}});
        let prompts = EmbeddingPrompts::from_json(&config).unwrap();
        assert_eq!(prompts.get(None), Ok(""));
        assert_eq!(prompts.get(Some("query")), Ok("query: "));
        assert_eq!(prompts.get(Some("document")), Ok(""));
        let unknown = prompts.get(Some("doc")).unwrap_err().to_string();
        assert_eq!(unknown, "no prompt is named \"doc\"; names are document, query, task");
        let config = json!({"prompts": {"a": "A: "}, "default_prompt_name": "a"});
        assert_eq!(EmbeddingPrompts::from_json(&config).unwrap().get(None), Ok("A: "));
        let config = json!({"prompts": {"a": "A: "}, "default_prompt_name": "b"});
        assert!(EmbeddingPrompts::from_json(&config).is_err());
        assert_eq!(EmbeddingPrompts::default().get(Some("query")), Ok(""));
    }
}
