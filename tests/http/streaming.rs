//! Server-sent events: framing, the order of chunks, and what each carries.

use std::time::Duration;

use sconce::engine::output::EngineError;
use serde_json::{Value, json};

use super::client::{frames, read_until};
use super::fake_engine::Script;
use super::fixture::{EOS, Server, Setup, bytes, chat, completion, endless, say};

fn text_of(chunks: &[Value], index: usize) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    let of_index = choices.filter(|choice| choice["index"] == index);
    of_index
        .map(|choice| {
            let delta = choice["delta"]["content"].as_str().or(choice["text"].as_str());
            delta.unwrap_or_default().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn chunks_come_in_the_order_of_the_contract() {
    let server = Server::saying("Hey").await;
    let answer = server.client.chat(&chat(json!({"stream": true, "seed": 3}))).await;
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let chunks = answer.chunks();
    let (id, created) = (&chunks[0]["id"], &chunks[0]["created"]);
    let chunk = |choice: Value| {
        json!({"id": id, "object": "chat.completion.chunk", "created": created, "model": "tiny",
            "system_fingerprint": "fp_test", "service_tier": "default", "choices": [choice]})
    };
    let delta =
        |delta: Value| json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null});
    assert_eq!(chunks[0], chunk(delta(json!({"role": "assistant", "content": ""}))));
    for (at, letter) in ["H", "e", "y"].into_iter().enumerate() {
        assert_eq!(chunks[1 + at], chunk(delta(json!({"content": letter}))));
    }
    let mut last = chunk(json!({"index": 0, "delta": {}, "logprobs": null,
        "finish_reason": "stop", "stop_reason": null}));
    last["timings"] = chunks[4]["timings"].clone();
    last["seed"] = json!(3);
    assert_eq!(chunks[4], last);
    assert_eq!(chunks[4]["timings"]["queue_ms"], 1.0);
    assert_eq!(chunks.len(), 5);
}

#[tokio::test]
async fn usage_comes_in_a_chunk_of_its_own_and_is_null_before() {
    let server = Server::saying("Hey").await;
    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    for answer in [
        server.client.chat(&chat(fields.clone())).await,
        server.client.complete(&completion(fields)).await,
    ] {
        let chunks = answer.chunks();
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 4);
        assert_eq!(last["timings"]["prefill_ms"], 2.0);
        for chunk in others {
            assert_eq!(chunk.get("usage"), Some(&Value::Null));
            assert_eq!(chunk["choices"].as_array().unwrap().len(), 1);
            assert_eq!(chunk["id"], last["id"]);
        }
    }
}

#[tokio::test]
async fn continuous_usage_counts_along() {
    let server = Server::saying("Hey").await;
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let fields = json!({"stream": true, "stream_options": options});
    let chunks = server.client.chat(&chat(fields)).await.chunks();
    let counts: Vec<u64> =
        chunks.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 4]);
}

#[tokio::test]
async fn every_choice_has_a_role_chunk_and_a_finish_chunk() {
    let server = Server::start(Setup::default(), |request| {
        let letter = if request.sampling.seed == 5 { "aaa" } else { "bb" };
        say(letter)
    })
    .await;
    let chunks =
        server.client.chat(&chat(json!({"stream": true, "n": 3, "seed": 5}))).await.chunks();
    for index in 0..3 {
        let of_choice: Vec<&Value> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0])
            .filter(|c| c["index"] == index)
            .collect();
        assert_eq!(of_choice[0]["delta"]["role"], "assistant");
        assert_eq!(of_choice.last().unwrap()["finish_reason"], "stop");
        let finishes = of_choice.iter().filter(|choice| !choice["finish_reason"].is_null());
        assert_eq!(finishes.count(), 1);
    }
    assert_eq!((text_of(&chunks, 0), text_of(&chunks, 1)), ("aaa".to_owned(), "bb".to_owned()));
    let timed = chunks.iter().filter(|chunk| chunk.get("timings").is_some());
    assert_eq!(timed.count(), 1);
}

