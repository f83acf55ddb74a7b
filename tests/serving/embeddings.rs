//! Embeddings by the real program: the demo model's hidden states, and an encoder's folder.

use std::path::{Path, PathBuf};

use futures::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::Server;

async fn embed(server: &Server, fields: Value) -> Value {
    let mut body = json!({"model": "sconce-demo"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    server.post("/v1/embeddings", &body).await
}

fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let data = answer["data"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let vector = |entry: &Value| serde_json::from_value(entry["embedding"].clone()).unwrap();
    data.iter().map(vector).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_model_embeds_beside_its_streams_as_alone() {
    for pooling in ["last", "mean"] {
        let server = Server::start(&["--pooling", pooling, "--max-num-batched-tokens", "64"]);
        let texts: Vec<String> = (0..8_usize)
            .map(|i| format!("{}fox {i}", "Once upon a time. ".repeat(i % 5)))
            .collect();
        let mut alone = Vec::new();
        for text in &texts {
            alone.push(vectors(&embed(&server, json!({"input": text})).await).remove(0));
        }
        for vector in &alone {
            let squares: f64 = vector.iter().map(|x| x * x).sum();
            assert!((squares - 1.0).abs() < 1e-5, "{squares}");
        }
        let stream = server.stream(&super::request(9)).await;
        let all = embed(&server, json!({"input": texts})).await;
        assert_eq!(vectors(&all), alone, "{pooling}");
        let several = (0..4).map(|_| embed(&server, json!({"input": texts})));
        for answer in join_all(several).await {
            assert_eq!(vectors(&answer), alone, "{pooling}");
        }
        assert_eq!(stream.token_ids().await.len(), 40 + 12 * 9);
        server.assert_idle().await;
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings").join(name)
}

fn serve(folder: &Path) -> Server {
    Server::start(&["--model", folder.to_str().unwrap(), "--served-model-name", "e"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentence_transformers_folder_is_served_as_it_is() {
    for name in ["bert_mean", "distilbert_max", "roberta_cls", "xlm_roberta_dense"] {
        let folder = folder(name);
        let reference = std::fs::read(folder.join("reference.json")).unwrap();
        let reference: Value = serde_json::from_slice(&reference).unwrap();
        let server = serve(&folder);
        let texts: Vec<&Value> = reference.as_array().unwrap().iter().map(|r| &r["text"]).collect();
        let body = json!({"model": "e", "input": texts, "truncate_prompt_tokens": -1});
        let answer = embed(&server, body).await;
        let mut tokens = 0;
        for (ours, theirs) in vectors(&answer).iter().zip(reference.as_array().unwrap()) {
            let expected: Vec<f64> = serde_json::from_value(theirs["embedding"].clone()).unwrap();
            assert_eq!(ours.len(), expected.len(), "{name}");
            for (a, b) in ours.iter().zip(expected) {
                assert!((a - b).abs() < 1e-5, "{name}, {}: {a} and {b}", theirs["text"]);
            }
            tokens += theirs["ids"].as_array().unwrap().len();
        }
        assert_eq!(answer["usage"]["total_tokens"], tokens, "{name}");
        server.assert_idle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_refuses_what_it_cannot_do_and_answers_the_rest() {
    let server = serve(&folder("bert_mean"));
    let message = |answer: &Value| answer["error"]["message"].as_str().unwrap().to_owned();
    let long = embed(&server, json!({"model": "e", "input": ["x", "x ".repeat(100)]})).await;
    assert!(
        message(&long).contains("length is 24 tokens. However, input[1] has 102 tokens"),
        "{long}"
    );
    let empty = embed(&server, json!({"model": "e", "input": ["x", ""]})).await;
    assert!(message(&empty).contains("input[1] must not be an empty string"), "{empty}");
    let ids = embed(&server, json!({"model": "e", "input": [[3, 4], [99_999]]})).await;
    assert!(message(&ids).contains("99999"), "{ids}");
    let hello = json!([{"role": "user", "content": "Hello"}]);
    for (route, body) in [
        ("/v1/completions", json!({"model": "e", "prompt": "x"})),
        ("/v1/chat/completions", json!({"model": "e", "messages": hello})),
        ("/v1/chat/completions", json!({"model": "e", "messages": hello, "stream": true})),
        ("/v1/responses", json!({"model": "e", "input": "x"})),
        ("/v1/messages", json!({"model": "e", "max_tokens": 4, "messages": hello})),
    ] {
        let refused = server.post(route, &body).await;
        assert_eq!(refused["error"]["type"], "invalid_request_error", "{refused}");
        assert!(message(&refused).contains("only embeds texts"), "{route}: {refused}");
    }
    // Nobody put a chat template on a model that has none and talks to no one.
    let properties = reqwest::get(format!("{}/props", server.url)).await.unwrap();
    let properties: Value = properties.json().await.unwrap();
    assert_eq!(properties["chat_template"], Value::Null, "{properties}");
    let chat = server.post("/v1/embeddings", &json!({"model": "e", "messages": hello})).await;
    assert!(message(&chat).contains("no chat template"), "{chat}");
    let tokens = server.post("/tokenize", &json!({"model": "e", "prompt": "the fox"})).await;
    assert_eq!((&tokens["count"], &tokens["max_model_len"]), (&json!(4), &json!(24)), "{tokens}");
    for route in ["/v1/models", "/v1/models/e", "/health", "/metrics"] {
        let status = reqwest::get(format!("{}{route}", server.url)).await.unwrap().status();
        assert_eq!(status, 200, "{route}");
    }
    let before = server.metric("vllm:prompt_tokens_total").await;
    embed(&server, json!({"model": "e", "input": "the fox"})).await;
    let after = server.metric("vllm:prompt_tokens_total").await;
    assert!(before < 0.5 && (after - 4.0).abs() < 0.5, "{before} {after}");
}

/// A copy of a fixture with the files of sentence-transformers that say how texts are prepared.
fn prepared(name: &str, files: &[(&str, Value)]) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(folder(name).join(file), copy.path().join(file)).unwrap();
    }
    let transformer = json!({"path": "", "type": "sentence_transformers.models.Transformer"});
    let pooling = json!({"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"});
    std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    let modules = ("modules.json", json!([transformer, pooling]));
    let mean = ("1_Pooling/config.json", json!({"pooling_mode_mean_tokens": true}));
    for (file, content) in files.iter().chain(&[modules, mean]) {
        std::fs::write(copy.path().join(file), content.to_string()).unwrap();
    }
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_stand_before_texts_by_name_or_by_default() {
    let config =
        json!({"prompts": {"query": "Find: ", "other": "o"}, "default_prompt_name": "query"});
    let folder = prepared("roberta_cls", &[("config_sentence_transformers.json", config)]);
    let server = serve(folder.path());
    let one = async |fields: Value| {
        let answer = embed(&server, fields).await;
        let tokens = answer["usage"]["prompt_tokens"].clone();
        (vectors(&answer).remove(0), tokens)
    };
    let plain = |input: &str| json!({"model": "e", "input": input, "prompt_name": "document"});
    let expected = one(plain("Find: a fox")).await;
    assert_eq!(expected.1, 13);
    assert_eq!(one(json!({"model": "e", "input": "a fox"})).await, expected);
    let other = one(json!({"model": "e", "input": "a fox", "prompt_name": "other"})).await;
    assert_eq!(other, one(plain("oa fox")).await);
    assert_ne!(other, expected);
    // Token ids are the whole text.
    assert_eq!(one(json!({"model": "e", "input": [0, 9, 2]})).await.1, 3);
    for (fields, expected) in [
        (json!({"input": "x", "prompt_name": "q"}), "names are document, other, query"),
        (json!({"input": [0, 9, 2], "prompt_name": "query"}), "goes with texts"),
    ] {
        let mut body = json!({"model": "e"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let refused = embed(&server, body).await;
        assert_eq!(refused["error"]["param"], "prompt_name", "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(expected), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_made_small_and_texts_kept_short_where_the_folder_says_so() {
    let config = json!({"do_lower_case": true, "max_seq_length": 11});
    let folder = prepared("roberta_cls", &[("sentence_roberta_config.json", config)]);
    let server = serve(folder.path());
    let answer =
        embed(&server, json!({"model": "e", "input": ["Äß FOX", "äß fox", "äß fOy"]})).await;
    let vectors = vectors(&answer);
    assert_eq!(vectors[0], vectors[1]);
    assert_ne!(vectors[0], vectors[2]);
    let long = embed(&server, json!({"model": "e", "input": "1234567890"})).await;
    let message = long["error"]["message"].as_str().unwrap();
    assert!(message.contains("length is 11 tokens. However, input has 12 tokens"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_chooses_the_adapter_and_the_prompt() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/task_adapters/nano");
    let reference = std::fs::read(folder.join("reference.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let runs = reference["runs"].as_array().unwrap();
    let run = |task: &str, prompt: &str| {
        let is_it = |run: &&Value| run["task"] == task && run["prompt"] == prompt;
        runs.iter().find(is_it).unwrap()
    };
    let server = serve(&folder);
    let near = |ours: &Value, expected: &Value, what: &str| {
        let numbers = |value: &Value| serde_json::from_value::<Vec<f64>>(value.clone()).unwrap();
        for (a, b) in numbers(ours).into_iter().zip(numbers(&expected["embedding"])) {
            assert!((a - b).abs() < 1e-5, "{what}: {a} and {b}");
        }
    };
    for (fields, task, prompt) in [
        (json!({}), "retrieval", "document"),
        (json!({"prompt_name": "query"}), "retrieval", "query"),
        (json!({"task": "retrieval"}), "retrieval", "document"),
        (json!({"task": "retrieval.query"}), "retrieval", "query"),
        (json!({"task": "retrieval.passage", "normalized": true}), "retrieval", "document"),
        (json!({"task": "retrieval.query", "prompt_name": "document"}), "retrieval", "document"),
        (json!({"task": "text-matching", "embedding_type": "float"}), "text-matching", "document"),
        (json!({"task": "clustering", "prompt_name": "query"}), "clustering", "query"),
        (json!({"task": "classification"}), "classification", "document"),
    ] {
        let expected = run(task, prompt);
        let mut body = json!({"model": "e", "input": expected["text"]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = server.post("/v1/embeddings", &body).await;
        near(&answer["data"][0]["embedding"], expected, &format!("{fields}"));
        assert_eq!(answer["usage"]["prompt_tokens"], expected["ids"].as_array().unwrap().len());
        // Token ids are the whole text.
        let ids = json!({"model": "e", "input": expected["ids"], "task": body["task"]});
        let answer = server.post("/v1/embeddings", &ids).await;
        near(&answer["data"][0]["embedding"], expected, &format!("ids, {fields}"));
    }
    let text = &runs[0]["text"];
    let tei = server.post("/embed", &json!({"inputs": text, "prompt_name": "query"})).await;
    near(&tei[0], run("retrieval", "query"), "TEI");
    for (kind, task, prompt) in [
        ("search_query", "retrieval", "query"),
        ("clustering", "clustering", "document"),
        ("text-matching", "text-matching", "document"),
    ] {
        let body = json!({"model": "e", "texts": [text], "input_type": kind});
        let answer = server.post("/v2/embed", &body).await;
        near(&answer["embeddings"]["float"][0], run(task, prompt), kind);
    }
    let refused = embed(&server, json!({"model": "e", "input": "x", "task": "separation"})).await;
    assert_eq!(refused["error"]["param"], "task", "{refused}");
    let all = "no task is named \"separation\"; there are retrieval, retrieval.query, \
               retrieval.passage, text-matching, clustering, classification";
    assert_eq!(refused["error"]["message"], all);
    let cut = json!({"model": "e", "input": "x ".repeat(200), "truncate": true});
    assert_eq!(embed(&server, cut).await["usage"]["prompt_tokens"], 128);
    server.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_beside_matrices_are_chosen_by_tasks_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/task_adapters/jina_v3");
    let reference = std::fs::read(folder.join("reference.json")).unwrap();
    let reference: Value = serde_json::from_slice(&reference).unwrap();
    let server = serve(&folder);
    let near = |ours: &Value, expected: &[f64], what: &str| {
        let ours: Vec<f64> = serde_json::from_value(ours.clone()).unwrap();
        let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
        for (a, b) in ours.into_iter().zip(expected.iter().map(|b| b / length)) {
            assert!((a - b).abs() < 1e-5, "{what}: {a} and {b}");
        }
    };
    let numbers = |value: &Value| serde_json::from_value::<Vec<f64>>(value.clone()).unwrap();
    for run in reference["runs"].as_array().unwrap() {
        let answer =
            embed(&server, json!({"model": "e", "input": run["text"], "task": run["task"]})).await;
        near(
            &answer["data"][0]["embedding"],
            &numbers(&run["embedding"]),
            &run["task"].to_string(),
        );
        assert_eq!(answer["usage"]["prompt_tokens"], run["ids"].as_array().unwrap().len());
    }
    for run in reference["plain"].as_array().unwrap() {
        let answer = embed(&server, json!({"model": "e", "input": run["ids"]})).await;
        near(&answer["data"][0]["embedding"], &numbers(&run["state"]), "no task");
    }
    let refused = embed(&server, json!({"model": "e", "input": "x", "task": "retrieval"})).await;
    let all = "no task is named \"retrieval\"; there are retrieval.query, retrieval.passage, \
               separation, classification, text-matching";
    assert_eq!(refused["error"]["message"], all);
    server.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_adapters_has_the_prompts_of_tasks_alone() {
    let config = json!({"prompts": {"query": "q: ", "passage": "p: ", "clustering": "c: "}});
    let folder = prepared("roberta_cls", &[("config_sentence_transformers.json", config)]);
    let server = serve(folder.path());
    let one = async |input: &str, task: Option<&str>| {
        let answer = embed(&server, json!({"model": "e", "input": input, "task": task})).await;
        vectors(&answer).remove(0)
    };
    assert_eq!(one("fox", Some("retrieval.query")).await, one("q: fox", None).await);
    assert_eq!(one("fox", Some("retrieval.passage")).await, one("p: fox", None).await);
    assert_eq!(one("fox", Some("clustering")).await, one("c: fox", None).await);
    let refused = embed(&server, json!({"model": "e", "input": "x", "task": "retrieval"})).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("prompt_name, or retrieval.query, retrieval.passage"), "{message}");
    let late = embed(&server, json!({"model": "e", "input": "x", "late_chunking": true})).await;
    assert_eq!(late["error"]["param"], "late_chunking", "{late}");
}
