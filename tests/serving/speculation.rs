//! Speculative decoding by the real program: answers are those of decoding token by token.

use std::path::Path;
use std::process::Command;

use futures::future::join_all;
use serde_json::{Value, json};

use super::server::Server;

const CODE: &str = "def area(width, height):\n    return width * height\n\n\
                    def edge(width, height):\n    return 2 * (width + height)\n";

/// Requests with everything that decides about tokens.
fn bodies() -> Vec<Value> {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "required": ["identification", "description", "measurements"],
        "properties": {
            "identification": {"type": "string", "maxLength": 10},
            "description": {"enum": ["a long description", "a longer description"]},
            "measurements": {"type": "array", "minItems": 2, "maxItems": 3, "items": {
                "type": "object", "additionalProperties": false,
                "required": ["temperature", "humidity"],
                "properties": {"temperature": {"type": "integer"}, "humidity": {"type": "integer"}},
            }},
        },
    });
    let format = json!({"type": "json_schema",
        "json_schema": {"name": "x", "strict": true, "schema": schema}});
    let repeat = format!("Repeat this: {CODE}");
    let fields = [
        json!({"response_format": format, "temperature": 1.3}),
        json!({"response_format": format, "logprobs": true, "top_logprobs": 3}),
        json!({"prediction": {"type": "content", "content": CODE}, "temperature": 0}),
        json!({"temperature": 0, "logprobs": true, "top_logprobs": 2}),
        json!({"temperature": 0, "stop": ["width + height"]}),
        json!({"frequency_penalty": 0.5, "n": 2, "min_p": 0.05}),
        json!({"dry_multiplier": 0.8, "repetition_penalty": 1.1}),
        json!({"temperature": 0.3, "min_tokens": 20, "stop_token_ids": [5]}),
    ];
    let whole = |(seed, fields): (usize, Value)| {
        let mut body = json!({
            "model": "sconce-demo", "seed": seed, "max_tokens": 120, "return_token_ids": true,
            "messages": [{"role": "user", "content": repeat}],
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    fields.into_iter().enumerate().map(whole).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_with_drafts_are_those_without() {
    let plain = Server::start(&["--draft-max", "0", "--no-prefix-cache"]);
    let drafting = Server::start(&["--draft-max", "24", "--max-num-batched-tokens", "96"]);
    let bodies = bodies();
    let ask = async |server: &Server, body: &Value| {
        server.post("/v1/chat/completions", body).await["choices"].take()
    };
    let mut expected = Vec::new();
    for body in &bodies {
        expected.push(ask(&plain, body).await);
    }
    assert!(expected.iter().all(Value::is_array), "{expected:?}");
    for _ in ["cold", "warm"] {
        let found = join_all(bodies.iter().map(|body| ask(&drafting, body))).await;
        assert_eq!(found, expected, "together");
    }
    for (body, expected) in bodies.iter().zip(&expected) {
        assert_eq!(ask(&drafting, body).await, *expected, "alone: {body}");
    }
    // The same answers were asked for three times.
    let accepted = drafting.metric("vllm:spec_decode_num_accepted_tokens_total").await;
    assert!(accepted > 100.0, "{accepted}");
    let none = plain.metric("vllm:spec_decode_num_draft_tokens_total").await;
    assert!(none.abs() < 0.5);
    drafting.assert_idle().await;
}

/// A folder with the demo model's files, the named one replaced.
fn folder(at: &Path, replaced: &str, by: Option<&[u8]>) -> String {
    for (name, bytes) in sconce::demo::files() {
        let bytes = by.filter(|_| *name == replaced).unwrap_or(bytes);
        std::fs::write(at.join(name), bytes).unwrap();
    }
    at.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_model_changes_no_answer() {
    let files = tempfile::tempdir().unwrap();
    let itself = folder(files.path(), "", None);
    let plain = Server::start(&["--draft-max", "0", "--no-prefix-cache"]);
    let drafting = Server::start(&["--draft-model", &itself, "--kv-cache-memory", "64MiB"]);
    let bodies = bodies();
    let ask = async |server: &Server, body: &Value| {
        server.post("/v1/chat/completions", body).await["choices"].take()
    };
    let expected = join_all(bodies.iter().map(|body| ask(&plain, body))).await;
    assert!(expected.iter().all(Value::is_array), "{expected:?}");
    for _ in ["cold", "warm"] {
        let found = join_all(bodies.iter().map(|body| ask(&drafting, body))).await;
        assert_eq!(found, expected);
    }
    assert!(drafting.metric("vllm:spec_decode_num_accepted_tokens_total").await > 0.0);
    drafting.assert_idle().await;
}

#[test]
fn draft_models_that_can_not_be_used_are_refused() {
    let (other, itself) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = sconce::demo::files();
    let tokenizer = files.iter().find(|(name, _)| *name == "tokenizer.json").unwrap().1;
    let mut tokenizer: Value = serde_json::from_slice(tokenizer).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    // Two tokens change places.
    let name = |id| vocabulary.iter().find(|(_, own)| **own == json!(id)).unwrap().0.clone();
    let (one, two) = (name(400), name(500));
    vocabulary.insert(one.clone(), json!(500));
    vocabulary.insert(two.clone(), json!(400));
    let tokenizer = serde_json::to_vec(&tokenizer).unwrap();
    let other = folder(other.path(), "tokenizer.json", Some(&tokenizer));
    let itself = folder(itself.path(), "", None);
    let differs = format!("its token 400 is {two:?}, the model's is {one:?}");
    for (arguments, reason) in [
        (vec!["--draft-model", &other], differs.as_str()),
        (vec!["--draft-model", &itself, "--draft-max", "0"], "--draft-max 0 turns drafts off"),
        (vec!["--draft-model", &itself, "--tensor-parallel", "2"], "--tensor-parallel"),
        (vec!["--draft-model", "/nowhere.gguf"], "/nowhere.gguf"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sconce"));
        let command = command.args(["serve", "--port", "0"]).args(&arguments);
        let output = command.env_remove("SCONCE_MODEL").output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{arguments:?}: {errors}");
    }
}
