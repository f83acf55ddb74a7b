//! Decisions by the real program: the same numbers as the logprobs of completions, alone and in
//! company, and the input computed once.

use futures::future::join_all;
use serde_json::{Value, json};

use super::server::Server;

/// Several questions of every type.
fn questions(count: usize) -> Value {
    let each = (0..count).map(|at| match at % 3 {
        0 => json!({"type": "predicate", "instructions": format!("Is there fox number {at}?")}),
        1 => json!({"type": "choice", "instructions": format!("Who is number {at}?"),
            "choices": [{"value": "a fox"}, {"value": "a lamp"}, {"value": "the sea"}]}),
        _ => json!({"type": "score", "instructions": format!("How brave, {at}?"),
            "levels": [{"label": "not"}, {"label": "a bit"}, {"label": "very"}]}),
    });
    each.collect()
}

async fn decide(server: &Server, input: &str, count: usize) -> Value {
    let body = json!({"model": "sconce-demo", "input": input, "questions": questions(count)});
    server.post("/v1/decisions", &body).await
}

/// The logprobs of tokens behind a prompt, as completions tell them.
async fn logprobs(server: &Server, prompt: &Value, labels: &[Value]) -> Vec<f64> {
    let body = json!({"model": "sconce-demo", "prompt": prompt, "max_tokens": 1, "temperature": 0,
        "logprobs": 0, "logprob_token_ids": labels, "return_tokens_as_token_ids": true});
    let answer = server.post("/v1/completions", &body).await;
    let top = &answer["choices"][0]["logprobs"]["top_logprobs"][0];
    let of = |label: &Value| top[format!("token_id:{label}")].as_f64();
    labels.iter().map(|label| of(label).unwrap_or_else(|| panic!("{answer}"))).collect()
}

async fn token(server: &Server, text: &str) -> Value {
    let body = json!({"prompt": text, "add_special_tokens": false});
    let tokens = server.post("/tokenize", &body).await["tokens"].clone();
    assert_eq!(tokens.as_array().unwrap().len(), 1, "{text:?}: {tokens}");
    tokens[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn probabilities_are_those_of_completions() {
    let server = Server::start(&[]);
    let answers = decide(&server, "Once upon a time.", 3).await["answers"].clone();
    let asked = "Answer with the label of one of the answers only.\nQuestion: Who is number 1?\nA: a fox\n\
                 B: a lamp\nC: the sea";
    let chat = json!({"model": "sconce-demo", "enable_thinking": false,
        "messages": [{"role": "user", "content": format!("Once upon a time.\n\n{asked}")}]});
    let prompt = server.post("/v1/chat/completions/render", &chat).await["token_ids"].clone();
    let mut labels = Vec::new();
    for label in ["A", "B", "C"] {
        labels.push(token(&server, label).await);
    }
    let logprobs = logprobs(&server, &prompt, &labels).await;
    let sum: f64 = logprobs.iter().map(|logprob| logprob.exp()).sum();
    for (at, logprob) in logprobs.iter().enumerate() {
        let told = answers[1]["probabilities"][at]["probability"].as_f64().unwrap();
        assert!((told - logprob.exp() / sum).abs() < 1e-9, "{told} for {logprobs:?}");
    }
    let mass = answers[1]["label_mass"].as_f64().unwrap();
    assert!((mass - sum).abs() < 1e-9, "{mass} for {sum}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_don_t_depend_on_company_or_cache() {
    let input = "Once upon a time in a quiet village there lived a fox. ".repeat(12);
    let alone = Server::start(&["--no-prefix-cache", "--max-num-seqs", "1"]);
    let expected = decide(&alone, &input, 12).await["answers"].clone();
    let busy = Server::start(&["--max-num-batched-tokens", "48", "--max-num-seqs", "16"]);
    let mut streams = Vec::new();
    for i in 0..8 {
        streams.push(busy.stream(&super::request(i)).await);
    }
    for _ in ["cold", "warm"] {
        let several = join_all((0..3).map(|_| decide(&busy, &input, 12))).await;
        for answer in several {
            assert_eq!(answer["answers"], expected);
        }
    }
    for (i, stream) in streams.into_iter().enumerate() {
        assert_eq!(stream.token_ids().await.len(), 40 + 12 * i);
    }
    busy.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_input_is_computed_once() {
    let server = Server::start(&[]);
    let input = "Once upon a time in a quiet village there lived a fox. ".repeat(12);
    let first = decide(&server, &input, 20).await["usage"].clone();
    assert_eq!(first["input_tokens_details"]["cached_tokens"], 0);
    let computed = server.metric("vllm:prompt_tokens_total").await
        - server.metric("vllm:prefix_cache_hits_total").await;
    let counted = first["input_tokens"].as_f64().unwrap();
    // Blocks are shared whole: each question may compute the rest of one again.
    assert!(computed < counted + 20.0 * 32.0, "{computed} computed, {counted} counted");
    let again = decide(&server, &input, 20).await["usage"].clone();
    assert!(again["input_tokens_details"]["cached_tokens"].as_u64().unwrap() > 100, "{again}");
}
