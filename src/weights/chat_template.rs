//! Which chat template a folder's files give: its text, not its meaning.
//!
//! The order is the one of the Hugging Face tokenizers: `chat_template.jinja`, then
//! `chat_template.json`, then `chat_template` in `tokenizer_config.json`; the latter two hold a
//! string or a list of named templates.

use serde_json::Value;

use super::error::WeightError;
use super::folder::{ModelFolder, json_kind};

const JINJA: &str = "chat_template.jinja";
const JSON: &str = "chat_template.json";
const TOOL_USE_JINJA: &str = "additional_chat_templates/tool_use.jinja";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The templates of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChatTemplates {
    pub(crate) default: Option<String>,
    /// The one for requests with tools, where the model has two.
    pub(crate) tool_use: Option<String>,
}

impl ChatTemplates {
    /// Reads the templates of `folder`, whose `tokenizer_config.json` was read already.
    pub(crate) fn read(
        folder: &ModelFolder,
        tokenizer_config: Option<&Value>,
    ) -> Result<Self, WeightError> {
        if let Some(default) = text(folder, JINJA)? {
            let tool_use = text(folder, TOOL_USE_JINJA)?;
            return Ok(Self { default: Some(default), tool_use });
        }
        if let Some(json) = folder.json_object(JSON)? {
            return Self::from_value(folder, JSON, &json["chat_template"]);
        }
        match tokenizer_config {
            Some(config) => Self::from_value(folder, TOKENIZER_CONFIG, &config["chat_template"]),
            None => Ok(Self::default()),
        }
    }

    fn from_value(folder: &ModelFolder, file: &str, value: &Value) -> Result<Self, WeightError> {
        let corrupt = |reason: String| WeightError::corrupt(&folder.path(file), reason);
        match value {
            Value::Null => Ok(Self::default()),
            Value::String(template) => Ok(Self { default: Some(template.clone()), tool_use: None }),
            Value::Array(entries) => named(entries).map_err(corrupt),
            other => Err(corrupt(format!(
                "`chat_template` is {}, expected a string or a list of named templates",
                json_kind(other)
            ))),
        }
    }
}

/// `[{"name": "default", "template": "..."}, {"name": "tool_use", "template": "..."}]`.
fn named(entries: &[Value]) -> Result<ChatTemplates, String> {
    let mut templates = ChatTemplates::default();
    for entry in entries {
        let (Some(name), Some(template)) = (entry["name"].as_str(), entry["template"].as_str())
        else {
            return Err("an entry of `chat_template` lacks `name` or `template`".to_owned());
        };
        match name {
            "default" => templates.default = Some(template.to_owned()),
            "tool_use" => templates.tool_use = Some(template.to_owned()),
            // Others (`rag`) are for calls that a chat server doesn't have.
            _ => {}
        }
    }
    Ok(templates)
}

fn text(folder: &ModelFolder, name: &str) -> Result<Option<String>, WeightError> {
    let Some(bytes) = folder.read(name)? else { return Ok(None) };
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|error| WeightError::corrupt(&folder.path(name), format!("not UTF-8: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &'static str)]) -> ModelFolder {
        let entry = |(name, text): &(&str, &'static str)| ((*name).to_owned(), text.as_bytes());
        ModelFolder::Embedded(files.iter().map(entry).collect())
    }

    fn read(files: &[(&str, &'static str)]) -> Result<ChatTemplates, WeightError> {
        let folder = folder(files);
        let config = folder.json_object(TOKENIZER_CONFIG)?;
        ChatTemplates::read(&folder, config.as_ref())
    }

    #[test]
    fn the_jinja_file_wins() {
        let templates = read(&[
            ("chat_template.jinja", "A"),
            ("additional_chat_templates/tool_use.jinja", "T"),
            ("tokenizer_config.json", r#"{"chat_template": "B"}"#),
        ]);
        let expected = ChatTemplates { default: Some("A".into()), tool_use: Some("T".into()) };
        assert_eq!(templates.unwrap(), expected);
    }

    #[test]
    fn a_list_gives_default_and_tool_use() {
        let list = r#"{"chat_template": [{"name": "default", "template": "D"},
            {"name": "rag", "template": "R"}, {"name": "tool_use", "template": "T"}]}"#;
        let expected = ChatTemplates { default: Some("D".into()), tool_use: Some("T".into()) };
        assert_eq!(read(&[("tokenizer_config.json", list)]).unwrap(), expected);
        assert_eq!(read(&[("chat_template.json", list)]).unwrap(), expected);
    }

    #[test]
    fn a_lone_template_is_the_default_one() {
        let expected = ChatTemplates { default: Some("x".into()), tool_use: None };
        let lone = r#"{"chat_template": "x"}"#;
        assert_eq!(read(&[("tokenizer_config.json", lone)]).unwrap(), expected);
        assert_eq!(read(&[("chat_template.json", lone)]).unwrap(), expected);
    }

    #[test]
    fn none_is_no_error_and_a_wrong_type_is() {
        assert_eq!(read(&[("tokenizer_config.json", "{}")]).unwrap(), ChatTemplates::default());
        assert_eq!(read(&[]).unwrap(), ChatTemplates::default());
        let error = read(&[("tokenizer_config.json", r#"{"chat_template": 3}"#)]).unwrap_err();
        assert!(error.to_string().contains("is a number"), "{error}");
        let error = read(&[("chat_template.json", r#"{"chat_template": [{}]}"#)]).unwrap_err();
        assert!(error.to_string().contains("lacks"), "{error}");
    }
}
