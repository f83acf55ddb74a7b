//! `/v1/completions`: prompts in all shapes, echo, logprobs in columns.

use sconce::sampling::params::{BeamParams, EarlyStopping};
use serde_json::{Value, json};

use super::fake_engine::Script;
use super::fixture::{EOS, HELLO, Server, Setup, WORLD, bytes, completion, say};

/// Repeats the prompt's last token.
fn repeat_last(request: &sconce::engine::request::EngineRequest) -> Script {
    let last = *request.prompt_token_ids.last().unwrap();
    Script { tokens: vec![last; 2], ..Script::default() }
}

#[tokio::test]
async fn an_answer_has_the_shape_of_the_specification() {
    let server = Server::saying("yo").await;
    let answer = server.client.complete(&completion(json!({"seed": 9}))).await;
    let mut body = answer.json();
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"));
    body["timings"] = Value::Null;
    let expected = json!({
        "id": body["id"], "object": "text_completion", "created": body["created"], "model": "tiny",
        "system_fingerprint": "fp_test", "service_tier": "default",
        "choices": [{"index": 0, "text": "yo", "logprobs": null, "finish_reason": "stop",
            "stop_reason": null, "prompt_token_ids": null, "prompt_logprobs": null,
            "token_ids": null}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}},
        "timings": null, "seed": 9,
    });
    assert_eq!(body, expected);
    assert_eq!(server.engine.requests()[0].stop.max_tokens, 16);
    assert_eq!(server.engine.requests()[0].prompt_token_ids, bytes("Hi"));
}

