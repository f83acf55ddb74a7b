//! A model that makes several things of a text: a vector, and a weight and a vector of every token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sconce::engine::{EngineLimits, Outputs};
use sconce::text::special_tokens::SpecialTokens;
use serde_json::{Value, json};

use super::fixture::{EOS, IM_END, IM_START, Server, Setup, say};

const BAD: &str = "invalid_request_error";

/// A server whose texts begin and end with tokens of their own. The weight of a token is its place in
/// the text, its vector the first letter's distance to `a` and its place.
async fn server() -> Server {
    let mut special_tokens = SpecialTokens::default();
    special_tokens.set("cls_token", "<|im_start|>");
    special_tokens.set("eos_token", "<|im_end|>");
    special_tokens.set("unk_token", "<|endoftext|>");
    let usual = Setup::default();
    let further = vec![(Outputs::TokenWeights, 1), (Outputs::TokenEmbeddings, 2)];
    let limits = EngineLimits { further, generates: false, ..usual.limits };
    let setup = Setup { limits, special_tokens, embeds: true, ..usual };
    Server::start(setup, |_| say("x")).await
}

/// `aba`, between the tokens that begin and end a text.
fn text() -> Value {
    json!([IM_START, 97, 98, 97, IM_END])
}

fn near(ours: [f64; 2], theirs: [f64; 2]) {
    let apart = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs());
    assert!(apart.fold(0.0, f64::max) < 1e-6, "{ours:?} and {theirs:?}");
}

async fn pooled(server: &Server, fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": text()});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let answer = server.client.post("/pooling", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["data"][0]["data"].clone()
}

#[tokio::test]
async fn pooling_has_each_by_the_name_of_its_task() {
    let server = server().await;
    let task = async |task: &str| pooled(&server, json!({"task": task})).await;
    // Neither begins nor ends a text.
    assert_eq!(task("token_classify").await, json!([1.0, 2.0, 3.0]));
    // The token that begins it has no vector.
    let vectors = json!([[0.0, 1.0], [1.0, 2.0], [0.0, 3.0], [163.0, 4.0]]);
    assert_eq!(task("token_embed").await, vectors);
    assert_eq!(task("encode").await, vectors);
    let embedding = pooled(&server, json!({"use_activation": false})).await;
    assert_eq!(embedding, json!([5.0, f64::from(IM_START), f64::from(IM_END), -1.0]));
    let fields = json!({"task": "token_classify", "encoding_format": "base64"});
    let bytes = STANDARD.decode(pooled(&server, fields).await.as_str().unwrap()).unwrap();
    assert_eq!(bytes, [1.0f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
    // Without special tokens nothing is left out.
    let fields = json!({"task": "token_classify", "input": [97, 98]});
    assert_eq!(pooled(&server, fields).await, json!([0.0, 1.0]));
}

#[tokio::test]
async fn sparse_vectors_have_the_largest_weight_of_each_token() {
    let server = server().await;
    let inputs = ["<|im_start|>aba<|endoftext|>c<|im_end|>", "zz"];
    let answer = server.client.post("/embed_sparse", &json!({"inputs": inputs})).await;
    let element = |index: u32, value: f64| json!({"index": index, "value": value});
    let expected =
        json!([[element(97, 3.0), element(98, 2.0), element(99, 5.0)], [element(122, 1.0)]]);
    assert_eq!(answer.json(), expected);
    assert_eq!(server.engine.embeddings()[0].token_ids[4], EOS);
}

#[tokio::test]
async fn a_request_says_what_texts_are_compared_by() {
    let server = server().await;
    let score = async |task: Value| {
        let body = json!({"text_1": "<|im_start|>ab", "text_2": ["bab", "zz"], "task": task});
        let answer = server.client.post("/score", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        [0, 1].map(|at| body["data"][at]["score"].as_f64().unwrap())
    };
    // Of `bab` the weights are 0, 1 and 2; it begins with no special token.
    near(score(json!("token_classify")).await, [1.0 * 1.0 + 2.0 * 2.0, 0.0]);
    // a at 1 and b at 2, each with the best of [1, 0], [0, 1], [1, 2], and of [25, 0], [25, 1].
    near(score(json!("token_embed")).await, [2.0 + 5.0, 1.0 + 27.0]);
    let usual = score(Value::Null).await;
    near(usual, score(json!("embed")).await);
    assert!(usual.iter().all(|cosine| cosine.abs() <= 1.0), "{usual:?}");
    let body =
        json!({"query": "<|im_start|>ab", "documents": ["bab", "zz"], "task": "token_embed"});
    let ranked = server.client.post("/rerank", &body).await.json();
    assert_eq!(
        (&ranked["results"][0]["index"], &ranked["results"][1]["index"]),
        (&json!(1), &json!(0))
    );
    let asked: Vec<_> = server.engine.embeddings().iter().map(|one| one.wanted.outputs).collect();
    assert_eq!(asked[0], Some(Outputs::TokenWeights));
    assert_eq!(asked.last(), Some(&Some(Outputs::TokenEmbeddings)));
}

#[tokio::test]
async fn what_a_model_has_not_is_refused_by_name() {
    let plain = Server::saying("x").await;
    let several = server().await;
    let pooling = async |server: &Server, fields: Value| {
        let mut body = json!({"model": "tiny", "input": "ab"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.client.post("/pooling", &body).await
    };
    let message =
        pooling(&plain, json!({"task": "token_classify"})).await.error(400, BAD, Some("task"));
    assert!(message.contains("gives Embedding"), "{message}");
    pooling(&several, json!({"task": "classify"})).await.error(400, BAD, Some("task"));
    let cut = json!({"task": "token_embed", "dimensions": 1});
    pooling(&several, cut).await.error(400, BAD, Some("dimensions"));
    for (server, task) in [
        (&plain, "token_embed"),
        (&plain, "token_classify"),
        (&several, "classify"),
        (&several, "colbert"),
    ] {
        let body = json!({"text_1": "a", "text_2": "b", "task": task});
        server.client.post("/score", &body).await.error(400, BAD, Some("task"));
        let body = json!({"query": "a", "documents": ["b"], "task": task});
        server.client.post("/v1/rerank", &body).await.error(400, BAD, Some("task"));
    }
    let answer = plain.client.post("/embed_sparse", &json!({"inputs": "ab"})).await;
    assert!(answer.status >= 400 && answer.text.contains("sparse embeddings"), "{}", answer.text);
    assert!(plain.engine.embeddings().is_empty() && several.engine.embeddings().is_empty());
}

#[tokio::test]
async fn hidden_states_are_those_of_the_network_in_any_case() {
    for server in [server().await, Server::saying("x").await] {
        assert_eq!(server.client.post("/embed_all", &json!({"inputs": "ab"})).await.status, 200);
        let wanted = server.engine.embeddings()[0].wanted;
        assert_eq!(wanted.outputs, Some(Outputs::HiddenStates));
    }
    // A network that weighs the vocabulary has one row for a whole text.
    let usual = Setup::default();
    let limits = EngineLimits { outputs: Outputs::Lexical, generates: false, ..usual.limits };
    let lexical = Server::start(Setup { limits, ..usual }, |_| say("x")).await;
    let answer = lexical.client.post("/embed_all", &json!({"inputs": "ab"})).await;
    assert!(answer.status >= 400 && answer.text.contains("makes none"), "{}", answer.text);
}
