//! Ollama's other routes: vectors, what is told of the model, and what is refused.

use sconce::config::ServerConfig;
use serde_json::{Value, json};

use super::contracts::Contract;
use super::fixture::{CONTEXT, Server, Setup, bytes, say};
use super::ollama::{CHAT, GENERATE};

const EMBED: &str = "/api/embed";

async fn embed(server: &Server, fields: Value) -> super::client::Answer {
    let mut body = json!({"model": "tiny"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    server.client.post(EMBED, &body).await
}

#[tokio::test]
async fn texts_become_vectors_of_length_one() {
    let server = Server::saying("x").await;
    let answer = embed(&server, json!({"input": ["ab", "c"]})).await;
    Contract::own(&server.client).await.check(&answer.json(), "OllamaEmbedAnswer");
    let body = answer.json();
    assert_eq!((&body["model"], &body["prompt_eval_count"]), (&json!("tiny"), &json!(3)));
    let vectors: Vec<Vec<f64>> = serde_json::from_value(body["embeddings"].clone()).unwrap();
    let length = |vector: &Vec<f64>| vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(vectors.iter().all(|vector| (length(vector) - 1.0).abs() < 1e-6));
    assert!((vectors[0][0] / vectors[0][1] - 2.0 / 97.0).abs() < 1e-6, "{vectors:?}");
    let one = embed(&server, json!({"input": "ab", "dimensions": 2})).await.json();
    let one: Vec<f64> = serde_json::from_value(one["embeddings"][0].clone()).unwrap();
    assert!(one.len() == 2 && (length(&one) - 1.0).abs() < 1e-6, "{one:?}");
    for nothing in [json!({}), json!({"input": ""}), json!({"input": []})] {
        assert_eq!(embed(&server, nothing).await.json()["embeddings"], json!([]));
    }
}

#[tokio::test]
async fn long_texts_are_cut_unless_the_request_says_no() {
    let server = Server::saying("x").await;
    let long = "a".repeat(CONTEXT + 9);
    let cut = embed(&server, json!({"input": long})).await;
    assert_eq!(cut.json()["prompt_eval_count"], CONTEXT);
    let shorter = embed(&server, json!({"input": long, "options": {"num_ctx": 10}})).await;
    assert_eq!(shorter.json()["prompt_eval_count"], 10);
    let refused = embed(&server, json!({"input": long, "truncate": false})).await;
    assert_eq!(refused.status, 400);
    let words = refused.json()["error"].as_str().unwrap().to_owned();
    assert!(words.contains("maximum context length is 512 tokens"), "{words}");
}

#[tokio::test]
async fn bounds_of_texts_are_told() {
    let server = Server::saying("x").await;
    for (fields, words) in [
        (json!({"input": ["a", ""]}), "input[1] must not be an empty string"),
        (json!({"input": [""]}), "input must not be an empty string"),
        (json!({"input": 3}), "input must be a string or a list of strings"),
        (json!({"input": [1]}), "input[0]"),
        (json!({"input": "a", "dimensions": 5}), "dimensions must be in [0, 4], got 5"),
        (json!({"input": "a", "options": {"num_ctx": -1}}), "options.num_ctx"),
        (json!({"input": vec!["a"; 2049]}), "at most 2048 texts, got 2049"),
    ] {
        let refused = embed(&server, fields).await;
        let text = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && text.contains(words), "{text}");
    }
    let told = json!({"input": "a", "options": {"temperature": 0.5, "seed": null}});
    let told = embed(&server, told).await;
    assert_eq!(told.header("x-sconce-ignored"), Some("options.temperature"));
}

#[tokio::test]
async fn the_older_route_gives_one_vector() {
    let server = Server::saying("x").await;
    let path = "/api/embeddings";
    let answer = server.client.post(path, &json!({"model": "tiny", "prompt": "ab"})).await;
    Contract::own(&server.client).await.check(&answer.json(), "OllamaEmbeddingsAnswer");
    let asked = server.engine.embeddings().pop().unwrap();
    assert_eq!((asked.token_ids, asked.wanted.activation), (bytes("ab"), None));
    let nothing = server.client.post(path, &json!({"model": "tiny"})).await;
    assert_eq!(nothing.json(), json!({"embedding": []}));
}

#[tokio::test]
async fn the_model_is_told_under_all_of_its_names() {
    let server = Server::saying("x").await;
    let contract = Contract::own(&server.client).await;
    let tags = server.client.get("/api/tags").await.json();
    contract.check(&tags, "OllamaModels");
    let names: Vec<&Value> =
        tags["models"].as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert_eq!(names, ["tiny", "org/alias"]);
    assert_eq!(tags["models"][0]["details"]["quantization_level"], "F32");
    assert_eq!(tags["models"][0]["capabilities"], json!(["completion", "tools", "thinking"]));
    assert_eq!(tags["models"][0]["digest"].as_str().unwrap().len(), 64);
    let ps = server.client.get("/api/ps").await.json();
    contract.check(&ps, "OllamaProcesses");
    assert_eq!(ps["models"][0]["context_length"], CONTEXT);
    let version = server.client.get("/api/version").await.json();
    contract.check(&version, "OllamaVersion");
    assert_eq!(server.client.request("HEAD", "/api/version").await.status, 200);
}

#[tokio::test]
async fn a_model_is_shown_by_either_name_of_the_field() {
    let server = Server::saying("x").await;
    let contract = Contract::own(&server.client).await;
    for field in ["model", "name"] {
        let shown = server.client.post("/api/show", &json!({field: "tiny"})).await.json();
        contract.check(&shown, "OllamaShown");
        assert!(shown["template"].as_str().unwrap().contains("im_start"));
        assert_eq!(shown["model_info"]["tiny.context_length"], CONTEXT);
    }
    assert_eq!(server.client.post("/api/show", &json!({"model": "x"})).await.status, 404);
    let nameless = server.client.post("/api/show", &json!({})).await;
    assert_eq!((nameless.status, nameless.json()), (400, json!({"error": "model is required"})));
}

#[tokio::test]
async fn models_are_neither_fetched_nor_changed() {
    let server = Server::saying("x").await;
    for (method, path) in [
        ("POST", "/api/pull"),
        ("POST", "/api/push"),
        ("POST", "/api/create"),
        ("POST", "/api/copy"),
        ("DELETE", "/api/delete"),
        ("POST", "/api/blobs/sha256:0"),
    ] {
        let answer = server.client.request(method, path).await;
        let words = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && words.starts_with(path), "{words}");
    }
    let unknown = server.client.get("/api/me").await;
    assert_eq!(unknown.json(), json!({"error": "there is no route /api/me"}));
    let wrong = server.client.get(CHAT).await;
    assert_eq!(wrong.status, 405);
    assert!(wrong.json()["error"].is_string());
}