#[tokio::test]
async fn all_four_shapes_of_prompts_are_answered_in_order() {
    let server = Server::start(Setup::default(), repeat_last).await;
    let texts = async |prompt: Value, n: usize| {
        let body = json!({"model": "tiny", "prompt": prompt, "n": n});
        let body = server.client.complete(&body).await.json();
        let choices = body["choices"].as_array().unwrap().clone();
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
        }
        choices.iter().map(|c| c["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(json!("xa"), 1).await, ["aa"]);
    assert_eq!(texts(json!(["xa", "xb"]), 2).await, ["aa", "aa", "bb", "bb"]);
    assert_eq!(texts(json!([97, 98]), 1).await, ["bb"]);
    assert_eq!(texts(json!([[97], [98, 99]]), 2).await, ["aa", "aa", "cc", "cc"]);
}

#[tokio::test]
async fn usage_counts_every_prompt_once() {
    let server = Server::start(Setup::default(), |_| Script { cached_tokens: 1, ..say("z") }).await;
    let body = json!({"model": "tiny", "prompt": ["ab", "cde"], "n": 3});
    let usage = server.client.complete(&body).await.json()["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(5), &json!(12)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

#[tokio::test]
async fn logprobs_stand_in_columns() {
    let server = Server::start(Setup::default(), |_| Script {
        tokens: vec![HELLO, WORLD, 0xc3, 0xa9, 33],
        ..Script::default()
    })
    .await;
    let body = server.client.complete(&completion(json!({"logprobs": 2}))).await.json();
    assert_eq!(body["choices"][0]["text"], "hello worldé!");
    let logprobs = &body["choices"][0]["logprobs"];
    assert_eq!(logprobs["text_offset"], json!([0, 5, 11, 12, 12, 13]));
    let tokens = logprobs["tokens"].as_array().unwrap();
    assert_eq!((&tokens[0], &tokens[4]), (&json!("hello"), &json!("!")));
    assert_eq!(logprobs["token_logprobs"], json!([-0.5, -0.5, -0.5, -0.5, -0.5, -0.5]));
    assert_eq!(logprobs["top_logprobs"][4], json!({"!": -0.5, "\"": -1.5}));
    let body = server.client.complete(&completion(json!({"logprobs": 0}))).await.json();
    assert_eq!(body["choices"][0]["logprobs"]["top_logprobs"][0], json!({"hello": -0.5}));
}

#[tokio::test]
async fn streamed_logprobs_have_the_same_offsets() {
    let server = Server::saying("aéb").await;
    let whole = server.client.complete(&completion(json!({"logprobs": 1}))).await.json();
    let streamed = completion(json!({"logprobs": 1, "stream": true}));
    let mut offsets = Vec::new();
    for chunk in server.client.complete(&streamed).await.chunks() {
        offsets.extend(chunk["choices"][0]["logprobs"]["text_offset"].as_array().unwrap().clone());
    }
    assert_eq!(Value::Array(offsets), whole["choices"][0]["logprobs"]["text_offset"]);
}

#[tokio::test]
async fn echo_puts_the_prompt_first() {
    let server = Server::saying("!").await;
    let text = async |prompt: Value| {
        let body = json!({"model": "tiny", "prompt": prompt, "echo": true});
        server.client.complete(&body).await.json()["choices"][0]["text"].clone()
    };
    assert_eq!(text(json!("Hi")).await, "Hi!");
    assert_eq!(text(json!([HELLO, EOS])).await, "hello<|endoftext|>!");
}

#[tokio::test]
async fn token_ids_come_per_choice() {
    let server = Server::start(Setup::default(), repeat_last).await;
    let body = json!({"model": "tiny", "prompt": [[97], [98]], "return_token_ids": true});
    let whole = server.client.complete(&body).await.json();
    let choice = &whole["choices"][1];
    assert_eq!(
        (&choice["prompt_token_ids"], &choice["token_ids"]),
        (&json!([98]), &json!([98, 98, EOS]))
    );
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let chunks = server.client.complete(&streamed).await.chunks();
    let of_choice = chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|c| c["index"] == 1);
    let of_choice: Vec<&Value> = of_choice.collect();
    assert_eq!(of_choice[0]["prompt_token_ids"], json!([98]));
    assert!(of_choice[1]["prompt_token_ids"].is_null());
    let ids: Vec<Value> =
        of_choice.iter().flat_map(|c| c["token_ids"].as_array().unwrap().clone()).collect();
    assert_eq!(Value::Array(ids), choice["token_ids"]);
}

#[tokio::test]
async fn an_echoed_prompt_has_logprobs_too() {
    let server = Server::saying("!").await;
    let body = completion(json!({"prompt": "aé", "echo": true, "logprobs": 2}));
    let whole = server.client.complete(&body).await.json();
    let logprobs = &whole["choices"][0]["logprobs"];
    assert_eq!(whole["choices"][0]["text"], "aé!");
    assert_eq!(logprobs["token_logprobs"], json!([null, -0.5, -0.5, -0.5, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 2, 3]));
    assert_eq!(logprobs["top_logprobs"][0], Value::Null);
    assert_eq!(logprobs["tokens"][0], "a");
    assert_eq!(server.engine.requests()[0].prompt_logprobs, Some(2));
    let streamed = completion(json!({"prompt": "aé", "echo": true, "logprobs": 2, "stream": true}));
    let chunks = server.client.complete(&streamed).await.chunks();
    assert_eq!(chunks[0]["choices"][0]["text"], "aé!");
    let mut columns = json!({});
    for chunk in &chunks {
        for (name, column) in chunk["choices"][0]["logprobs"].as_object().unwrap() {
            let known = columns.as_object_mut().unwrap().entry(name).or_insert(json!([]));
            known.as_array_mut().unwrap().extend(column.as_array().unwrap().clone());
        }
    }
    assert_eq!(&columns, logprobs);
}

#[tokio::test]
async fn prompt_logprobs_name_each_token_and_its_rivals() {
    let server = Server::saying("!").await;
    let body = completion(json!({"prompt": ["ab", "c"], "prompt_logprobs": 1}));
    let whole = server.client.complete(&body).await.json();
    let expected = json!([null,
        {"98": {"logprob": -0.5, "rank": 1, "decoded_token": "b"}}]);
    assert_eq!(whole["choices"][0]["prompt_logprobs"], expected);
    assert_eq!(whole["choices"][1]["prompt_logprobs"], json!([null]));
    assert_eq!(whole["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn best_of_gives_the_likeliest_answers_best_first() {
    let server = Server::start(Setup::default(), |request| {
        // Each copy has a seed of its own.
        let likely = request.sampling.seed % 7;
        let text = format!("{likely}");
        Script { logprob: Some(f32::from(u8::try_from(likely).unwrap()) - 9.0), ..say(&text) }
    })
    .await;
    let body = completion(json!({"n": 2, "best_of": 5, "seed": 3}));
    let whole = server.client.complete(&body).await.json();
    let mut said: Vec<u64> =
        server.engine.requests().iter().map(|request| request.sampling.seed % 7).collect();
    said.sort_unstable();
    let texts: Vec<_> = (0..2).map(|i| whole["choices"][i]["text"].clone()).collect();
    assert_eq!(texts, [json!(said[4].to_string()), json!(said[3].to_string())]);
    assert_eq!(whole["choices"][2], Value::Null);
    assert_eq!(whole["choices"][0]["logprobs"], Value::Null);
    assert_eq!(whole["usage"]["completion_tokens"], 10);
    for fields in [json!({"n": 3, "best_of": 2}), json!({"best_of": 2, "stream": true})] {
        let answer = server.client.complete(&completion(fields)).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["param"].clone()),
            (400, json!("best_of"))
        );
    }
}

#[tokio::test]
async fn a_beam_search_is_one_request_whose_answers_are_the_choices() {
    let server = Server::saying("ab").await;
    let body = completion(json!({"prompt": ["x", "yz"], "n": 2, "beam_width": 5, "logprobs": 1,
        "use_beam_search": true, "length_penalty": 0.5, "early_stopping": "never",
        "temperature": 0}));
    let whole = server.client.complete(&body).await.json();
    let texts: Vec<_> = (0..4).map(|i| whole["choices"][i]["text"].clone()).collect();
    assert_eq!(texts, ["ab", "ab", "ab", "ab"]);
    assert_eq!(whole["usage"]["prompt_tokens"], 3);
    let searches = server.engine.searches();
    assert_eq!(searches.len(), 2);
    let beams = BeamParams {
        width: 5,
        answers: 2,
        length_penalty: 0.5,
        early_stopping: EarlyStopping::Never,
    };
    assert!(searches.iter().all(|search| search.beams == beams));
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let events = server.client.complete(&streamed).await.chunks();
    let text = |event: &Value| event["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!(events.iter().map(text).collect::<String>().len(), 8);
}

#[tokio::test]
async fn best_of_is_the_width_of_a_search() {
    let server = Server::saying("a").await;
    let body = json!({"use_beam_search": true, "best_of": 3});
    assert_eq!(server.client.complete(&completion(body)).await.status, 200);
    let BeamParams { width, answers, length_penalty, early_stopping } =
        server.engine.searches()[0].beams;
    assert_eq!((width, answers, early_stopping), (3, 1, EarlyStopping::Estimated));
    assert!((length_penalty - 1.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn what_has_no_place_beside_a_beam_search_is_refused() {
    let server = Server::saying("a").await;
    let search = |fields: Value| {
        let mut body = json!({"use_beam_search": true, "n": 2});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    for (body, param) in [
        (json!({"beam_width": 2}), "beam_width"),
        (json!({"length_penalty": 2}), "length_penalty"),
        (json!({"early_stopping": true}), "early_stopping"),
        (search(json!({"early_stopping": "sometimes"})), "early_stopping"),
        (search(json!({"length_penalty": 11})), "length_penalty"),
        (search(json!({"beam_width": 1})), "beam_width"),
        (search(json!({"beam_width": 129})), "beam_width"),
        (search(json!({"beam_width": 4, "best_of": 3})), "best_of"),
        (search(json!({"temperature": 0.5})), "temperature"),
        (search(json!({"top_p": 0.5})), "top_p"),
        (search(json!({"top_k": 5})), "top_k"),
        (search(json!({"min_p": 0.5})), "min_p"),
        (search(json!({"prompt_logprobs": 1})), "prompt_logprobs"),
        (search(json!({"echo": true, "logprobs": 1})), "echo"),
    ] {
        let answer = server.client.complete(&completion(body)).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].clone()), (400, json!(param)));
    }
    let neutral = json!({"use_beam_search": false, "beam_width": 1, "length_penalty": 1.0,
        "early_stopping": false});
    assert_eq!(server.client.complete(&completion(neutral)).await.status, 200);
}
