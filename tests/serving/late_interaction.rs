//! Models of late interaction by the real program, beside sentence-transformers.
//!
//! The expected numbers are made by `tests/fixtures/make_colbert.py`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::server::Server;

const MODELS: [&str; 5] =
    ["pylate_modern_bert", "pylate_bert", "pylate_plain", "colbert_bert", "multi_vector"];

#[derive(Deserialize)]
struct Reference {
    queries: Vec<Text>,
    documents: Vec<Text>,
    /// Of each query for each document.
    scores: Vec<Vec<f64>>,
}

/// A text, and the vectors of its tokens that count.
#[derive(Deserialize)]
struct Text {
    text: String,
    vectors: Vec<Vec<f64>>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/colbert").join(name)
}

fn reference(name: &str) -> Reference {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn serve(name: &str) -> Server {
    let folder = folder(name);
    Server::start(&["--model", folder.to_str().unwrap(), "--served-model-name", "m"])
}

fn assert_near(ours: &Value, theirs: &[Vec<f64>], what: &str) {
    let ours: Vec<Vec<f64>> = serde_json::from_value(ours.clone()).unwrap_or_default();
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.concat().iter().zip(theirs.concat()) {
        assert!((a - b).abs() < 1e-5, "{what}: {a} and {b}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_and_scores_are_those_of_sentence_transformers() {
    for name in MODELS {
        let server = serve(name);
        let Reference { queries, documents, scores } = reference(name);
        for (side, texts) in [("query", &queries), ("document", &documents)] {
            for Text { text, vectors } in texts {
                let what = format!("{name}, {side} {text:?}");
                let body = json!({"input": text, "task": "token_embed", "prompt_name": side});
                let answer = server.post("/pooling", &body).await;
                assert_near(&answer["data"][0]["data"], vectors, &what);
                let body = json!({"inputs": text, "prompt_name": side});
                assert_near(&server.post("/embed_all", &body).await[0], vectors, &what);
            }
        }
        // Without a name a text is a document.
        let answer = server.post("/pooling", &json!({"input": documents[0].text})).await;
        assert_near(&answer["data"][0]["data"], &documents[0].vectors, name);
        let texts: Vec<&str> = documents.iter().map(|document| &*document.text).collect();
        for (query, scores) in queries.iter().zip(&scores) {
            let body = json!({"text_1": query.text, "text_2": texts});
            let answer = server.post("/score", &body).await;
            for (index, score) in scores.iter().enumerate() {
                let ours = answer["data"][index]["score"].as_f64().unwrap();
                assert!((ours - score).abs() < 5e-5, "{name}: {ours} and {score}");
            }
            let body = json!({"query": query.text, "documents": texts});
            let best = server.post("/rerank", &body).await["results"][0]["index"].as_u64().unwrap();
            let best = scores[usize::try_from(best).unwrap()];
            assert!(scores.iter().all(|score| *score < best + 5e-5), "{name}: {scores:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_has_a_length_of_its_own() {
    let server = serve("pylate_bert");
    let message =
        |answer: Value| answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    let long = "the dog ".repeat(10);
    let pooled = async |side: &str, more: Value| {
        let mut body = json!({"input": long, "prompt_name": side});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/pooling", &body).await
    };
    // 20 words and 2 special tokens, of 60 with the prefix; queries have 16.
    let document = pooled("document", json!({})).await;
    assert_eq!(document["usage"]["prompt_tokens"], 23, "{document}");
    let refused = message(pooled("query", json!({})).await);
    assert!(refused.contains("15 tokens") && refused.contains("22"), "{refused}");
    let cut = pooled("query", json!({"truncate_prompt_tokens": -1})).await;
    assert_eq!(cut["usage"]["prompt_tokens"], 16, "{cut}");
    let refused = message(pooled("passage", json!({})).await);
    assert!(refused.contains("prompt_name must be query or document"), "{refused}");
    let embedded = server.post("/v1/embeddings", &json!({"input": "x", "model": "m"})).await;
    assert!(!message(embedded).is_empty());
}
