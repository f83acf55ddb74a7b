//! Streams of chat completions.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::demand;
use super::probe::{CHAT, chat_body, chunks, content};

/// The text of the choice `index` over all chunks.
fn text_of(chunks: &[Value], index: u64) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().into_iter().flatten());
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
}

/// How often the choice `index` says why it ended.
fn ends_of(chunks: &[Value], index: u64) -> usize {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().into_iter().flatten());
    choices.filter(|choice| choice["index"] == index && choice["finish_reason"].is_string()).count()
}

pub(super) const CASES: [Case; 7] = [
    case!("a stream is of chunks with one id, and ends with [DONE]", |probe| {
        let events = probe.stream(CHAT, chat_body(json!({}))).await?;
        let chunks = chunks(&events)?;
        demand!(chunks.len() > 1, "{} chunks", chunks.len());
        for chunk in &chunks {
            demand!(chunk["object"] == "chat.completion.chunk", "{chunk}");
            demand!(chunk["id"] == chunks[0]["id"] && chunk["id"].is_string(), "{chunk}");
            demand!(chunk["created"] == chunks[0]["created"], "{chunk}");
        }
    }),
    case!("the first delta has the role", |probe| {
        let chunks = chunks(&probe.stream(CHAT, chat_body(json!({}))).await?)?;
        let role = &chunks[0]["choices"][0]["delta"]["role"];
        demand!(role == "assistant", "{}", chunks[0]);
    }),
    case!("the deltas together are the text of an answer at once", |probe| {
        let whole = content(&probe.chat(json!({})).await?)?;
        let chunks = chunks(&probe.stream(CHAT, chat_body(json!({}))).await?)?;
        let text = text_of(&chunks, 0);
        demand!(text == whole, "{text:?} in place of {whole:?}");
        demand!(ends_of(&chunks, 0) == 1, "finish_reason stands {} times", ends_of(&chunks, 0));
    }),
    case!("usage comes last where it is asked for, and not otherwise", |probe| {
        let body = chat_body(json!({"stream_options": {"include_usage": true}}));
        let asked = chunks(&probe.stream(CHAT, body).await?)?;
        let Some((last, before)) = asked.split_last() else {
            return Err(super::fault::Fault::wrong("no chunks"));
        };
        let empty = last["choices"].as_array().is_some_and(Vec::is_empty);
        demand!(empty && last["usage"]["total_tokens"].is_u64(), "the last chunk is {last}");
        demand!(
            before.iter().all(|chunk| chunk["usage"].is_null()),
            "usage is in other chunks, too"
        );
        let without = chunks(&probe.stream(CHAT, chat_body(json!({}))).await?)?;
        demand!(
            without.iter().all(|chunk| chunk["usage"].is_null()),
            "usage without being asked for"
        );
    }),
    case!("n choices are told apart by their indices", |probe| {
        let body = chat_body(json!({"n": 2, "temperature": 1, "seed": 3}));
        let chunks = chunks(&probe.stream(CHAT, body).await?)?;
        for index in [0, 1] {
            demand!(ends_of(&chunks, index) == 1, "choice {index} has no end, or several");
        }
    }),
    case!("a stop string held back is not in the stream", |probe| {
        let whole = content(&probe.chat(json!({})).await?)?;
        let characters: Vec<char> = whole.chars().collect();
        demand!(characters.len() > 8, "the answer {whole:?} is too short to judge");
        let stop: String = characters[4..8].iter().collect();
        let body = chat_body(json!({"stop": stop}));
        let text = text_of(&chunks(&probe.stream(CHAT, body).await?)?, 0);
        demand!(!text.contains(&stop), "{text:?} has {stop:?} in it");
    }),
    case!("logprobs stream with their tokens", |probe| {
        let body = chat_body(json!({"logprobs": true, "top_logprobs": 1}));
        let chunks = chunks(&probe.stream(CHAT, body).await?)?;
        let some = chunks.iter().any(|chunk| chunk["choices"][0]["logprobs"]["content"].is_array());
        demand!(some, "no chunk has logprobs");
    }),
];
