//! Chat completions: shapes and parameters.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::demand;
use super::probe::{CHAT, choice, content};

pub(super) const CASES: [Case; 12] = [
    case!("an answer has the shape that SDKs read", |probe| {
        let answer = probe.chat(json!({})).await?;
        demand!(answer["id"].is_string() && answer["object"] == "chat.completion", "{answer}");
        demand!(answer["created"].is_u64() && answer["model"].is_string(), "{answer}");
        let choice = choice(&answer);
        demand!(choice["index"] == 0 && choice["message"]["role"] == "assistant", "{answer}");
        let reasons = ["stop", "length"];
        let reason = choice["finish_reason"].as_str().unwrap_or_default();
        demand!(reasons.contains(&reason), "finish_reason {reason:?}");
        content(&answer)?;
    }),
    case!("usage adds up", |probe| {
        let usage = probe.chat(json!({})).await?["usage"].clone();
        let count = |name: &str| usage[name].as_u64();
        let sum = count("prompt_tokens").zip(count("completion_tokens")).map(|(a, b)| a + b);
        demand!(sum.is_some() && sum == count("total_tokens"), "{usage}");
        demand!(count("prompt_tokens") > Some(0), "{usage}");
    }),
    case!("max_tokens is a bound, and length says that it was met", |probe| {
        let answer = probe.chat(json!({"max_tokens": 3})).await?;
        let tokens = answer["usage"]["completion_tokens"].as_u64();
        demand!(tokens <= Some(3), "{tokens:?} tokens");
        let ended = choice(&answer)["finish_reason"] == "length" || tokens < Some(3);
        demand!(ended, "finish_reason {}", choice(&answer)["finish_reason"]);
    }),
    case!("max_completion_tokens is the same bound", |probe| {
        let fields = json!({"max_tokens": null, "max_completion_tokens": 3});
        let answer = probe.chat(fields).await?;
        demand!(answer["usage"]["completion_tokens"].as_u64() <= Some(3), "{}", answer["usage"]);
    }),
    case!("n choices have their indices", |probe| {
        let answer = probe.chat(json!({"n": 2, "temperature": 1, "seed": 7})).await?;
        let choices = answer["choices"].as_array().cloned().unwrap_or_default();
        let mut indices: Vec<_> = choices.iter().map(|one| one["index"].as_u64()).collect();
        indices.sort_unstable();
        demand!(indices == [Some(0), Some(1)], "{indices:?}");
    }),
    case!("temperature 0 says the same twice", |probe| {
        let one = content(&probe.chat(json!({})).await?)?;
        let two = content(&probe.chat(json!({})).await?)?;
        demand!(one == two, "{one:?} and {two:?}");
    }),
    case!("a seed says the same twice", |probe| {
        let fields = || json!({"temperature": 1, "seed": 1234});
        let one = content(&probe.chat(fields()).await?)?;
        let two = content(&probe.chat(fields()).await?)?;
        demand!(one == two, "{one:?} and {two:?}");
    }),
    case!("a stop string ends the text, which is without it", |probe| {
        let whole = content(&probe.chat(json!({})).await?)?;
        let characters: Vec<char> = whole.chars().collect();
        demand!(characters.len() > 8, "the answer {whole:?} is too short to judge");
        let stop: String = characters[4..8].iter().collect();
        let answer = probe.chat(json!({"stop": [stop]})).await?;
        let text = content(&answer)?;
        let expected = whole.split(&stop).next().unwrap_or_default();
        // Some servers trim the space that an answer begins with.
        demand!(text.trim_start() == expected.trim_start(), "{text:?} in place of {expected:?}");
        demand!(choice(&answer)["finish_reason"] == "stop", "{}", choice(&answer)["finish_reason"]);
    }),
    case!("logprobs have a token, its bytes and the most likely ones", |probe| {
        let answer = probe.chat(json!({"logprobs": true, "top_logprobs": 2})).await?;
        let tokens = choice(&answer)["logprobs"]["content"].as_array().cloned().unwrap_or_default();
        demand!(!tokens.is_empty(), "no logprobs: {}", choice(&answer)["logprobs"]);
        for token in &tokens {
            let good = token["token"].is_string()
                && token["logprob"].as_f64().is_some_and(|logprob| logprob <= 1e-4)
                && (token["bytes"].is_array() || token["bytes"].is_null())
                && token["top_logprobs"].as_array().is_some_and(|top| top.len() == 2);
            demand!(good, "{token}");
        }
        let joined: String = tokens.iter().filter_map(|token| token["token"].as_str()).collect();
        let text = content(&answer)?;
        demand!(
            joined.contains(text.trim()) || joined.contains('\u{fffd}'),
            "{joined:?}, not {text:?}"
        );
    }),
    case!("content may be a list of parts", |probe| {
        let parts =
            json!([{"type": "text", "text": "Tell me"}, {"type": "text", "text": " more."}]);
        let messages = json!([{"role": "user", "content": parts}]);
        content(&probe.chat(json!({ "messages": messages })).await?)?;
    }),
    case!("system, developer and assistant messages are taken", |probe| {
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "And now?"},
        ]);
        content(&probe.chat(json!({ "messages": messages })).await?)?;
        let messages = json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Hello."},
        ]);
        content(&probe.chat(json!({ "messages": messages })).await?)?;
    }),
    case!("what SDKs send besides is no error", |probe| {
        let fields = json!({
            "user": "u", "metadata": {"a": "b"}, "store": false, "parallel_tool_calls": true,
            "service_tier": "auto", "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0,
        });
        let mut body = super::probe::chat_body(fields);
        // Without tools there is nothing that could be called in parallel.
        body.as_object_mut().and_then(|body| body.remove("parallel_tool_calls"));
        let answer: Value = probe.ask(CHAT, body).await?;
        content(&answer)?;
    }),
];
