//! One model on several processes of the real program.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use super::server::{Server, program};

/// Processes whose parent has this id, as the system lists them.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let parent_of = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before it may have spaces and ends with the last bracket.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let names = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_ranks_answer_as_one_process_does_alone_and_together() {
    let (one, two) = (Server::start(&[]), Server::start(&["--tensor-parallel", "2"]));
    let request = |i: u64| {
        let mut body = super::request(i);
        body["temperature"] = json!(0.0);
        body["max_tokens"] = json!(30 + 2 * i);
        body
    };
    let (one, two) = (&one, &two);
    let mut alone = Vec::new();
    for i in 0..8 {
        alone.push(two.stream(&request(i)).await.token_ids().await);
    }
    let together =
        join_all((0..8).map(|i| async move { two.stream(&request(i)).await.token_ids().await }));
    assert_eq!(together.await, alone);
    // What the model knows it says whatever the order of sums.
    for prompt in ["Once upon a time", "What is 12 plus 30?", "The fox", "A cat sat on"] {
        let body = json!({
            "model": "sconce-demo", "prompt": prompt, "max_tokens": 24, "temperature": 0.0,
            "stream": true, "return_token_ids": true,
        });
        let [one, two] =
            [one, two].map(async |server| server.stream(&body).await.token_ids().await);
        assert_eq!(two.await, one.await, "{prompt}");
    }
    // Beams fork, so blocks are copied on both ranks.
    let beams = json!({
        "model": "sconce-demo", "prompt": "Once upon a time", "max_tokens": 40,
        "use_beam_search": true, "n": 4, "temperature": 0.0,
    });
    let texts = |answer: serde_json::Value| {
        let choices = answer["choices"].as_array().unwrap().clone();
        choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>()
    };
    let (a, b) = (one.post("/v1/completions", &beams), two.post("/v1/completions", &beams));
    let (a, b) = (texts(a.await), texts(b.await));
    assert_eq!((a.len(), &a), (4, &b));
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_answer_with_the_bits_of_one_process_alone_and_together() {
    let one = Server::start(&[]);
    // Long prompts in several microbatches, short ones, and logprobs with all their digits.
    let request = |i: usize| {
        let prompt =
            ["What is 12 plus 30?", "Once upon a time there was a fox. "][i % 2].repeat(1 + 5 * i);
        json!({
            "model": "sconce-demo", "prompt": prompt, "max_tokens": 10 + i, "temperature": 0.7, "seed": i,
            "ignore_eos": true, "logprobs": 5, "return_token_ids": true, "echo": i.is_multiple_of(3),
        })
    };
    let answer = |answer: serde_json::Value| {
        let choice = &answer["choices"][0];
        assert!(choice["token_ids"].is_array(), "{answer}");
        (choice["token_ids"].clone(), choice["logprobs"].clone())
    };
    let mut expected = Vec::new();
    for i in 0..8 {
        expected.push(answer(one.post("/v1/completions", &request(i)).await));
    }
    // Beams fork, so blocks are copied in all stages.
    let beams = json!({
        "model": "sconce-demo", "prompt": "Once upon a time", "max_tokens": 40, "use_beam_search": true, "n": 4,
        "temperature": 0.0,
    });
    let said = one.post("/v1/completions", &beams).await;
    assert_eq!(said["choices"].as_array().unwrap().len(), 4);
    for stages in ["2", "3"] {
        let server = Server::start(&["--pipeline-parallel-size", stages]);
        let server = &server;
        let ask = |i| async move { answer(server.post("/v1/completions", &request(i)).await) };
        assert_eq!(ask(5).await, expected[5], "{stages} stages");
        assert_eq!(join_all((0..8).map(ask)).await, expected, "{stages} stages");
        assert_eq!(server.post("/v1/completions", &beams).await["choices"], said["choices"]);
        // Hidden states are pooled where they come back to.
        let body = json!({"model": "sconce-demo", "input": ["The fox", "A cat sat on a mat"]});
        let whole = one.post("/v1/embeddings", &body).await;
        assert!(whole["data"][1]["embedding"].is_array(), "{whole}");
        assert_eq!(server.post("/v1/embeddings", &body).await["data"], whole["data"]);
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_dies_ends_requests_with_an_error_and_then_the_server() {
    for split in ["--tensor-parallel", "--pipeline-parallel"] {
        a_rank_dies(split).await;
    }
}

#[cfg(target_os = "linux")]
async fn a_rank_dies(split: &str) {
    let server = Server::start(&[split, "2"]);
    let [other] = children(server.id())[..] else { panic!("one process beside it expected") };
    let health = reqwest::get(format!("{}/health", server.url)).await.unwrap();
    assert_eq!(health.status().as_u16(), 200);
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill").args([name, &other.to_string()]).status();
        assert!(sent.unwrap().success());
    };
    let body = json!({"model": "sconce-demo", "prompt": "Once", "max_tokens": 5});
    // Supervisors ask all processes to stop, and rank 0 lets its streams end first.
    signal("-TERM");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let answer = server.post("/v1/completions", &body).await;
    assert!(answer["choices"][0]["text"].is_string(), "{answer}");
    signal("-KILL");
    let answer = server.post("/v1/completions", &body).await;
    assert!(answer["error"]["message"].is_string(), "{answer}");
    // A supervisor starts it again, with all of its ranks.
    assert_eq!(server.wait().code(), Some(1));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn other_ranks_end_with_the_server_even_if_it_is_killed() {
    let server = Server::start(&["--tensor-parallel", "2"]);
    let others = children(server.id());
    assert_eq!(others.len(), 1);
    // Killed, not terminated.
    drop(server);
    let running = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // Who has ended may wait for somebody to ask how.
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    for _ in 0..200 {
        if !others.iter().any(running) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{others:?} are left");
}

#[test]
fn what_can_not_be_split_ends_the_start_with_the_reason() {
    let output =
        program().args(["serve", "--port", "0", "--tensor-parallel", "5"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("can't be split over 5 ranks"), "{told}");
    assert!(told.contains("don't divide by 5"), "{told}");
}

#[test]
fn what_can_not_be_in_stages_ends_the_start_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let adapter = format!("a={folder}");
    let by_layers = "a model is split by layers or within them";
    let of_cache =
        "can't be used with --pipeline-parallel 2: each rank has its part of the KV cache alone";
    for (flags, reason) in [
        (
            vec!["--pipeline-parallel", "64"],
            "can't be split over 64 ranks: each needs a layer, and there are",
        ),
        (vec!["--pipeline-parallel", "2", "--tensor-parallel", "2"], by_layers),
        (
            vec!["--pipeline-parallel", "2", "--lora-modules", &adapter],
            "--lora-modules can't be used with --pipeline-parallel",
        ),
        (
            vec!["--pipeline-parallel", "2", "--draft-model", folder],
            "--draft-model can't be used with --pipeline-parallel",
        ),
        (vec!["--pipeline-parallel", "2", "--kv-disk", folder], of_cache),
        (vec!["--pipeline-parallel", "2", "--kv-host-memory", "1MiB"], of_cache),
    ] {
        let output = program().args(["serve", "--port", "0"]).args(&flags).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flags:?}");
        assert!(told.contains(reason), "{flags:?}: {told}");
    }
}
