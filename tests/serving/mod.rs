//! The whole house: the real program, the embedded model, real sockets.

mod adversarial;
mod decisions;
mod embeddings;
mod hybrids;
mod kv_disk;
mod late_interaction;
mod long_prompts;
mod lora;
mod pictures;
mod ranking;
mod ranks;
mod server;
mod settings;
mod several;
mod sounds;
mod speculation;
mod structured;

use std::time::Duration;

use sconce::kernels::cpu::Level;
use serde_json::{Value, json};
use server::{Server, program};

/// The `i`-th of many different requests: lengths, seeds and shared beginnings vary.
fn request(i: u64) -> Value {
    let beginning =
        "Once upon a time in a quiet village there lived a fox. ".repeat(i as usize % 4);
    json!({
        "model": "sconce-demo",
        "prompt": format!("{beginning}Request number {i} asks for a story."),
        "max_tokens": 40 + 12 * i,
        "temperature": 1.0,
        "seed": i,
        "ignore_eos": true,
        "stream": true,
        "return_token_ids": true,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_streams_answer_as_each_does_alone() {
    let lone = Server::start(&["--no-prefix-cache", "--max-num-seqs", "1"]);
    let mut alone = Vec::new();
    for i in 0..16 {
        alone.push(lone.stream(&request(i)).await.token_ids().await);
        assert_eq!(alone[i as usize].len() as u64, 40 + 12 * i);
    }
    // Small steps cut prompts into chunks, a small cache preempts sequences.
    let busy = ["--max-num-batched-tokens", "24", "--max-num-seqs", "16"];
    let server = Server::start(&[&busy[..], &["--kv-cache-memory", "1MiB"]].concat());
    let requests: Vec<_> = (0..16).map(request).collect();
    for _ in ["cold", "warm"] {
        let together =
            requests.iter().map(|request| async { server.stream(request).await.token_ids().await });
        assert_eq!(futures::future::join_all(together).await, alone);
    }
    server.assert_idle().await;
    assert!(server.metric("vllm:num_preemptions_total").await > 0.0);
    assert!(server.metric("vllm:prefix_cache_hits_total").await > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_model_says_the_same_on_every_kernel_level() {
    let prompts = ["Once upon a time", "What is 12 plus 30?", "The fox"];
    let mut answers: Vec<(&str, Vec<Vec<u64>>)> = Vec::new();
    for level in Level::available() {
        let server = Server::start_on(level.name());
        let mut each = Vec::new();
        for prompt in prompts {
            let body = json!({
                "model": "sconce-demo", "prompt": prompt, "max_tokens": 48, "temperature": 0,
                "ignore_eos": true, "stream": true, "return_token_ids": true,
            });
            each.push(server.stream(&body).await.token_ids().await);
        }
        answers.push((level.name(), each));
    }
    let (first, expected) = &answers[0];
    for (level, answer) in &answers {
        assert_eq!(answer, expected, "{level} beside {first}");
    }
}

/// A whole server on the kernels for NVIDIA GPUs, as far as they run without one: decode steps are
/// done again as they were recorded, and tokens are drawn where the logits are.
#[tokio::test(flavor = "multi_thread")]
async fn kernels_for_gpus_answer_streams_as_each_alone_and_as_the_cpu_does() {
    let Some(library) = crate::cuda::library() else { return };
    let gpu = Server::start_on(&format!("cuda-on-host:{}", library.display()));
    let cpu = Server::start(&[]);
    let request = |prompt: &str, fields: Value| {
        let mut body = json!({
            "model": "sconce-demo", "prompt": prompt, "max_tokens": 5, "temperature": 0,
            "stream": true, "return_token_ids": true,
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let requests = [
        request("Once upon a time", json!({})),
        request("The", json!({ "temperature": 0.9, "top_k": 20, "top_p": 0.9, "seed": 4 })),
        request("What is 12 plus 30?", json!({ "frequency_penalty": 0.7, "logprobs": 2 })),
        request("A", json!({ "structured_outputs": { "regex": "[0-9]{3}" } })),
    ];
    let mut alone = Vec::new();
    for request in &requests {
        alone.push(gpu.stream(request).await.token_ids().await);
        assert_eq!(alone[alone.len() - 1], cpu.stream(request).await.token_ids().await);
    }
    let together =
        requests.iter().map(|request| async { gpu.stream(request).await.token_ids().await });
    assert_eq!(futures::future::join_all(together).await, alone);
    gpu.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_take_nothing_with_them() {
    let server = Server::start(&[]);
    let mut body = request(5);
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    // However fast the machine is, those who leave would not have had all.
    for (streams, max_tokens) in [(&mut leaving, 20_000), (&mut staying, 300)] {
        body["max_tokens"] = json!(max_tokens);
        for _ in 0..8 {
            let mut stream = server.stream(&body).await;
            stream.next().await.unwrap();
            streams.push(stream);
        }
    }
    drop(leaving);
    let answers = staying.into_iter().map(server::Frames::token_ids);
    let answers = futures::future::join_all(answers).await;
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1] && !pair[0].is_empty()));
    server.assert_idle().await;
    let aborted = server.metric("sconce:aborted_requests_total").await;
    assert!((7.5..8.5).contains(&aborted), "{aborted} sequences were aborted");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_running_streams_finish() {
    let server = Server::start(&[]);
    let mut body = request(9);
    body["max_tokens"] = json!(400);
    let mut stream = server.stream(&body).await;
    stream.next().await.unwrap();
    server.terminate();
    let ids = stream.token_ids().await;
    assert!(ids.len() > 300, "{} tokens after the signal", ids.len());
    let url = server.url.clone();
    assert!(server.wait().success());
    let refused = reqwest::Client::new().get(url).timeout(Duration::from_secs(1)).send().await;
    assert!(refused.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_and_a_wrong_model_end_with_a_message() {
    let server = Server::start(&[]);
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    for (arguments, expected) in [
        (vec!["--port", port.as_str()], "can't listen on"),
        (vec!["--port", "0", "--model", "./no-such-folder"], "no-such-folder"),
        (vec!["--port", "0", "--max-num-seqs", "0"], "max-num-seqs is 0"),
        (vec!["--port", "0", "--max-model-len", "100000000"], "100000000 is above"),
    ] {
        let output = program().arg("serve").args(&arguments).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("panicked"), "{message}");
    }
}