#[tokio::test]
async fn no_delta_splits_a_character_and_held_tokens_come_with_their_text() {
    let server = Server::saying("é😀!").await;
    let fields = json!({"stream": true, "logprobs": true, "return_token_ids": true});
    let chunks = server.client.chat(&chat(fields)).await.chunks();
    let prompt = &server.engine.requests()[0].prompt_token_ids;
    assert_eq!(chunks[0]["prompt_token_ids"], json!(prompt));
    let choices: Vec<&Value> = chunks[1..].iter().map(|chunk| &chunk["choices"][0]).collect();
    let texts: Vec<&str> = choices.iter().filter_map(|c| c["delta"]["content"].as_str()).collect();
    assert_eq!(texts, ["é", "😀", "!"]);
    let ids: Vec<&Value> = choices.iter().map(|choice| &choice["token_ids"]).collect();
    assert_eq!(ids, [&json!(bytes("é")), &json!(bytes("😀")), &json!(bytes("!")), &json!([EOS])]);
    let counts: Vec<usize> =
        choices.iter().map(|c| c["logprobs"]["content"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [2, 4, 1, 1]);
}

#[tokio::test]
async fn what_may_become_a_stop_string_is_held_back() {
    let server = Server::saying("a<en b<end> c").await;
    let fields = json!({"stream": true, "stop": ["<end>"], "logprobs": true});
    let chunks = server.client.chat(&chat(fields)).await.chunks();
    let texts: Vec<&str> = chunks[1..]
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(texts, ["a", "<en ", "b"]);
    let last = &chunks.last().unwrap()["choices"][0];
    assert_eq!((&last["finish_reason"], &last["stop_reason"]), (&json!("stop"), &json!("<end>")));
    let held = chunks[2]["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(held.len(), 4);
}

#[tokio::test]
async fn a_streamed_completion_echoes_first() {
    let server = Server::saying("yo").await;
    let body = completion(json!({"stream": true, "echo": true, "n": 2}));
    let chunks = server.client.complete(&body).await.chunks();
    assert_eq!(chunks[0]["choices"][0]["text"], "Hi");
    assert_eq!(chunks[0]["object"], "text_completion");
    assert_eq!((text_of(&chunks, 0), text_of(&chunks, 1)), ("Hiyo".to_owned(), "Hiyo".to_owned()));
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let setup = Setup { keep_alive: Duration::from_millis(40), ..Setup::default() };
    let server =
        Server::start(setup, |_| Script { delay: Duration::from_millis(150), ..say("ab") }).await;
    let answer = server.client.chat(&chat(json!({"stream": true}))).await;
    assert!(answer.text.matches(": keep-alive\n\n").count() >= 4, "{}", answer.text);
    assert_eq!(text_of(&answer.chunks(), 0), "ab");
}

#[tokio::test]
async fn an_error_after_the_beginning_is_a_frame() {
    let server = Server::start(Setup::default(), |_| Script {
        fail: Some((2, EngineError::StepFailed("nan in layer 3".to_owned()))),
        ..say("abcdef")
    })
    .await;
    let answer = server.client.chat(&chat(json!({"stream": true}))).await;
    let frames = answer.frames();
    let error = &frames[frames.len() - 2]["error"];
    assert_eq!((answer.status, &error["type"]), (200, &json!("server_error")));
    assert!(error["message"].as_str().unwrap().contains("nan in layer 3"));
    assert_eq!(frames.last().unwrap(), "[DONE]");
    let whole = server.client.chat(&chat(json!({}))).await;
    whole.error(500, "server_error", None);
}

#[tokio::test]
async fn an_error_before_the_first_token_is_a_status() {
    let server = Server::start(Setup::default(), |_| Script {
        fail: Some((0, EngineError::Rejected("512 blocks are needed, 64 exist".to_owned()))),
        ..say("abcdef")
    })
    .await;
    for stream in [false, true] {
        let answer = server.client.chat(&chat(json!({"stream": stream}))).await;
        let message = answer.error(400, "invalid_request_error", None);
        assert_eq!(message, "512 blocks are needed, 64 exist");
    }
}

#[tokio::test]
async fn tokens_arrive_while_the_answer_is_still_being_made() {
    let server = Server::start(Setup::default(), |_| endless("ab")).await;
    let mut socket =
        server.client.open("/v1/chat/completions", &chat(json!({"stream": true}))).await;
    let seen = read_until(&mut socket, "\"content\":\"b\"").await;
    assert!(seen.starts_with("HTTP/1.1 200"));
    assert!(!seen.contains("[DONE]"));
    let body = seen.split_once("\r\n\r\n").unwrap().1;
    assert!(frames(&body.replace("\r\n", "")).len() <= 64 || seen.len() < 65_536);
}
