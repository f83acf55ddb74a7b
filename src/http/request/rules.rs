//! What becomes of the fields that no wire struct reads, by their place in a body.
//!
//! Nothing is silently ignored. A field that changes the answer and isn't supported is an error
//! unless its value asks for what happens anyway; one that can't change the answer, and one that
//! nobody knows, is named in a response header; strict servers refuse the latter.

use serde_json::Value;

/// What is done with a field that no wire struct reads, if its place is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Treatment {
    /// Can't change the answer here.
    Ignored,
    /// Can't change the answer here; a value that the function accepts says nothing at all.
    IgnoredUnless(fn(&Value) -> bool),
    /// Can't change the answer if the function accepts its value; else it would.
    IgnoredIf(fn(&Value) -> bool),
    /// Would change the answer, unless the value is one that the function accepts.
    Unsupported(fn(&Value) -> bool),
}

use Treatment::{Ignored, Unsupported};

/// Places and treatments. A place is a path without indices, `messages[].annotations`, or
/// `*.cache_control` for every object but the body itself.
pub(crate) type Rules = &'static [(&'static str, Treatment)];

/// The fields of bodies that all protocols know.
pub(crate) const COMMON: Rules = &[
    ("__verbose", Treatment::IgnoredUnless(is_false)),
    ("adaptive_decay", Ignored),
    ("backend_sampling", Ignored),
    ("dynatemp_exponent", Ignored),
    // There is one engine for grammars, and it keeps every one that it takes.
    ("guided_decoding_backend", Ignored),
    ("guided_whitespace_pattern", Unsupported(never)),
    // All sequences share one cache, and which of them a request runs in shows nowhere.
    ("id_slot", Ignored),
    ("metadata", Ignored),
    ("mirostat_eta", Ignored),
    ("mirostat_tau", Ignored),
    ("mm_processor_kwargs", Ignored),
    // Nothing is discarded from a sequence that fills the context: it ends.
    ("n_cache_reuse", Ignored),
    ("n_discard", Ignored),
    ("n_keep", Ignored),
    ("moderation", Treatment::IgnoredIf(blocks_nothing)),
    ("prompt_cache_key", Ignored),
    // All prefixes are kept as long as there is room.
    ("prompt_cache_options.mode", Ignored),
    ("prompt_cache_options.ttl", Ignored),
    ("prompt_cache_retention", Ignored),
    ("request_id", Ignored),
    ("return_progress", Treatment::IgnoredUnless(is_false)),
    // Of llama.cpp's own route; OpenAI's routes have `return_token_ids`.
    ("return_tokens", Treatment::IgnoredUnless(is_false)),
    ("rid", Ignored),
    ("safety_identifier", Ignored),
    ("service_tier", Ignored),
    ("session_id", Ignored),
    // How drafts are made changes no answer.
    ("speculative.n_min", Ignored),
    ("speculative.p_min", Ignored),
    ("speculative.type", Ignored),
    ("sse_ping_interval", Ignored),
    ("store", Ignored),
    ("stream_interval", Ignored),
    ("timings_per_token", Treatment::IgnoredUnless(is_false)),
    ("truncation_side", Ignored),
    ("user", Ignored),
    ("verbose", Treatment::IgnoredUnless(is_false)),
    ("adaptive_target", Unsupported(is_negative)),
    ("audio", Unsupported(never)),
    ("custom_logit_processor", Unsupported(never)),
    ("dynatemp_range", Unsupported(is_zero)),
    ("ec_transfer_params", Unsupported(never)),
    ("function_call", Unsupported(never)),
    ("functions", Unsupported(never)),
    ("grammar_lazy", Unsupported(is_false)),
    ("grammar_triggers", Unsupported(is_empty)),
    ("kv_transfer_params", Unsupported(never)),
    ("logits_processors", Unsupported(is_empty)),
    // Adapters are asked for as models.
    ("lora", Unsupported(is_empty)),
    ("lora_path", Unsupported(never)),
    // Filters always keep a token.
    ("min_keep", Unsupported(is_one_at_most)),
    ("mirostat", Unsupported(is_zero)),
    ("modalities", Unsupported(is_text_only)),
    ("n_cmpl", Unsupported(is_one)),
    ("n_indent", Unsupported(is_zero)),
    ("n_predict", Unsupported(never)),
    ("n_probs", Unsupported(is_zero)),
    ("no_stop_trim", Unsupported(is_false)),
    ("parse_tool_calls", Unsupported(is_true)),
    ("post_sampling_probs", Unsupported(is_false)),
    ("prompt_embeds", Unsupported(never)),
    ("repeat_penalty", Unsupported(is_one)),
    ("repetition_detection", Unsupported(never)),
    ("response_fields", Unsupported(is_empty)),
    ("return_hidden_states", Unsupported(is_false)),
    ("return_prompt_text", Unsupported(is_false)),
    ("samplers", Unsupported(never)),
    ("spaces_between_special_tokens", Unsupported(is_true)),
    ("stop_regex", Unsupported(never)),
    ("stream_reasoning", Unsupported(is_true)),
    ("suffix", Unsupported(is_empty)),
    ("t_max_predict_ms", Unsupported(is_no_time)),
    ("tfs_z", Unsupported(is_one)),
    ("top_a", Unsupported(is_zero)),
    ("verbosity", Treatment::IgnoredUnless(is_medium)),
    ("vllm_xargs", Unsupported(never)),
    ("web_search_options", Unsupported(never)),
];

