//! `/v1/chat/completions` without streaming: shapes, and what the engine is asked.

use std::time::Duration;

use sconce::http::state::GenerationDefaults;
use serde_json::{Value, json};

use super::fake_engine::Script;
use super::fixture::{
    CONTEXT, EOS, HELLO, IM_END, Server, Setup, VOCAB, WORLD, bytes, chat, endless, say, tokenizer,
};

#[tokio::test]
async fn an_answer_has_the_shape_of_the_specification() {
    let server =
        Server::start(Setup::default(), |_| Script { cached_tokens: 5, ..say("Hello") }).await;
    let answer = server.client.chat(&chat(json!({"seed": 7}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut body = answer.json();
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(body["created"].as_u64().unwrap() > 1_700_000_000);
    let timings = body["timings"].take();
    assert_eq!(timings["queue_ms"], 1.0);
    assert_eq!(timings["prefill_ms"], 2.0);
    assert_eq!(timings["decode_ms"], 4.0);
    assert_eq!(timings["tokens_per_second"], 1250.0);
    let prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    let prompt_tokens = tokenizer().encode(prompt, false).unwrap().len();
    let expected = json!({
        "id": body["id"], "object": "chat.completion", "created": body["created"],
        "model": "tiny", "system_fingerprint": "fp_test", "service_tier": "default",
        "choices": [{
            "index": 0, "token_ids": null,
            "message": {"role": "assistant", "content": "Hello", "refusal": null,
                "reasoning": null, "reasoning_content": null},
            "logprobs": null, "finish_reason": "stop", "stop_reason": null,
        }],
        "usage": {
            "prompt_tokens": prompt_tokens, "completion_tokens": 6,
            "total_tokens": prompt_tokens + 6,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
        },
        "timings": null, "seed": 7, "prompt_token_ids": null, "prompt_logprobs": null,
    });
    assert_eq!(body, expected);
    let asked = &server.engine.requests()[0];
    assert_eq!(asked.prompt_token_ids, tokenizer().encode(prompt, false).unwrap());
    assert_eq!(&asked.stop.eos_token_ids[..], [EOS, IM_END]);
    assert_eq!(asked.stop.max_tokens, CONTEXT - prompt_tokens);
    assert_eq!(asked.sampling.seed, 7);
}

#[tokio::test]
async fn every_sampling_field_reaches_the_engine() {
    let server = Server::saying("x").await;
    let fields = json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1,
        "frequency_penalty": -1.5, "presence_penalty": 2, "logit_bias": {"7": -100, "3": 2.5},
        "seed": -3, "max_completion_tokens": 9, "min_tokens": 1, "stop_token_ids": [5],
        "ignore_eos": true, "logprobs": true, "top_logprobs": 4, "priority": -2,
        "cache_salt": "tenant",
    });
    assert_eq!(server.client.chat(&chat(fields)).await.status, 200);
    let asked = &server.engine.requests()[0];
    let sampling = &asked.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (0.5, 0.9, 40));
    assert_eq!((sampling.min_p, sampling.repetition_penalty), (0.1, 1.1));
    assert_eq!((sampling.frequency_penalty, sampling.presence_penalty), (-1.5, 2.0));
    assert_eq!(sampling.logit_bias, [(3, 2.5), (7, -100.0)]);
    assert_eq!((sampling.seed, sampling.logprobs), ((-3i64).cast_unsigned(), Some(4)));
    assert_eq!((asked.stop.max_tokens, asked.stop.min_tokens), (9, 1));
    assert_eq!((&asked.stop.stop_token_ids[..], asked.stop.ignore_eos), (&[5][..], true));
    assert_eq!((asked.priority, asked.cache_salt.as_deref()), (-2, Some("tenant")));
}

