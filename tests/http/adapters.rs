//! Adapters as models: loaded, listed, chosen, refused and unloaded over HTTP.

use sconce::config::{LoraServing, ServerConfig};
use sconce::engine::EngineLimits;
use sconce::engine::adapter::Adapter;
use sconce::layers::adapter::{Projection, Site};
use sconce::models::adapter::{AdaptableModule, AdapterLayout};
use serde_json::{Value, json};

use super::client::{Answer, read_until};
use super::fixture::{Server, Setup, chat, completion, endless, say};
use crate::lora_folder::WrittenAdapter;

const LOAD: &str = "/v1/load_lora_adapter";
const UNLOAD: &str = "/v1/unload_lora_adapter";

fn setup() -> Setup {
    let setup = Setup::default();
    let query = Site::Layer(0, Projection::Query);
    let module = AdaptableModule::whole("layers.0.self_attn.q_proj".to_owned(), 4, 6, query);
    Setup {
        layout: Some(AdapterLayout {
            roots: &["model."],
            modules: vec![module],
            embeddings: Vec::new(),
        }),
        config: ServerConfig {
            lora: LoraServing { max_loras: 2, at_run_time: true },
            ..setup.config
        },
        ..setup
    }
}

async fn server() -> Server {
    Server::start(setup(), |_| say("yes")).await
}

fn written() -> WrittenAdapter {
    WrittenAdapter::new(&[("model.layers.0.self_attn.q_proj", 4, 6)], 1)
}

async fn load(server: &Server, name: &str, path: &str) -> Answer {
    server.client.post(LOAD, &json!({"lora_name": name, "lora_path": path})).await
}

async fn listed(server: &Server) -> Vec<Value> {
    let body = server.client.get("/v1/models").await.json();
    body["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_adapter_is_a_model_from_its_load_to_its_unload() {
    let (server, written) = (server().await, written());
    let answer = load(&server, "sql", written.path()).await;
    assert_eq!(
        (answer.status, &*answer.text),
        (200, "Success: LoRA adapter 'sql' added successfully.")
    );
    let models = listed(&server).await;
    let ids: Vec<&str> = models.iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["tiny", "org/alias", "sql"]);
    assert_eq!(models[0]["parent"], Value::Null);
    assert_eq!(
        (&models[2]["parent"], &models[2]["root"]),
        (&json!("tiny"), &json!(written.path()))
    );
    assert_eq!(server.client.get("/v1/models/sql").await.json(), models[2]);
    let document = server.client.get("/openapi.json").await.json();
    let names = &document["components"]["schemas"]["ModelName"]["enum"];
    assert_eq!(names, &json!(["tiny", "org/alias", "sql"]));

    let answer = server.client.chat(&chat(json!({"model": "sql"}))).await.json();
    assert_eq!(answer["model"], "sql");
    let answer = server.client.post(UNLOAD, &json!({"lora_name": "sql"})).await;
    assert_eq!(
        (answer.status, &*answer.text),
        (200, "Success: LoRA adapter 'sql' removed successfully.")
    );
    assert_eq!(listed(&server).await.len(), 2);
    server.client.get("/v1/models/sql").await.error(404, "invalid_request_error", Some("model"));
    let refused = server.client.chat(&chat(json!({"model": "sql"}))).await;
    refused.error(404, "invalid_request_error", Some("model"));
}

