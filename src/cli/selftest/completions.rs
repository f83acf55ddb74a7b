//! Completions of texts, which evaluation programs and benchmarks ask for.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::demand;
use super::probe::{choice, chunks, merge};

const PATH: &str = "/v1/completions";

fn body(fields: Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0});
    merge(&mut body, fields);
    body
}

pub(super) const CASES: [Case; 6] = [
    case!("an answer has the shape that SDKs read", |probe| {
        let answer = probe.ask(PATH, body(json!({}))).await?;
        demand!(answer["object"] == "text_completion" && answer["id"].is_string(), "{answer}");
        demand!(choice(&answer)["text"].is_string(), "{answer}");
        demand!(answer["usage"]["total_tokens"].is_u64(), "{answer}");
    }),
    case!("several prompts have a choice each", |probe| {
        let answer = probe.ask(PATH, body(json!({"prompt": ["One", "Two"]}))).await?;
        let choices = answer["choices"].as_array().cloned().unwrap_or_default();
        let indices: Vec<_> = choices.iter().map(|choice| choice["index"].as_u64()).collect();
        demand!(indices == [Some(0), Some(1)], "{indices:?}");
    }),
    case!("echo gives the prompt back", |probe| {
        let answer = probe.ask(PATH, body(json!({"echo": true}))).await?;
        let text = choice(&answer)["text"].as_str().unwrap_or_default();
        demand!(text.starts_with("Once upon a time"), "{text:?}");
    }),
    case!("a prompt may be token ids", |probe| {
        let answer = probe.ask(PATH, body(json!({"prompt": [1, 2, 3, 4]}))).await?;
        demand!(answer["usage"]["prompt_tokens"] == 4, "{}", answer["usage"]);
    }),
    case!("logprobs have tokens, offsets and the most likely ones", |probe| {
        let answer = probe.ask(PATH, body(json!({"logprobs": 2}))).await?;
        let logprobs = &choice(&answer)["logprobs"];
        let count = |name: &str| logprobs[name].as_array().map(Vec::len);
        let tokens = count("tokens");
        let same = ["token_logprobs", "top_logprobs", "text_offset"]
            .iter()
            .all(|name| count(name) == tokens);
        demand!(tokens > Some(0) && same, "{logprobs}");
    }),
    case!("a stream is the same text in parts", |probe| {
        let whole = probe.ask(PATH, body(json!({}))).await?;
        let chunks = chunks(&probe.stream(PATH, body(json!({}))).await?)?;
        let parts = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str());
        let text: String = parts.collect();
        demand!(choice(&whole)["text"] == text, "{text:?}, not {}", choice(&whole)["text"]);
    }),
];
