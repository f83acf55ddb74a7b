//! `/v1/decisions` and `/v1/systemone`: what is asked of the engine, both shapes of answers, and
//! bounds.

use sconce::engine::request::EngineRequest;
use serde_json::{Value, json};

use super::client::Answer;
use super::contracts::Contract;
use super::fake_engine::{Script, listed_logprob};
use super::fixture::{CONTEXT, Server, Setup, bytes, say, tokenizer};

/// Tells whether it was asked to reason.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{{ enable_thinking }}{% endif %}";

const DECISIONS: &str = "/v1/decisions";
const SYSTEM_ONE: &str = "/v1/systemone";
const BAD: &str = "invalid_request_error";

fn roomy() -> Setup {
    Setup { template: Some(TEMPLATE), ..super::messages::roomy() }
}

/// A question of every type.
fn questions() -> Value {
    json!([
        {"type": "predicate", "name": "urgent", "instructions": "Is it urgent?"},
        {"type": "choice", "name": "team", "instructions": "Who should help?", "choices": [
            {"value": "billing", "description": "Payments"}, {"value": true}, {"value": "true"}]},
        {"type": "score", "instructions": "How angry?", "levels": [
            {"label": "calm"}, {"label": "angry", "description": "Threatens"}]},
    ])
}

fn request(fields: Value) -> Value {
    with(json!({"model": "tiny", "input": "Help!", "questions": questions()}), fields)
}

