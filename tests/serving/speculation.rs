//! Speculative decoding by the real program: answers are those of decoding token by token.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor, safetensors};
use futures::future::join_all;
use serde_json::{Value, json};

use super::server::{Server, program};

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

/// Tensors as a file holds them.
fn serialize(tensors: &HashMap<String, Tensor>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    safetensors::save(tensors, file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

/// The demo model's tensors.
fn tensors() -> HashMap<String, Tensor> {
    let is_weights = |(name, _): &&(&str, &[u8])| *name == "model.safetensors";
    let (_, bytes) = sconce::demo::files().iter().find(is_weights).unwrap();
    safetensors::load_buffer(bytes, &Device::Cpu).unwrap()
}

/// The tensors of its last layer below another name.
fn last_layer(tensors: &HashMap<String, Tensor>, name: &str) -> HashMap<String, Tensor> {
    let of_last = |(own, tensor): (&String, &Tensor)| {
        let part = own.strip_prefix("model.layers.3.")?;
        Some((format!("{name}.{part}"), tensor.clone()))
    };
    tensors.iter().filter_map(of_last).collect()
}

/// `[256, 256 * parts]`: the sum of some of as many parts.
fn sum_of(parts: &[f64]) -> Tensor {
    let one = Tensor::eye(256, DType::F32, &Device::Cpu).unwrap();
    let parts: Vec<_> = parts.iter().map(|factor| (&one * *factor).unwrap()).collect();
    Tensor::cat(&parts, 1).unwrap().to_dtype(DType::BF16).unwrap()
}

/// A folder with the demo model and a head that drafts, made of its last layer.
fn with_head(at: &Path) -> String {
    let mut all = tensors();
    let head = "model.mtp_layers.0";
    all.extend(last_layer(&all, head));
    for name in ["token_layernorm", "hidden_layernorm", "final_layernorm"] {
        all.insert(format!("{head}.{name}.weight"), all["model.norm.weight"].clone());
    }
    all.insert(format!("{head}.input_proj.weight"), sum_of(&[0.5, 0.5]));
    let bytes = serialize(&all);
    folder(at, "model.safetensors", Some(&bytes))
}

/// A folder with an EAGLE-3 head for the demo model that knows half of its tokens, and fields of its
/// configuration.
fn eagle(at: &Path, fields: Value) -> String {
    let all = tensors();
    let mut head = last_layer(&all, "midlayer");
    for name in ["q_proj", "k_proj", "v_proj"] {
        let name = format!("midlayer.self_attn.{name}.weight");
        let half = head[&name].clone();
        head.insert(name, Tensor::cat(&[&half, &half], 1).unwrap());
    }
    head.insert("midlayer.hidden_norm.weight".to_owned(), all["model.norm.weight"].clone());
    head.insert("norm.weight".to_owned(), all["model.norm.weight"].clone());
    head.insert("fc.weight".to_owned(), sum_of(&[0.0, 0.0, 1.0]));
    let known = all["model.embed_tokens.weight"].narrow(0, 0, 1024).unwrap();
    head.insert("lm_head.weight".to_owned(), known.contiguous().unwrap());
    head.insert("d2t".to_owned(), Tensor::zeros(1024, DType::I64, &Device::Cpu).unwrap());
    std::fs::write(at.join("model.safetensors"), serialize(&head)).unwrap();
    let is_config = |(name, _): &&(&str, &[u8])| *name == "config.json";
    let (_, config) = sconce::demo::files().iter().find(is_config).unwrap();
    let mut config: Value = serde_json::from_slice(config).unwrap();
    let own = json!({
        "architectures": ["Eagle3Qwen3ForCausalLM"], "num_hidden_layers": 1,
        "use_sliding_window": false, "draft_vocab_size": 1024,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    });
    for more in [own, fields] {
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    std::fs::write(at.join("config.json"), config.to_string()).unwrap();
    at.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_draft_change_no_answer_and_are_counted() {
    let (model, head) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (model, head) = (with_head(model.path()), eagle(head.path(), json!({})));
    let plain = Server::start(&["--draft-max", "0", "--no-prefix-cache"]);
    let name = ["--served-model-name", "sconce-demo", "--kv-cache-memory", "64MiB"];
    let servers = [
        ("mtp", Server::start(&[&["--model", &model], &name[..]].concat())),
        ("eagle3", Server::start(&[&["--draft-model", &head], &name[..]].concat())),
    ];
    let bodies = bodies();
    let ask = async |server: &Server, body: &Value| {
        server.post("/v1/chat/completions", body).await["choices"].take()
    };
    let expected = join_all(bodies.iter().map(|body| ask(&plain, body))).await;
    assert!(expected.iter().all(Value::is_array), "{expected:?}");
    for (source, drafting) in servers {
        for _ in ["cold", "warm"] {
            let found = join_all(bodies.iter().map(|body| ask(&drafting, body))).await;
            assert_eq!(found, expected, "{source}");
        }
        for (body, expected) in bodies.iter().zip(&expected) {
            assert_eq!(ask(&drafting, body).await, *expected, "{source}: {body}");
        }
        let counted = drafting.counted("sconce:spec_decode_draft_tokens_total").await;
        assert!(counted.iter().any(|line| line.contains(source)), "{source}: {counted:?}");
        drafting.assert_idle().await;
    }
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
    let counted = drafting.counted("sconce:spec_decode_accepted_tokens_total").await;
    assert!(counted.iter().any(|line| line.contains("draft_model")), "{counted:?}");
    drafting.assert_idle().await;
}

/// The demo model with its first two layers alone, which transformers' assisted generation was given as the
/// assistant.
fn two_layers(at: &Path) -> String {
    let is_config = |(name, _): &&(&str, &[u8])| *name == "config.json";
    let (_, config) = sconce::demo::files().iter().find(is_config).unwrap();
    let mut config: Value = serde_json::from_slice(config).unwrap();
    config["num_hidden_layers"] = json!(2);
    folder(at, "config.json", Some(config.to_string().as_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_those_of_transformers_assisted_generation() {
    let files = tempfile::tempdir().unwrap();
    let assistant = two_layers(files.path());
    let server = Server::start(&[
        "--draft-model",
        &assistant,
        "--kv-cache-memory",
        "64MiB",
        "--kv-cache-dtype",
        "f32",
    ]);
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/assisted.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(at).unwrap()).unwrap();
    for round in 0..3 {
        for case in &cases {
            let body = json!({
                "model": "sconce-demo", "prompt": case["prompt"], "temperature": 0,
                "max_tokens": 48, "min_tokens": 48, "return_token_ids": true,
            });
            let answer = server.post("/v1/completions", &body).await;
            assert_eq!(answer["choices"][0]["token_ids"], case["tokens"], "{round}: {answer}");
        }
    }
    let counted = server.counted("sconce:spec_decode_draft_tokens_total").await;
    assert!(counted.iter().any(|line| line.contains("draft_model")), "{counted:?}");
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
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [wide, low, block] = [
        json!({"vocab_size": 2049}),
        json!({"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}),
        json!({"architectures": ["DFlashDraftModel"]}),
    ];
    let wide = eagle(folders[0].path(), wide);
    let low = eagle(folders[1].path(), low);
    let block = eagle(folders[2].path(), block);
    let differs = format!("its token 400 is {two:?}, the model's is {one:?}");
    for (arguments, reason) in [
        (vec!["--draft-model", &other], differs.as_str()),
        (vec!["--draft-model", &itself, "--draft-max", "0"], "--draft-max 0 turns drafts off"),
        (vec!["--draft-model", &itself, "--tensor-parallel", "2"], "--tensor-parallel"),
        (vec!["--draft-model", "/nowhere.gguf"], "/nowhere.gguf"),
        (vec!["--draft-model", &wide], "`vocab_size` is 2049, the model's is 2048"),
        (vec!["--draft-model", &low], "must be two or more of the model's 4 layers"),
        (vec!["--draft-model", &block], "`block_size`"),
    ] {
        let mut command = program();
        let command = command.args(["serve", "--port", "0"]).args(&arguments);
        let output = command.output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && errors.contains(reason), "{arguments:?}: {errors}");
    }
}
