//! How a model of late interaction reads queries and documents, in the words of three libraries: PyLate's
//! fields of `config_sentence_transformers.json`, the modules of sentence-transformers'
//! `MultiVectorEncoder`, and `artifact.metadata` of ColBERT's own.

use anyhow::{Context, bail};
use serde_json::Value;

use crate::text::late_interaction::{ExpansionSettings, Settings, Side, SideSettings};
use crate::weights::sentence_modules::SentenceModules;
use crate::weights::source::ModelSource;

/// Tokens of a query, where nothing says how many.
const QUERY_LENGTH: usize = 32;
/// Tokens of a document, where nothing says how many.
const DOCUMENT_LENGTH: usize = 180;
/// Python's `string.punctuation`, which documents have no vectors of unless a file says otherwise.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// The settings of `source`, if it is such a model.
pub(super) fn settings(source: &ModelSource) -> anyhow::Result<Option<Settings>> {
    let Some(modules) = &source.sentence_modules else {
        let none = Value::Null;
        let metadata = source.artifact_metadata.as_ref().unwrap_or(&none);
        let own = source.is_colbert().then(|| of_metadata(metadata).context("artifact.metadata"));
        return own.transpose();
    };
    if !modules.are_of_tokens() {
        return Ok(None);
    }
    let read = if modules.are_of_pylate() {
        let none = Value::Null;
        of_pylate(modules.config.json().unwrap_or(&none))
    } else {
        of_modules(modules)
    };
    read.map(Some).context("config_sentence_transformers.json")
}

/// Each character, as a word.
fn punctuation() -> Vec<String> {
    PUNCTUATION.chars().map(String::from).collect()
}

/// A number of tokens, at least 1.
fn length(json: &Value, name: &str) -> anyhow::Result<Option<usize>> {
    match json.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|length| usize::try_from(length).ok()) {
            Some(length @ 1..) => Ok(Some(length)),
            _ => bail!("{name} is {value}, must be a number of tokens, at least 1"),
        },
    }
}

fn flag(json: &Value, name: &str) -> anyhow::Result<Option<bool>> {
    match json.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => bail!("{name} is {other}, must be true or false"),
    }
}

fn text<'a>(json: &'a Value, name: &str) -> anyhow::Result<Option<&'a str>> {
    match json.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => bail!("{name} is {other}, must be a string"),
    }
}

fn words(json: &Value, name: &str) -> anyhow::Result<Option<Vec<String>>> {
    let Some(value) = json.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let words = value.as_array().map(|words| words.iter().map(Value::as_str));
    let words: Option<Option<Vec<&str>>> = words.map(Iterator::collect);
    match words.flatten() {
        Some(words) => Ok(Some(words.into_iter().map(str::to_owned).collect())),
        None => bail!("{name} is {value}, must be a list of strings"),
    }
}

/// The text that is put before texts of a side.
fn prompt(config: &Value, side: &str) -> String {
    let prompt = config.get("prompts").and_then(|prompts| prompts.get(side)?.as_str());
    prompt.unwrap_or_default().to_owned()
}

fn of_pylate(config: &Value) -> anyhow::Result<Settings> {
    let side = |name: &str, prefix: &str, longest: usize| {
        let prefix = text(config, &format!("{name}_prefix"))?.unwrap_or(prefix).to_owned();
        let own = prompt(config, name);
        // One that was saved by sentence-transformers begins with the prefix.
        let prompt = own.strip_prefix(&prefix).map_or_else(|| own.clone(), str::to_owned);
        let longest = length(config, &format!("{name}_length"))?.unwrap_or(longest);
        anyhow::Ok(SideSettings { prefix, prompt, longest: Some(longest) })
    };
    let query = side("query", "[Q] ", QUERY_LENGTH)?;
    let expands = flag(config, "do_query_expansion")?.unwrap_or(true);
    let seen = flag(config, "attend_to_expansion_tokens")?.unwrap_or(false);
    let filled = query.longest.unwrap_or(QUERY_LENGTH);
    let expansion = ExpansionSettings { length: filled, token: None, seen };
    Ok(Settings {
        query,
        document: side("document", "[D] ", DOCUMENT_LENGTH)?,
        expansion: expands.then_some(expansion),
        skipped: words(config, "skiplist_words")?.unwrap_or_else(punctuation),
        skips: vec![Side::Document],
    })
}

