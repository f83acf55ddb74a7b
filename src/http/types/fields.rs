//! Which fields are known without being in a wire struct, and what becomes of those that nobody
//! knows.
//!
//! Nothing is silently ignored. A field that changes the answer and isn't supported is an error
//! unless its value asks for what happens anyway; one that can't change the answer, and one that
//! nobody knows, is named in a response header; strict servers refuse the latter.

use serde_json::Value;

use crate::http::error::ApiError;

/// What is done with a field that no wire struct reads.
#[derive(Clone, Copy)]
enum Treatment {
    /// Can't change the answer here.
    Ignored,
    /// Would change the answer, unless the value is one that the function accepts.
    Unsupported(fn(&Value) -> bool),
}

use Treatment::{Ignored, Unsupported};

const TABLE: &[(&str, Treatment)] = &[
    ("cache_prompt", Unsupported(is_true)),
    ("dynatemp_exponent", Ignored),
    ("id_slot", Ignored),
    ("metadata", Ignored),
    ("mirostat_eta", Ignored),
    ("mirostat_tau", Ignored),
    ("mm_processor_kwargs", Ignored),
    ("moderation", Ignored),
    ("prediction", Ignored),
    ("prompt_cache_key", Ignored),
    ("prompt_cache_options", Ignored),
    ("prompt_cache_retention", Ignored),
    ("request_id", Ignored),
    ("rid", Ignored),
    ("safety_identifier", Ignored),
    ("service_tier", Ignored),
    ("session_id", Ignored),
    ("store", Ignored),
    ("stream_interval", Ignored),
    ("timings_per_token", Ignored),
    ("truncation_side", Ignored),
    ("user", Ignored),
    ("allowed_token_ids", Unsupported(never)),
    ("audio", Unsupported(never)),
    ("bad_words", Unsupported(is_empty)),
    ("custom_logit_processor", Unsupported(never)),
    ("dynatemp_range", Unsupported(is_zero)),
    ("ebnf", Unsupported(never)),
    ("ec_transfer_params", Unsupported(never)),
    ("function_call", Unsupported(never)),
    ("functions", Unsupported(never)),
    ("grammar", Unsupported(never)),
    ("guided_choice", Unsupported(never)),
    ("guided_decoding_backend", Unsupported(never)),
    ("guided_grammar", Unsupported(never)),
    ("guided_json", Unsupported(never)),
    ("guided_regex", Unsupported(never)),
    ("json_schema", Unsupported(never)),
    ("kv_transfer_params", Unsupported(never)),
    ("logprob_token_ids", Unsupported(is_empty)),
    ("lora_path", Unsupported(never)),
    ("mirostat", Unsupported(is_zero)),
    ("modalities", Unsupported(is_text_only)),
    ("n_predict", Unsupported(never)),
    ("n_probs", Unsupported(is_zero)),
    ("no_stop_trim", Unsupported(is_false)),
    ("prompt_embeds", Unsupported(never)),
    ("regex", Unsupported(never)),
    ("repeat_penalty", Unsupported(is_one)),
    ("repetition_detection", Unsupported(never)),
    ("response_fields", Unsupported(never)),
    ("return_hidden_states", Unsupported(is_false)),
    ("return_prompt_text", Unsupported(is_false)),
    ("samplers", Unsupported(never)),
    ("spaces_between_special_tokens", Unsupported(is_true)),
    ("stop_regex", Unsupported(never)),
    ("stream_reasoning", Unsupported(is_true)),
    ("suffix", Unsupported(is_empty)),
    ("tfs_z", Unsupported(is_one)),
    ("top_a", Unsupported(is_zero)),
    ("truncate_prompt_tokens", Unsupported(never)),
    ("verbosity", Unsupported(is_medium)),
    ("vllm_xargs", Unsupported(never)),
    ("web_search_options", Unsupported(never)),
];

/// The fields of one request that had no effect, for the header that names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IgnoredFields {
    names: Vec<String>,
    unknown: Option<String>,
}