#[tokio::test]
async fn every_endpoint_takes_an_adapter_for_its_model() {
    let (server, written) = (server().await, written());
    load(&server, "sql", written.path()).await;
    let message = json!([{"role": "user", "content": "Hi"}]);
    for model in ["sql", "tiny", "org/alias"] {
        let with = |fields: Value| {
            let mut body = json!({"model": model});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            body
        };
        let before = server.engine.requests().len();
        for (path, body) in [
            ("/v1/chat/completions", chat(with(json!({"n": 2})))),
            ("/v1/completions", completion(with(json!({"prompt": ["a", "b"]})))),
            ("/v1/responses", with(json!({"input": "Hi"}))),
            ("/v1/messages", with(json!({"messages": message, "max_tokens": 4}))),
            ("/v1/completions", completion(with(json!({"use_beam_search": true, "n": 2})))),
        ] {
            let answer = server.client.post(path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        let embedded = server.client.post("/v1/embeddings", &with(json!({"input": "Hi"}))).await;
        assert_eq!(embedded.json()["model"], model);
        for path in ["/tokenize", "/v1/chat/completions/render"] {
            let answer = server.client.post(path, &with(json!({"messages": message}))).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
        let name = (model == "sql").then_some("sql");
        let requests = server.engine.requests().split_off(before);
        assert!(requests.len() >= 7);
        for request in requests {
            assert_eq!(request.adapter.as_ref().map(Adapter::name), name);
        }
        let embeddings = server.engine.embeddings();
        let last = embeddings.last().unwrap().adapter.as_ref();
        assert_eq!(last.map(Adapter::name), name);
    }
}

#[tokio::test]
async fn what_can_not_be_loaded_is_refused_as_vllm_does() {
    let (server, written) = (server().await, written());
    let path = written.path();
    assert_eq!(load(&server, "sql", path).await.status, 200);
    let invalid = "invalid_request_error";
    let error = |answer: Answer, status, param| answer.error(status, invalid, param);
    let message = error(load(&server, "sql", path).await, 400, Some("lora_name"));
    assert!(message.contains("'sql' has already been loaded"), "{message}");
    let message = error(load(&server, "org/alias", path).await, 400, Some("lora_name"));
    assert!(message.contains("conflicts with a served base model"), "{message}");
    let message = error(load(&server, "x", "/no/such").await, 404, None);
    assert_eq!(message, "Loading lora x failed: no adapter found for /no/such");
    let message = error(load(&server, "", path).await, 400, Some("lora_name"));
    assert!(message.contains("lora_name is required"), "{message}");
    let dora = self::written().with_config(&json!({"use_dora": true}));
    let message = error(load(&server, "x", dora.path()).await, 400, Some("lora_path"));
    assert!(message.contains("`use_dora` is true; DoRA is not supported"), "{message}");
    for (body, param) in [
        (json!({"lora_name": "x"}), "lora_path"),
        (json!({"lora_name": 1, "lora_path": path}), "lora_name"),
        (
            json!({"lora_name": "x", "lora_path": path, "is_3d_lora_weight": true}),
            "is_3d_lora_weight",
        ),
        (json!({"lora_name": "x", "lora_path": path, "scale": 2}), "scale"),
    ] {
        error(server.client.post(LOAD, &body).await, 400, Some(param));
    }
    let body = json!({"lora_name": "y"});
    let message = error(server.client.post(UNLOAD, &body).await, 404, None);
    assert_eq!(message, "The lora adapter 'y' cannot be found.");
    error(server.client.post(UNLOAD, &json!({})).await, 400, Some("lora_name"));

    assert_eq!(load(&server, "second", path).await.status, 200);
    let message = error(load(&server, "third", path).await, 400, Some("lora_name"));
    assert!(message.contains("2 adapters are loaded, max-loras is 2"), "{message}");
    let metrics = server.client.get("/metrics").await.text;
    assert!(metrics.contains("vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"\""));
}

#[tokio::test]
async fn an_adapter_loaded_in_place_is_another_one() {
    let (server, written) = (server().await, written());
    let body = json!({"lora_name": "sql", "lora_path": written.path(), "load_inplace": true});
    for _ in 0..2 {
        assert_eq!(server.client.post(LOAD, &body).await.status, 200);
        server.client.complete(&completion(json!({"model": "sql"}))).await;
    }
    assert_eq!(listed(&server).await.len(), 3);
    let adapters: Vec<_> =
        server.engine.requests().into_iter().map(|request| request.adapter.unwrap()).collect();
    assert_ne!(adapters[0], adapters[1]);
}

#[tokio::test]
async fn a_running_stream_outlives_its_adapters_name() {
    let server = Server::start(setup(), |_| endless("ab")).await;
    let written = written();
    load(&server, "sql", written.path()).await;
    let body = completion(json!({"model": "sql", "stream": true, "max_tokens": 100}));
    let mut socket = server.client.open("/v1/completions", &body).await;
    read_until(&mut socket, "\"text\":\"a\"").await;
    let answer = server.client.post(UNLOAD, &json!({"lora_name": "sql"})).await;
    assert_eq!(answer.status, 200);
    let rest = read_until(&mut socket, "[DONE]").await;
    assert!(rest.contains("\"finish_reason\":\"length\"") && rest.contains("\"model\":\"sql\""));
    assert!(server.engine.aborts().is_empty());
}

#[tokio::test]
async fn adapters_come_and_go_only_where_that_is_allowed() {
    let written = written();
    let setup = setup();
    let config = ServerConfig { lora: LoraServing::default(), ..setup.config };
    let server = Server::start(Setup { config, ..setup }, |_| say("x")).await;
    for (path, body) in [
        (LOAD, json!({"lora_name": "x", "lora_path": written.path()})),
        (UNLOAD, json!({"lora_name": "x"})),
    ] {
        let message = server.client.post(path, &body).await.error(403, "permission_error", None);
        assert!(message.contains("--allow-runtime-lora-updating"), "{message}");
    }
    assert!(!server.client.get("/metrics").await.text.contains("max_lora="));
}

#[tokio::test]
async fn models_without_decoder_layers_take_none() {
    let written = written();
    let setup = || Setup { layout: None, ..setup() };
    let server = Server::start(setup(), |_| say("x")).await;
    let refused = load(&server, "x", written.path()).await;
    let message = refused.error(400, "invalid_request_error", Some("lora_path"));
    assert!(message.contains("the model takes no LoRA adapters"), "{message}");
    let limits = EngineLimits { generates: false, ..setup().limits };
    let server = Server::start(Setup { limits, ..setup() }, |_| say("x")).await;
    let refused = load(&server, "x", written.path()).await;
    refused.error(400, "invalid_request_error", None);
}

#[tokio::test]
async fn only_an_administrators_key_changes_what_is_served() {
    let mut setup = setup();
    setup.config.api_keys = vec!["user".to_owned()];
    setup.config.admin_api_keys = vec!["admin".to_owned()];
    let (server, written) = (Server::start(setup, |_| say("yes")).await, written());
    let post = async |path: &str, body: &Value, key: &str| {
        let bearer = format!("Bearer {key}");
        server.client.post_with(path, body, &[("authorization", bearer.as_str())]).await
    };
    let body = json!({"lora_name": "sql", "lora_path": written.path()});
    post(LOAD, &body, "nobody").await.error(401, "authentication_error", None);
    let refused = post(LOAD, &body, "user").await;
    refused.error(403, "permission_error", None);
    assert!(refused.text.contains("--admin-api-key"), "{}", refused.text);
    assert_eq!(post(LOAD, &body, "admin").await.status, 200);
    let unload = json!({"lora_name": "sql"});
    post(UNLOAD, &unload, "user").await.error(403, "permission_error", None);
    // Whoever administers may use, too.
    for key in ["user", "admin"] {
        let answer = post("/v1/completions", &completion(json!({"model": "sql"})), key).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(post(UNLOAD, &unload, "admin").await.status, 200);
}

#[tokio::test]
async fn without_an_administrators_key_no_key_changes_what_is_served() {
    let mut setup = setup();
    setup.config.api_keys = vec!["user".to_owned()];
    let (server, written) = (Server::start(setup, |_| say("yes")).await, written());
    let body = json!({"lora_name": "sql", "lora_path": written.path()});
    let answer = server.client.post_with(LOAD, &body, &[("authorization", "Bearer user")]).await;
    answer.error(403, "permission_error", None);
}