#[tokio::test]
async fn repetitions_are_cut_at_the_tokens_of_texts() {
    let server = Server::saying("x").await;
    let body = json!({"dry_multiplier": 0.8, "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["o w", "!"]});
    for _ in 0..2 {
        assert_eq!(server.client.chat(&chat(body.clone())).await.status, 200);
    }
    assert_eq!(server.client.chat(&chat(json!({"dry_multiplier": 0}))).await.status, 200);
    let seen: Vec<_> =
        server.engine.requests().into_iter().map(|request| request.sampling.dry).collect();
    let dry = seen[0].as_ref().unwrap();
    assert!((dry.multiplier - 0.8).abs() < 1e-6 && (dry.base - 1.75).abs() < 1e-6);
    assert_eq!((dry.allowed_length, dry.last_n), (2, Some(64)));
    let o_w = vec![vec![u32::from(b' '), u32::from(b'w')]];
    let expected = [(u32::from(b'o'), o_w.clone()), (HELLO, o_w), (u32::from(b'!'), vec![vec![]])];
    assert_eq!(*dry.breakers, std::collections::HashMap::from(expected));
    assert_eq!((&seen[1], &seen[2]), (&seen[0], &None));
}

#[tokio::test]
async fn defaults_come_from_the_model_and_requests_overrule_them() {
    let defaults = GenerationDefaults {
        temperature: Some(0.6),
        top_p: Some(0.95),
        top_k: Some(20),
        min_p: None,
        repetition_penalty: Some(1.05),
    };
    let server = Server::start(Setup { defaults, ..Setup::default() }, |_| say("x")).await;
    server.client.chat(&chat(json!({"top_k": null}))).await;
    server.client.chat(&chat(json!({"temperature": 1e-6, "top_p": 1, "top_k": -1}))).await;
    let [first, second] = &server.engine.requests()[..] else { panic!() };
    assert_eq!((first.sampling.temperature, first.sampling.top_p), (0.6, 0.95));
    assert_eq!((first.sampling.top_k, first.sampling.repetition_penalty), (20, 1.05));
    assert_eq!((second.sampling.temperature, second.sampling.top_p), (0.0, 1.0));
    assert_eq!(second.sampling.top_k, 0);
}

#[tokio::test]
async fn choices_of_one_request_draw_from_different_seeds() {
    let server =
        Server::start(Setup::default(), |request| say(&format!("seed {}", request.sampling.seed)))
            .await;
    let body = server.client.chat(&chat(json!({"n": 3, "seed": 11}))).await.json();
    let again = server.client.chat(&chat(json!({"n": 3, "seed": 11}))).await.json();
    let contents = |body: &Value| -> Vec<String> {
        let choices = body["choices"].as_array().unwrap();
        choices.iter().map(|choice| choice["message"]["content"].to_string()).collect()
    };
    assert_eq!(contents(&body)[0], "\"seed 11\"");
    assert_eq!(contents(&body), contents(&again));
    let seeds: std::collections::HashSet<u64> =
        server.engine.requests().iter().map(|request| request.sampling.seed).collect();
    assert_eq!(seeds.len(), 3);
    let prompt_tokens = server.engine.requests()[0].prompt_token_ids.len();
    assert_eq!(body["usage"]["prompt_tokens"], prompt_tokens);
    for (index, choice) in body["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["index"], index);
    }
}

#[tokio::test]
async fn a_drawn_seed_is_reported_and_gives_the_same_draw_again() {
    let server = Server::saying("x").await;
    let seed = server.client.chat(&chat(json!({}))).await.json()["seed"].as_i64().unwrap();
    let other = server.client.chat(&chat(json!({}))).await.json()["seed"].as_i64().unwrap();
    assert_ne!(seed, other);
    assert_eq!(server.engine.requests()[0].sampling.seed, seed.cast_unsigned());
}

#[tokio::test]
async fn the_end_is_told_by_finish_and_stop_reason() {
    let server = Server::start(Setup::default(), |_| endless("abcdef")).await;
    let run = async |fields: Value| {
        let body = server.client.chat(&chat(fields)).await.json();
        let choice = body["choices"][0].clone();
        (
            choice["message"]["content"].as_str().unwrap().to_owned(),
            choice["finish_reason"].as_str().unwrap().to_owned(),
            choice["stop_reason"].clone(),
            body["usage"]["completion_tokens"].as_u64().unwrap(),
        )
    };
    let ended = |text: &str, reason: &str, by: Value, tokens| {
        (text.to_owned(), reason.to_owned(), by, tokens)
    };
    assert_eq!(run(json!({"max_tokens": 3})).await, ended("abc", "length", Value::Null, 3));
    assert_eq!(run(json!({"stop": "cd"})).await, ended("ab", "stop", json!("cd"), 4));
    let included = json!({"stop": ["xx", "cd"], "include_stop_str_in_output": true});
    assert_eq!(run(included).await, ended("abcd", "stop", json!("cd"), 4));
    let token = u32::from(b'c');
    let by_token = json!({"stop_token_ids": [token]});
    assert_eq!(run(by_token).await, ended("ab", "stop", json!(token), 3));
    let kept = json!({"stop_token_ids": [token], "include_stop_str_in_output": true});
    assert_eq!(run(kept).await, ended("abc", "stop", json!(token), 3));
    // The engine is told to forget what a stop string ended, and nothing else.
    server.engine.wait_for_aborts(2).await;
    assert_eq!(server.engine.aborts().len(), 2);
}

#[tokio::test]
async fn a_partial_stop_string_at_the_end_is_part_of_the_answer() {
    let server = Server::saying("one tw").await;
    let body = server.client.chat(&chat(json!({"stop": "two"}))).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "one tw");
    assert_eq!(body["choices"][0]["stop_reason"], Value::Null);
}

#[tokio::test]
async fn special_tokens_show_only_when_asked_for() {
    let server = Server::start(Setup::default(), |_| {
        let mut script = say("a");
        script.tokens.extend([IM_END, u32::from(b'b')]);
        script
    })
    .await;
    let content = async |fields: Value| {
        let body = server.client.chat(&chat(fields)).await.json();
        body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(content(json!({})).await, "a");
    let shown = json!({"skip_special_tokens": false, "ignore_eos": true, "max_tokens": 4});
    assert_eq!(content(shown).await, "a<|im_end|>b<|endoftext|>");
    // The token that ends an answer isn't part of it.
    assert_eq!(content(json!({"skip_special_tokens": false})).await, "a");
}

#[tokio::test]
async fn logprobs_name_tokens_bytes_and_alternatives() {
    let server = Server::start(Setup::default(), |_| Script {
        tokens: vec![HELLO, 0xc3, 0xa9],
        ..Script::default()
    })
    .await;
    let fields = json!({"logprobs": true, "top_logprobs": 2});
    let body = server.client.chat(&chat(fields)).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "helloé");
    let logprobs = &body["choices"][0]["logprobs"];
    assert_eq!(logprobs["refusal"], Value::Null);
    let content = logprobs["content"].as_array().unwrap();
    assert_eq!(content.len(), 4);
    assert_eq!((&content[0]["token"], &content[0]["logprob"]), (&json!("hello"), &json!(-0.5)));
    assert_eq!(content[0]["bytes"], json!(b"hello"));
    assert_eq!(content[1]["bytes"], json!([0xc3]));
    assert_eq!(content[2]["bytes"], json!([0xa9]));
    assert_eq!(content[3]["token"], "<|endoftext|>");
    let expected = json!({"token": "\u{fffd}", "logprob": -1.5, "bytes": [0xc4]});
    assert_eq!(content[1]["top_logprobs"][1], expected);
    assert_eq!(content[1]["top_logprobs"].as_array().unwrap().len(), 2);
    let body = server.client.chat(&chat(json!({"logprobs": true}))).await.json();
    assert_eq!(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([]));
}

#[tokio::test]
async fn token_ids_come_when_asked_for() {
    let server = Server::start(Setup::default(), |_| Script {
        tokens: vec![HELLO, WORLD],
        ..Script::default()
    })
    .await;
    let fields = json!({"return_token_ids": true, "return_tokens_as_token_ids": true,
        "logprobs": true});
    let body = server.client.chat(&chat(fields)).await.json();
    assert_eq!(body["choices"][0]["token_ids"], json!([HELLO, WORLD, EOS]));
    let prompt = &server.engine.requests()[0].prompt_token_ids;
    assert_eq!(body["prompt_token_ids"], json!(prompt));
    let first = &body["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["token"], format!("token_id:{HELLO}"));
    assert_eq!(first["bytes"], json!(b"hello"));
}

#[tokio::test]
async fn all_kinds_of_messages_are_rendered() {
    let server = Server::saying("x").await;
    let messages = json!([
        {"role": "developer", "content": "be nice"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            "name": "eve"},
        {"role": "assistant", "content": null, "refusal": null, "tool_calls": [{"id": "call_1",
            "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        {"role": "assistant", "content": "done", "reasoning_content": "hm", "annotations": []},
        {"role": "user", "content": "go"},
    ]);
    let body = json!({"model": "tiny", "messages": messages});
    let answer = server.client.post("/v1/chat/completions/render", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let expected = "<|im_start|>system\nbe nice<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n\
        <|im_start|>assistant\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\
        <|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\ndone<|im_end|>\n\
        <|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n";
    let rendered = answer.json();
    assert_eq!(rendered["prompt"], expected);
    let ids = tokenizer().encode(expected, false).unwrap();
    assert_eq!(
        (&rendered["prompt_token_ids"], &rendered["count"]),
        (&json!(ids), &json!(ids.len()))
    );
    assert_eq!(answer.header("x-sconce-ignored"), Some("messages[4].annotations"));
    assert!(server.engine.requests().is_empty());
}

#[tokio::test]
async fn the_last_message_can_be_continued() {
    let server = Server::saying("x").await;
    let fields = json!({"continue_final_message": true, "messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "content": "The answer is"}]});
    let prompt = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer is";
    let answer = server.client.chat(&chat(fields)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(
        server.engine.requests()[0].prompt_token_ids,
        tokenizer().encode(prompt, false).unwrap()
    );
    let both = json!({"continue_final_message": true, "add_generation_prompt": true});
    let answer = server.client.chat(&chat(both)).await;
    answer.error(400, "invalid_request_error", Some("continue_final_message"));
}

#[tokio::test]
async fn template_variables_reach_the_template() {
    let server = Server::saying("x").await;
    let fields = chat(json!({"chat_template_kwargs": {"enable_thinking": "no"}}));
    let body = server.client.post("/v1/chat/completions/render", &fields).await.json();
    assert!(body["prompt"].as_str().unwrap().ends_with("assistant\n<think>no"));
    let bare = chat(json!({"add_generation_prompt": false}));
    let body = server.client.post("/v1/chat/completions/render", &bare).await.json();
    assert!(body["prompt"].as_str().unwrap().ends_with("Hi<|im_end|>\n"));
}

#[tokio::test]
async fn a_request_brings_its_template_where_it_is_trusted() {
    let body =
        chat(json!({"chat_template": "{% for m in messages %}<{{ m.content }}>{% endfor %}"}));
    let server = Server::saying("x").await;
    let refusal =
        server.client.chat(&body).await.error(400, "invalid_request_error", Some("chat_template"));
    assert!(refusal.contains("--trust-request-chat-template"), "{refusal}");
    let mut setup = Setup { template: None, ..Setup::default() };
    setup.config.trust_request_chat_template = true;
    let server = Server::start(setup, |_| say("x")).await;
    let rendered = server.client.post("/v1/chat/completions/render", &body).await;
    assert_eq!(rendered.json()["prompt"], "<Hi>");
    assert_eq!(server.client.chat(&body).await.status, 200);
    for (template, complaint) in [
        ("{% for m in messages %}".to_owned(), "line 1"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".into(),
            "line",
        ),
        ("{{ 'x' * 999999999 }}".to_owned(), "text"),
        ("x".repeat(300_000), "at most 262144"),
    ] {
        let body = chat(json!({"chat_template": template}));
        let answer = server.client.post("/v1/chat/completions/render", &body).await;
        assert_eq!(answer.status, 400);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(complaint), "{message}");
    }
}

#[tokio::test]
async fn max_tokens_is_clamped_when_configured() {
    let mut setup = Setup::default();
    setup.config.clamp_max_tokens = true;
    let server = Server::start(setup, |_| say("x")).await;
    let answer = server.client.chat(&chat(json!({"max_tokens": 100_000}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = &server.engine.requests()[0];
    assert_eq!(asked.stop.max_tokens, CONTEXT - asked.prompt_token_ids.len());
}

#[tokio::test]
async fn a_deadline_cuts_a_running_answer_short() {
    let server = Server::start(Setup::default(), |_| Script {
        delay: Duration::from_millis(5),
        ..endless("ab")
    })
    .await;
    let body = server.client.chat(&chat(json!({"deadline_ms": 200}))).await.json();
    let choice = &body["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["stop_reason"]),
        (&json!("length"), &json!("deadline"))
    );
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(content.starts_with("ab") && content.len() < CONTEXT / 2, "{content}");
    assert_eq!(body["usage"]["completion_tokens"], content.len());
    server.engine.wait_for_aborts(1).await;
}

#[tokio::test]
async fn a_request_that_never_starts_exceeds_its_deadline() {
    let server =
        Server::start(Setup::default(), |_| Script { stuck: true, ..Script::default() }).await;
    let answer = server.client.chat(&chat(json!({"deadline_ms": 100}))).await;
    answer.error(408, "deadline_exceeded", None);
    let header = [("x-sconce-deadline-ms", "100")];
    for stream in [false, true] {
        let body = chat(json!({"stream": stream}));
        let answer = server.client.post_with("/v1/chat/completions", &body, &header).await;
        answer.error(408, "deadline_exceeded", None);
    }
    server.engine.wait_for_aborts(3).await;
    // Wrong even where the body says something else.
    for value in ["0", "86400001", "soon"] {
        let header = [("x-sconce-deadline-ms", value)];
        let body = chat(json!({"deadline_ms": 100}));
        let answer = server.client.post_with("/v1/chat/completions", &body, &header).await;
        answer.error(400, "invalid_request_error", Some("x-sconce-deadline-ms"));
    }
}

#[tokio::test]
async fn a_temperature_of_zero_is_greedy_and_top_k_of_everything_is_off() {
    let server = Server::saying("x").await;
    server.client.chat(&chat(json!({"temperature": 0, "top_k": VOCAB}))).await;
    let asked = &server.engine.requests()[0];
    assert_eq!((asked.sampling.temperature, asked.sampling.top_k), (0.0, 0));
    assert_eq!(bytes("x"), [120]);
}

#[tokio::test]
async fn only_allowed_tokens_are_asked_for() {
    let server = Server::saying("x").await;
    let answer = server.client.chat(&chat(json!({"allowed_token_ids": [9, 3, 3]}))).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None));
    let asked = server.engine.requests()[0].sampling.allowed_token_ids.clone();
    assert_eq!(asked.as_deref(), Some(&[3, 3, 9][..]));
    for (ids, words) in [(json!([]), "at least one"), (json!([99_999]), "99999")] {
        let answer = server.client.chat(&chat(json!({"allowed_token_ids": ids}))).await;
        let message = answer.error(400, "invalid_request_error", Some("allowed_token_ids"));
        assert!(message.contains(words), "{message}");
    }
    // Nothing could be drawn before the answer may end.
    for fields in [
        json!({"allowed_token_ids": [EOS], "min_tokens": 2}),
        json!({"allowed_token_ids": [7], "stop_token_ids": [7], "min_tokens": 1}),
    ] {
        let answer = server.client.chat(&chat(fields)).await;
        answer.error(400, "invalid_request_error", Some("allowed_token_ids"));
    }
    let fields = json!({"allowed_token_ids": [65], "response_format": {"type": "json_object"}});
    let answer = server.client.chat(&chat(fields)).await;
    answer.error(400, "invalid_request_error", Some("allowed_token_ids"));
    let fields = json!({"allowed_token_ids": [EOS], "min_tokens": 2, "ignore_eos": true});
    assert_eq!(server.client.chat(&chat(fields)).await.status, 200);
}

#[tokio::test]
async fn the_server_has_variables_for_templates_and_requests_have_stronger_ones() {
    let mut setup = Setup::default();
    setup.config.chat_template_kwargs =
        serde_json::from_value(json!({"enable_thinking": "server"})).unwrap();
    let server = Server::start(setup, |_| say("x")).await;
    for (fields, expected) in [
        (json!({}), "<think>server"),
        (json!({"chat_template_kwargs": {"enable_thinking": "own"}}), "<think>own"),
        (json!({"enable_thinking": false}), "<think>False"),
    ] {
        let path = "/v1/chat/completions/render";
        let rendered = server.client.post(path, &chat(fields)).await.json();
        assert!(rendered["prompt"].as_str().unwrap().ends_with(expected), "{rendered}");
    }
}