impl IgnoredFields {
    /// Judges the fields that no wire struct reads.
    pub(crate) fn judge<'a>(
        fields: impl Iterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, ApiError> {
        let mut ignored = Self::default();
        for (name, value) in fields {
            match TABLE.iter().find(|(known, _)| *known == name).map(|(_, treatment)| *treatment) {
                None => ignored.add_unknown(name.to_owned()),
                Some(Ignored) => ignored.add(name.to_owned()),
                Some(Unsupported(accepts)) if accepts(value) => {}
                Some(Unsupported(_)) => return Err(unsupported(name, value)),
            }
        }
        Ok(ignored)
    }

    /// Notes a field that is known and had no effect.
    pub(crate) fn add(&mut self, path: String) {
        self.names.push(path);
    }

    /// Notes a field that nobody knows.
    pub(crate) fn add_unknown(&mut self, path: String) {
        self.unknown.get_or_insert_with(|| path.clone());
        self.names.push(path);
    }

    /// Refuses the request if a field was unknown.
    pub(crate) fn check_strict(&self, strict: bool) -> Result<(), ApiError> {
        match &self.unknown {
            Some(path) if strict => Err(ApiError::Invalid {
                message: format!("{path}: unknown field"),
                param: Some(path.clone()),
                code: Some("unknown_field"),
            }),
            _ => Ok(()),
        }
    }

    /// The header's value, if there is anything to name: at most 1 KiB of visible ASCII.
    pub(crate) fn header(&self) -> Option<String> {
        let visible = |name: &str| -> String {
            let shown = name.chars().take(64);
            shown.map(|c| if c.is_ascii_graphic() && c != ',' { c } else { '?' }).collect()
        };
        let mut header = String::new();
        for name in &self.names {
            let separator = if header.is_empty() { "" } else { ", " };
            if header.len() + name.len() > 1000 {
                header.push_str(", ...");
                break;
            }
            header.push_str(separator);
            header.push_str(&visible(name));
        }
        (!header.is_empty()).then_some(header)
    }
}

fn unsupported(name: &str, value: &Value) -> ApiError {
    let shown: String = value.to_string().chars().take(80).collect();
    ApiError::unsupported(name, &format!("the value {shown}"))
}

fn never(_value: &Value) -> bool {
    false
}

fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
}

fn is_false(value: &Value) -> bool {
    value == &Value::Bool(false)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_medium(value: &Value) -> bool {
    value == "medium"
}

fn is_empty(value: &Value) -> bool {
    value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

fn is_text_only(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judge(body: &Value) -> Result<IgnoredFields, ApiError> {
        let fields = body.as_object().unwrap().iter();
        IgnoredFields::judge(fields.map(|(name, value)| (name.as_str(), value)))
    }

    #[test]
    fn names_are_listed_once() {
        let mut names: Vec<_> = TABLE.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn a_value_that_asks_for_what_happens_anyway_is_fine() {
        let body = json!({"repeat_penalty": 1.0, "n_probs": 0, "tfs_z": 1.0,
            "top_a": 0, "modalities": ["text"], "suffix": ""});
        assert_eq!(judge(&body).unwrap(), IgnoredFields::default());
    }

    #[test]
    fn a_value_that_would_change_the_answer_is_refused_by_name() {
        let error = judge(&json!({"top_a": 0.5})).unwrap_err();
        assert!(error.to_string().contains("top_a"), "{error}");
        assert_eq!(error.body()["error"]["param"], "top_a");
    }

    #[test]
    fn unknown_names_cannot_break_the_header() {
        let ignored = judge(&json!({"user": "x", "a\r\nb, é": 1})).unwrap();
        assert_eq!(ignored.header().unwrap(), "user, a??b???");
        assert!(ignored.check_strict(false).is_ok());
        assert!(ignored.check_strict(true).is_err());
        let many: serde_json::Map<String, Value> =
            (0..500).map(|i| (format!("field_{i}"), json!(1))).collect();
        assert!(judge(&Value::Object(many)).unwrap().header().unwrap().len() < 1100);
    }
}