/// The treatment of the place `path`, indices and all.
pub(super) fn find(rules: &[Rules], path: &str) -> Option<Treatment> {
    let place = without_indices(path);
    let last = place.rsplit_once('.').map(|(_, last)| last);
    let holds = |pattern: &str| match pattern.strip_prefix("*.") {
        Some(name) => last == Some(name),
        None => pattern == place,
    };
    let mut rows = rules.iter().flat_map(|rules| rules.iter());
    rows.find(|(pattern, _)| holds(pattern)).map(|(_, treatment)| *treatment)
}

/// `messages[3].name` is `messages[].name`.
fn without_indices(path: &str) -> String {
    let mut place = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        inside = c == '[' || (inside && c != ']');
        if !inside || c == '[' {
            place.push(c);
        }
    }
    place
}

pub(crate) fn never(_value: &Value) -> bool {
    false
}

pub(crate) fn is_true(value: &Value) -> bool {
    value == &Value::Bool(true)
}

/// Whether what a moderation finds is only reported.
fn blocks_nothing(moderation: &Value) -> bool {
    !moderation.to_string().contains("\"block\"")
}

pub(crate) fn is_false(value: &Value) -> bool {
    value == &Value::Bool(false)
}

pub(crate) fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_negative(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value < 0.0)
}

fn is_no_time(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value <= 0.0)
}

fn is_one_at_most(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value <= 1.0)
}

pub(crate) fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

pub(crate) fn is_medium(value: &Value) -> bool {
    value == "medium"
}

pub(crate) fn is_empty(value: &Value) -> bool {
    value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

fn is_text_only(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

pub(crate) fn is_bool(value: &Value) -> bool {
    value.is_boolean()
}

pub(crate) fn is_text(value: &Value) -> bool {
    value.is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_once() {
        let mut names: Vec<_> = COMMON.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), COMMON.len());
    }

    #[test]
    fn places_are_found_at_any_depth() {
        let rules: &[Rules] = &[&[("a[].b", Ignored), ("*.c", Ignored), ("d", Ignored)]];
        for (path, known) in [
            ("a[12].b", true),
            ("a.b", false),
            ("a[0].c", true),
            ("c", false),
            ("d", true),
            ("a[0].d", false),
        ] {
            assert_eq!(find(rules, path).is_some(), known, "{path}");
        }
    }
}