fn of_metadata(metadata: &Value) -> anyhow::Result<Settings> {
    let side = |token: &str, unnamed: &str, most: &str, longest: usize| {
        let prefix = text(metadata, token)?.unwrap_or(unnamed).to_owned();
        let longest = Some(length(metadata, most)?.unwrap_or(longest));
        anyhow::Ok(SideSettings { prefix, prompt: String::new(), longest })
    };
    let query = side("query_token_id", "[unused0]", "query_maxlen", QUERY_LENGTH)?;
    let filled = query.longest.unwrap_or(QUERY_LENGTH);
    let seen = flag(metadata, "attend_to_mask_tokens")?.unwrap_or(false);
    let skips = flag(metadata, "mask_punctuation")?.unwrap_or(true);
    Ok(Settings {
        query,
        document: side("doc_token_id", "[unused1]", "doc_maxlen", DOCUMENT_LENGTH)?,
        expansion: Some(ExpansionSettings { length: filled, token: None, seen }),
        skipped: if skips { punctuation() } else { Vec::new() },
        skips: vec![Side::Document],
    })
}

fn of_modules(modules: &SentenceModules) -> anyhow::Result<Settings> {
    let none = Value::Null;
    let config = modules.config.json().unwrap_or(&none);
    let reading = modules.text_config.json().unwrap_or(&none);
    let mask = modules.module("MultiVectorMask").and_then(|module| module.config.json());
    let mask = mask.unwrap_or(&none);
    if let Some(name @ "meanmaxsim") = text(config, "similarity_fn_name")? {
        bail!("similarity_fn_name is {name}, supported is maxsim");
    }
    let most = length(reading, "max_seq_length")?;
    let side = |name: &str| {
        let longest = length(reading, &format!("{name}_length"))?.or(most);
        // A prefix is a text here, whatever the tokenizer makes of it.
        anyhow::Ok(SideSettings { prefix: String::new(), prompt: prompt(config, name), longest })
    };
    let mut query = side("query")?;
    let expansion = match reading.get("query_expansion") {
        None | Some(Value::Null) => None,
        Some(own) => {
            let name = "query_expansion";
            let filled = length(own, "length").context(name)?;
            let Some(length) = filled else { bail!("{name} has no length") };
            match text(own, "strategy").context(name)? {
                // The length is the most, too.
                Some("fixed") => query.longest = Some(length),
                Some("min") => {}
                other => bail!("{name}: strategy is {other:?}, must be \"fixed\" or \"min\""),
            }
            let token = text(own, "token").context(name)?.map(str::to_owned);
            let seen = flag(own, "attend").context(name)?.unwrap_or(false);
            Some(ExpansionSettings { length, token, seen })
        }
    };
    let named = words(mask, "skiplist_tasks")?;
    let skips = match named.as_deref() {
        None => vec![Side::Document],
        Some(tasks) => {
            let all = [("query", Side::Query), ("document", Side::Document)];
            let named = all.into_iter().filter(|(name, _)| tasks.iter().any(|task| task == *name));
            named.map(|(_, side)| side).collect()
        }
    };
    let skipped = words(mask, "skiplist_words")?.unwrap_or_default();
    Ok(Settings { query, document: side("document")?, expansion, skipped, skips })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_pylate_does_not_write_is_its_default() {
        let settings = of_pylate(&json!({})).unwrap();
        let side = |prefix: &str, longest| SideSettings {
            prefix: prefix.to_owned(),
            prompt: String::new(),
            longest: Some(longest),
        };
        assert_eq!((settings.query, settings.document), (side("[Q] ", 32), side("[D] ", 180)));
        let expansion = ExpansionSettings { length: 32, token: None, seen: false };
        assert_eq!((settings.expansion, settings.skipped.len()), (Some(expansion), 32));
        let own = of_pylate(&json!({
            "query_length": 8, "do_query_expansion": false, "skiplist_words": [","],
            "prompts": {"query": "[Q] find: "},
        }));
        let own = own.unwrap();
        assert_eq!((own.query.prompt.as_str(), own.query.longest), ("find: ", Some(8)));
        assert_eq!((own.expansion, own.skipped), (None, vec![",".to_owned()]));
    }

    #[test]
    fn colberts_own_files_name_tokens_and_lengths() {
        let json = json!({
            "query_token_id": "[q]", "doc_token_id": "[d]", "query_maxlen": 5, "doc_maxlen": 7,
            "attend_to_mask_tokens": true, "mask_punctuation": false,
        });
        let settings = of_metadata(&json).unwrap();
        assert_eq!((settings.query.prefix.as_str(), settings.query.longest), ("[q]", Some(5)));
        assert_eq!(
            (settings.document.prefix.as_str(), settings.document.longest),
            ("[d]", Some(7))
        );
        assert!(settings.expansion.unwrap().seen && settings.skipped.is_empty());
        let plain = of_metadata(&Value::Null).unwrap();
        assert_eq!((plain.query.prefix.as_str(), plain.skipped.len()), ("[unused0]", 32));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (config, expected) in [
            (json!({"query_length": 0}), "query_length is 0, must be a number of tokens"),
            (json!({"document_prefix": 3}), "document_prefix is 3, must be a string"),
            (json!({"do_query_expansion": "no"}), "do_query_expansion is \"no\""),
            (json!({"skiplist_words": [1]}), "skiplist_words is [1], must be a list of strings"),
        ] {
            let error = of_pylate(&config).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
