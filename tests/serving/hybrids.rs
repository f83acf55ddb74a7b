//! A hybrid over HTTP: prompts resume from snapshots of its states, and answers say how far.

use std::path::Path;

use futures::future::join_all;
use serde_json::{Value, json};

use super::server::{Server, program};
use crate::parity::{folder, prompt};

const VOCAB: u32 = 160;

/// The fixture `lfm2` with a tokenizer, which it lacks.
pub(super) fn with_tokenizer() -> tempfile::TempDir {
    with_tokenizer_of("lfm2")
}

/// A fixture with a tokenizer, which it lacks: a word for each token.
fn with_tokenizer_of(fixture: &str) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(folder(fixture).join(name), target.path().join(name)).unwrap();
    }
    let vocab: serde_json::Map<String, Value> =
        (0..VOCAB).map(|id| (format!("w{id}"), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": null, "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    });
    std::fs::write(target.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    target
}

fn start(model: &Path, arguments: &[&str]) -> Server {
    let model = model.to_str().unwrap();
    let own = ["--model", model, "--served-model-name", "hybrid", "--max-num-seqs", "4"];
    Server::start(&[&own, arguments].concat())
}

/// The answer's tokens, choice by choice, and how many tokens of the prompt were cached.
async fn ask(server: &Server, tokens: &[u32], choices: usize) -> (Vec<Vec<u32>>, u64) {
    let body = json!({
        "model": "hybrid", "prompt": tokens, "max_tokens": 40, "temperature": 1.0, "seed": 7,
        "ignore_eos": true, "return_token_ids": true, "n": choices,
    });
    let answer = server.post("/v1/completions", &body).await;
    let ids = |choice: &Value| serde_json::from_value(choice["token_ids"].clone()).unwrap();
    let choices = answer["choices"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    (choices.iter().map(ids).collect(), cached.as_u64().unwrap_or(0))
}

/// A prompt that parts from `prompt(300, ..)` after `shared` tokens.
fn sibling(shared: usize, length: u32) -> Vec<u32> {
    let own = prompt(length, VOCAB).into_iter().map(|token| (token + length) % VOCAB);
    prompt(300, VOCAB)[..shared].iter().copied().chain(own).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_resume_from_states_and_the_answers_stay() {
    let model = with_tokenizer();
    let (cold, warm) = (start(model.path(), &["--no-prefix-cache"]), start(model.path(), &[]));
    let first = prompt(300, VOCAB);
    let answer = ask(&cold, &first, 1).await.0.remove(0);
    let turn = [&first[..], &answer, &prompt(30, VOCAB)].concat();
    let sent = [
        // All full blocks but the last, the first time that it comes again.
        (&first, 1, 0),
        (&first, 1, 288),
        (&turn, 1, 320),
        // Where two have parted, the third resumes, and so do several choices.
        (&sibling(130, 150), 1, 0),
        (&sibling(130, 140), 1, 128),
        (&sibling(130, 130), 3, 128),
    ];
    let (mut hits, mut asked) = (0, 0);
    for (index, (tokens, choices, expected)) in sent.into_iter().enumerate() {
        let (answer, cached) = ask(&warm, tokens, choices).await;
        assert_eq!(cached, expected, "request {index}");
        assert_eq!(answer, ask(&cold, tokens, choices).await.0, "request {index}");
        (hits, asked) = (hits + expected, asked + tokens.len() * choices);
    }
    // Each choice is looked up; two found what the first left.
    let [found, queries] = ["hits", "queries"];
    let metric = async |name| warm.metric(&format!("vllm:prefix_cache_{name}_total")).await;
    assert!(metric(found).await >= f64::from(u32::try_from(hits).unwrap()));
    assert!((metric(queries).await - f64::from(u32::try_from(asked).unwrap())).abs() < 0.5);
    let together = join_all((0..6).map(|i| {
        let tokens = if i % 2 == 0 { sibling(200, 60) } else { first.clone() };
        let warm = &warm;
        async move { ask(warm, &tokens, 1).await.0 }
    }));
    let expected = [ask(&cold, &sibling(200, 60), 1).await.0, ask(&cold, &first, 1).await.0];
    for (index, answer) in together.await.into_iter().enumerate() {
        assert_eq!(answer, expected[index % 2], "{index} of six together");
    }
    warm.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_for_states_is_as_asked_and_refused_where_there_are_none() {
    let model = with_tokenizer();
    // Not even one state fits.
    let none = start(model.path(), &["--state-cache-memory", "100"]);
    for _ in 0..3 {
        assert_eq!(ask(&none, &prompt(300, VOCAB), 1).await.1, 0);
    }
    for (arguments, expected) in [
        (&["--state-cache-memory", "1MiB"][..], "this one has no recurrent layers"),
        (&["--state-cache-memory", "1MiB", "--no-prefix-cache"], "cannot be used with"),
    ] {
        let mut command = program();
        let output = command.args(["serve", "--port", "0"]).args(arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(expected), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_threads_compute_than_were_asked_for() {
    let model = with_tokenizer_of("qwen3_next");
    let config = model.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let length = "\"max_position_embeddings\": 512";
    assert!(text.contains(length), "{text}");
    std::fs::write(&config, text.replace(length, "\"max_position_embeddings\": 4096")).unwrap();
    // All in one step: of the products with the gate of its shared expert, 96,000 elements.
    let arguments =
        ["--threads", "2", "--max-num-batched-tokens", "4096", "--target-step-ms", "60000"];
    let server = start(model.path(), &arguments);
    ask(&server, &prompt(3000, VOCAB), 1).await;
    let Some(threads) = server.threads() else { return };
    let computing = |name: &&String| name.starts_with("kernel") || name.starts_with("candle");
    assert_eq!(threads.iter().filter(computing).collect::<Vec<_>>(), ["kernel-1"], "{threads:?}");
}
