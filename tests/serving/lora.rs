//! Adapters of the demo model in the real program: beside each other, and come and gone while
//! others run.

use futures::future::join_all;
use serde_json::{Value, json};

use super::server::{Server, program};
use crate::lora_folder::WrittenAdapter;

/// Changes enough to say something else, in every layer of the demo model.
fn adapter(seed: u32) -> WrittenAdapter {
    let mut modules = Vec::new();
    for layer in 0..4 {
        for (name, inputs, outputs) in [
            ("self_attn.q_proj", 256, 256),
            ("self_attn.v_proj", 256, 128),
            ("mlp.gate_proj", 256, 640),
            ("mlp.down_proj", 640, 256),
        ] {
            modules.push((format!("model.layers.{layer}.{name}"), inputs, outputs));
        }
    }
    let modules: Vec<_> = modules.iter().map(|(path, i, o)| (path.as_str(), *i, *o)).collect();
    WrittenAdapter::new(&modules, seed).with_config(&json!({"lora_alpha": 0.5}))
}

/// The `i`-th of different requests to a model, some with a common beginning of several blocks.
fn request(model: &str, i: u64) -> Value {
    let mut body = super::request(i);
    body["model"] = json!(model);
    body["max_tokens"] = json!(24 + 4 * i);
    body
}

async fn ids(server: &Server, model: &str, i: u64) -> Vec<u64> {
    server.stream(&request(model, i)).await.token_ids().await
}

const MODELS: [&str; 3] = ["sconce-demo", "one", "two"];

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_streams_of_three_models_answer_as_each_does_alone() {
    let (one, two) = (adapter(1), adapter(7));
    let [one_path, two_path] = [&one, &two].map(WrittenAdapter::path);
    let pairs = [format!("one={one_path}"), json!({"name": "two", "path": two_path}).to_string()];
    let modules = ["--lora-modules", &pairs[0], &pairs[1]];
    let lone = ["--no-prefix-cache", "--max-num-seqs", "1"];
    let lone = Server::start(&[&modules[..], &lone].concat());
    let model = |i: u64| MODELS[i as usize % 3];
    let mut alone = Vec::new();
    for i in 0..16 {
        alone.push(ids(&lone, model(i), i).await);
    }
    // The same request is another answer with each of them.
    let mut answers = Vec::new();
    for model in MODELS {
        answers.push(ids(&lone, model, 3).await);
    }
    assert!(answers[0] != answers[1] && answers[1] != answers[2] && answers[0] != answers[2]);

    let busy = ["--max-num-batched-tokens", "24", "--max-num-seqs", "16"];
    let server = Server::start(&[&modules[..], &busy, &["--kv-cache-memory", "1MiB"]].concat());
    for _ in ["cold", "warm"] {
        let together = (0..16).map(|i| ids(&server, model(i), i));
        assert_eq!(join_all(together).await, alone);
    }
    server.assert_idle().await;
    assert!(server.metric("vllm:num_preemptions_total").await > 0.0);
    assert!(server.metric("vllm:prefix_cache_hits_total").await > 0.0);
    assert!(server.metric("sconce:lora_bytes").await > 100_000.0);

    let mut vectors = Vec::new();
    for model in MODELS {
        let body = json!({"model": model, "input": "a fox"});
        vectors.push(server.post("/v1/embeddings", &body).await["data"][0]["embedding"].clone());
    }
    assert!(vectors[0] != vectors[1] && vectors[1] != vectors[2] && vectors[0].is_array());
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_come_and_go_beside_running_streams() {
    let (old, new) = (adapter(1), adapter(7));
    let server = Server::start(&["--allow-runtime-lora-updating"]);
    let load = async |written: &WrittenAdapter, in_place: bool| {
        let body = json!({"lora_name": "one", "lora_path": written.path(),
            "load_inplace": in_place});
        server.text("/v1/load_lora_adapter", &body).await
    };
    let plain = ids(&server, "sconce-demo", 9).await;
    let added = "Success: LoRA adapter 'one' added successfully.";
    assert_eq!(load(&old, false).await, added);
    let with_old = ids(&server, "one", 9).await;
    assert_eq!(load(&new, true).await, added);
    let with_new = ids(&server, "one", 9).await;
    assert!(plain != with_old && with_old != with_new && plain != with_new);

    // Those that run go on with what they began with.
    let mut long = request("one", 9);
    long["max_tokens"] = json!(400);
    let expected = server.stream(&long).await.token_ids().await;
    let mut running = server.stream(&long).await;
    let beside = server.stream(&request("sconce-demo", 9)).await;
    let first = running.next().await.unwrap();
    assert_eq!(load(&old, true).await, added);
    assert_eq!(ids(&server, "one", 9).await, with_old);
    let removed = server.text("/v1/unload_lora_adapter", &json!({"lora_name": "one"})).await;
    assert_eq!(removed, "Success: LoRA adapter 'one' removed successfully.");
    assert_eq!(server.post("/v1/completions", &long).await["error"]["code"], "model_not_found");
    assert_eq!(beside.token_ids().await, plain);
    let first = first["choices"][0]["token_ids"].as_array().unwrap().len();
    assert_eq!(running.token_ids().await, expected[first..]);
    server.assert_idle().await;
    assert!(server.metric("sconce:lora_bytes").await < 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_that_can_not_be_served_end_the_start_with_a_message() {
    let (good, ranked) = (adapter(1), adapter(1).with_config(&json!({"r": 64})));
    let [good, ranked] = [&good, &ranked].map(|written| format!("one={}", written.path()));
    let other = good.replacen("one", "two", 1);
    let taken = good.replacen("one", "sconce-demo", 1);
    let based = json!({"name": "x", "path": good, "base_model_name": "gpt"}).to_string();
    let encoder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/embeddings/bert_mean");
    for (arguments, expected) in [
        (vec!["--lora-modules", &ranked, "--max-lora-rank", "8"], "is 64, max-lora-rank is 8"),
        (vec!["--lora-modules", &good, &other, "--max-loras", "1"], "--max-loras is 1"),
        (vec!["--lora-modules", &good, &good], "the name one is given twice"),
        (vec!["--lora-modules", &taken], "sconce-demo is the model's name"),
        (vec!["--lora-modules", &based, "--served-model-name", "m"], "x belongs to gpt"),
        (vec!["--lora-modules", "one=/no/such"], "no adapter found for /no/such"),
        (vec!["--lora-modules", "/no/such"], "expected NAME=PATH"),
        (vec!["--model", encoder, "--lora-modules", &good], "the model takes no LoRA adapters"),
    ] {
        let output = program().args(["serve", "--port", "0"]).args(&arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(expected), "{message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}