#[tokio::test]
async fn a_model_that_only_embeds_says_so() {
    let mut setup = Setup::default();
    setup.limits.generates = false;
    let server = Server::start(setup, |_| say("x")).await;
    for (path, body) in [
        (CHAT, json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]})),
        (GENERATE, json!({"model": "tiny", "prompt": "Hi"})),
    ] {
        let refused = server.client.post(path, &body).await;
        let words = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && words.contains("only embeds"), "{words}");
    }
    assert_eq!(embed(&server, json!({"input": "a"})).await.status, 200);
    let tags = server.client.get("/api/tags").await.json();
    assert_eq!(tags["models"][0]["capabilities"], json!(["embedding"]));
}

#[tokio::test]
async fn keys_are_asked_for_here_too() {
    let config = ServerConfig {
        api_keys: vec!["secret".to_owned()],
        served_model_names: vec!["tiny".to_owned()],
        ..ServerConfig::default()
    };
    let server = Server::start(Setup { config, ..Setup::default() }, |_| say("x")).await;
    let refused = server.client.get("/api/tags").await;
    assert_eq!(refused.status, 401);
    assert!(refused.json()["error"].as_str().unwrap().contains("no API key"));
    let key = [("authorization", "Bearer secret")];
    assert_eq!(server.client.get_with("/api/tags", &key).await.status, 200);
}