fn with(mut body: Value, fields: Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn decide(server: &Server, fields: Value) -> Answer {
    server.client.post(DECISIONS, &request(fields)).await
}

fn prompts(server: &Server) -> Vec<String> {
    let requests = server.engine.requests();
    requests.iter().map(|one| tokenizer().decode(&one.prompt_token_ids, false)).collect()
}

/// The softmax of the logprobs that the engine of these tests gives tokens.
fn softmax(labels: &str) -> Vec<f64> {
    let weights = labels.bytes().map(|byte| f64::from(listed_logprob(byte.into())).exp());
    let weights: Vec<f64> = weights.collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap_or_else(|| panic!("{value}"));
    assert!((value - expected).abs() < 1e-12, "{value} for {expected}");
}

#[tokio::test]
async fn answers_are_the_softmax_of_labels() {
    let server = Server::start(roomy(), |_| say("Y")).await;
    let answer = decide(&server, json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = answer.json();
    Contract::own(&server.client).await.check(&body, "Decision");
    let answers = body["answers"].as_array().unwrap();
    let names: Vec<&Value> = answers.iter().map(|answer| &answer["name"]).collect();
    assert_eq!(names, [&json!("urgent"), &json!("team"), &Value::Null]);
    // Every byte is a token here, and yes is none.
    close(&answers[0]["probability"], softmax("YN")[0]);
    let team = softmax("ABC");
    let best = (0..3).max_by(|a, b| team[*a].total_cmp(&team[*b])).unwrap();
    assert_eq!(answers[1]["choice"], [json!("billing"), json!(true), json!("true")][best]);
    close(&answers[1]["confidence"], (3.0 * team[best] - 1.0) / 2.0);
    for (at, value) in [json!("billing"), json!(true), json!("true")].iter().enumerate() {
        assert_eq!(&answers[1]["probabilities"][at]["value"], value);
        close(&answers[1]["probabilities"][at]["probability"], team[at]);
    }
    let levels = softmax("01");
    close(&answers[2]["score"], levels[1]);
    assert_eq!(answers[2]["probabilities"][1]["label"], "angry");
    assert_eq!(answers[2]["probabilities"][1]["value"], 1);
    let mass: f64 = "01".bytes().map(|b| f64::from(listed_logprob(b.into())).exp()).sum();
    close(&answers[2]["label_mass"], mass);
}

#[tokio::test]
async fn every_question_is_a_prompt_behind_the_input() {
    let server = Server::start(roomy(), |_| say("Y")).await;
    decide(&server, json!({})).await;
    let asked = [
        "Answer with Y or N only.\nQuestion: Is it urgent?",
        "Answer with the label of one of the answers only.\nQuestion: Who should help?\nA: billing - \
         Payments\nB: true\nC: true",
        "Answer with the number of one of the levels only.\nQuestion: How angry?\n0: calm\n1: angry - \
         Threatens",
    ];
    let expected = asked.map(|question| {
        format!("<|im_start|>user\nHelp!\n\n{question}<|im_end|>\n<|im_start|>assistant\nFalse")
    });
    assert_eq!(prompts(&server), expected);
    for request in server.engine.requests() {
        assert_eq!((request.stop.max_tokens, request.sampling.logprobs), (1, Some(0)));
    }
}

#[tokio::test]
async fn a_conversation_can_be_the_input() {
    let server = Server::start(roomy(), |_| say("Y")).await;
    let input = json!([
        {"role": "developer", "content": "Be strict."},
        {"role": "user", "content": [{"type": "input_text", "text": "Look:"},
            {"type": "input_json", "data": {"b": 1, "a": [2.5]}}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
    ]);
    let question = json!([{"type": "predicate", "instructions": [
        {"type": "input_text", "text": "Like this?"}, {"type": "input_json", "data": [{"x": 1}]}]}]);
    let answer = decide(&server, json!({"input": input, "questions": question})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let prompt = prompts(&server).remove(0);
    assert!(
        prompt.contains("<|im_start|>user\nLook:\n{\"b\":1,\"a\":[2.5]}<|im_end|>"),
        "{prompt}"
    );
    assert!(
        prompt.contains(
            "assistant\nWell.<|im_end|>\n<|im_start|>user\nAnswer with Y or N only.\nQuestion: Like \
             this?\n[{\"x\":1}]"
        ),
        "{prompt}"
    );
}

#[tokio::test]
async fn the_input_counts_once() {
    let cached = |request: &EngineRequest| Script {
        tokens: bytes("Y"),
        // Of the first only what was there before; of the others what it left.
        cached_tokens: if tokenizer().decode(&request.prompt_token_ids, false).contains("urgent") {
            32
        } else {
            64
        },
        ..Script::default()
    };
    let server = Server::start(roomy(), cached).await;
    let usage = decide(&server, json!({})).await.json()["usage"].clone();
    let lengths: Vec<usize> =
        server.engine.requests().iter().map(|one| one.prompt_token_ids.len()).collect();
    let shared = "<|im_start|>user\nHelp!\n\nAnswer with ".len() - "<|im_start|>".len() + 1;
    let own: usize = lengths.iter().map(|length| length - shared).sum();
    let expected = json!({
        "input_tokens": shared + own,
        "input_tokens_details": {"cached_tokens": 32, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": shared + own,
    });
    assert_eq!(usage, expected);
}

#[tokio::test]
async fn system_one_has_a_shape_of_its_own() {
    let server = Server::start(roomy(), |_| say("N")).await;
    let body = json!({"model": "tiny", "state": {"ticket": "Help!"}, "instructions": "Be strict.",
    "keep_alive": "5m", "questions": {
        "urgent": {"type": "noul", "instructions": "Is it urgent?", "criteria": {"true": "now"}},
        "team": {"type": "choice", "instructions": "Who?", "criteria": {"billing": "Payments", "other": null}},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]},
    }});
    let answer = server.client.post(SYSTEM_ONE, &body).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("keep_alive"));
    let answer = answer.json();
    Contract::own(&server.client).await.check(&answer, "SystemOneDecision");
    let (yes, team, levels) = (softmax("YN"), softmax("AB"), softmax("01"));
    close(&answer["answers"]["urgent"]["noul"], yes[0]);
    close(&answer["answers"]["urgent"]["probabilities"]["no"], yes[1]);
    close(&answer["answers"]["team"]["probabilities"]["other"], team[1]);
    close(&answer["answers"]["anger"]["score"], levels[1]);
    assert_eq!(answer["answers"]["anger"]["legend"], json!({"0": "calm", "1": "angry"}));
    let mass = answer["diagnostics"]["urgent"]["label_mass"].as_f64().unwrap();
    close(&answer["answers"]["urgent"]["confidence"], mass * yes[0].max(yes[1]));
    assert_eq!(answer["diagnostics"]["urgent"]["argmax_is_label"], true);
    assert_eq!(answer["diagnostics"]["team"]["argmax_is_label"], false);
    let tokens: usize = server.engine.requests().iter().map(|one| one.prompt_token_ids.len()).sum();
    assert_eq!(answer["usage"], json!({"input_tokens": tokens, "output_tokens": 3}));
    let prompt = prompts(&server).remove(0);
    assert!(prompt.starts_with("<|im_start|>system\nBe strict.<|im_end|>\n<|im_start|>user\n{\"ticket\":\"Help!\"}\n\nAnswer with Y or N only.\nQuestion: Is it urgent?\nY: now<|im_end|>"), "{prompt}");
}

#[tokio::test]
async fn bounds_are_told() {
    let server = Server::start(roomy(), |_| say("Y")).await;
    let choices = |count: usize| {
        let choices: Vec<Value> = (0..count).map(|at| json!({"value": at.to_string()})).collect();
        json!({"questions": [{"type": "choice", "instructions": "x", "choices": choices}]})
    };
    let levels: Vec<Value> = (0..11).map(|at| json!({"label": at.to_string()})).collect();
    let predicate = json!({"type": "predicate", "instructions": "x"});
    for (fields, param, words) in [
        (json!({"input": ""}), "input", "must not be empty"),
        (json!({"input": null}), "input", "required"),
        (json!({"questions": []}), "questions", "1 to 400 questions, got 0"),
        (json!({"questions": vec![predicate; 401]}), "questions", "got 401"),
        (choices(1), "questions[0].choices", "2 to 255 answers, got 1"),
        (choices(256), "questions[0].choices", "got 256"),
        (choices(27), "questions[0]", "tokens for 26 answers"),
        (
            json!({"questions": [{"type": "choice", "instructions": "x",
            "choices": [{"value": "a"}, {"value": "a"}]}]}),
            "questions[0].choices",
            "already",
        ),
        (
            json!({"questions": [{"type": "score", "instructions": "x", "levels": levels}]}),
            "questions[0].levels",
            "2 to 10 answers, got 11",
        ),
        (
            json!({"questions": [{"type": "guess", "instructions": "x"}]}),
            "questions[0].type",
            "predicate, choice, score",
        ),
        (json!({"questions": [{"type": "predicate"}]}), "questions[0].instructions", "required"),
        (
            json!({"questions": [{"type": "predicate", "instructions": 3}]}),
            "questions[0].instructions",
            "string",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
            "input[0].content[0].type",
            "input_image",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_json", "data": 3}]}]}),
            "input[0].content[0].data",
            "object",
        ),
        (
            json!({"chat_template_kwargs": {"enable_thinking": true}}),
            "chat_template_kwargs.enable_thinking",
            "false",
        ),
    ] {
        let message = decide(&server, fields).await.error(400, BAD, Some(param));
        assert!(message.contains(words), "{message}");
    }
    for (questions, words) in [
        (json!({}), "got 0"),
        (json!({"a": {"type": "box"}}), "noul, choice, score"),
        (json!({"a": {"type": "choice", "criteria": []}}), "questions.a.criteria"),
        (json!({"a": {"type": "noul", "criteria": {"maybe": "x"}}}), "true and false"),
        (json!({"a": {"type": "score", "criteria": ["one"]}}), "2 to 10"),
    ] {
        let body = json!({"model": "tiny", "state": "x", "questions": questions});
        let refused = server.client.post(SYSTEM_ONE, &body).await;
        let text = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && text.contains(words), "{text}");
    }
    let short = Server::start(Setup::default(), |_| say("Y")).await;
    let long = json!({"input": "a".repeat(CONTEXT)});
    let message = decide(&short, long).await.error(400, BAD, Some("input"));
    assert!(message.contains("maximum context length"), "{message}");
}

#[tokio::test]
async fn models_that_always_reason_are_refused() {
    let template = "{% if false %}<think></think>{% endif %}{% for m in messages %}{{ m.content }}\
                    {% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}";
    let setup = Setup { template: Some(template), ..roomy() };
    let server = Server::start(setup, |_| say("Y")).await;
    decide(&server, json!({})).await.error(400, BAD, Some("model"));
}

#[tokio::test]
async fn unknown_members_are_told() {
    let server = Server::start(roomy(), |_| say("Y")).await;
    let input = json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi",
        "prompt_cache_breakpoint": {"mode": "explicit"}}]}]);
    let fields = json!({"input": input, "prompt_cache_key": "k", "safety_identifier": "s",
        "questions": [{"type": "predicate", "instructions": "x", "new": 1}]});
    let answer = decide(&server, fields).await;
    let told = answer.header("x-sconce-ignored").unwrap().to_owned();
    for name in [
        "prompt_cache_key",
        "safety_identifier",
        "questions[0].new",
        "input[0].content[0].prompt_cache_breakpoint",
    ] {
        assert!(told.contains(name), "{told}");
    }
}
