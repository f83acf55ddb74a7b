//! Scores and classes by the real program, as clients of vLLM ask for them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::server::Server;

const TEMPLATE: &str = "{% for message in messages %}{{ message.content }} \
                        {% endfor %}{% if add_generation_prompt %}the dog{% endif %}";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/classifiers").join(name)
}

fn serve(name: &str, flags: &[&str]) -> Server {
    let folder = folder(name);
    let model = ["--model", folder.to_str().unwrap(), "--served-model-name", "m"];
    Server::start(&[&model[..], flags].concat())
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_classified_as_the_template_renders_them() {
    let template = NamedTempFile::new().unwrap();
    std::fs::write(template.path(), TEMPLATE).unwrap();
    let server = serve("bert_emotions", &["--chat-template", template.path().to_str().unwrap()]);
    let messages = json!([
        {"role": "user", "content": "a fox"}, {"role": "assistant", "content": "hello"},
    ]);
    for (fields, text) in [
        (json!({}), "a fox hello"),
        (json!({"add_generation_prompt": true}), "a fox hello the dog"),
    ] {
        let mut chat = json!({"model": "m", "messages": messages});
        chat.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        // The template writes the special tokens, if there are any.
        let plain = json!({"model": "m", "input": text, "add_special_tokens": false});
        for (route, field) in [("/classify", "probs"), ("/pooling", "data")] {
            let ours = server.post(route, &chat).await;
            let expected = server.post(route, &plain).await;
            assert_eq!(ours["data"][0][field], expected["data"][0][field], "{route} {ours}");
            assert_eq!(ours["usage"], expected["usage"]);
            assert_eq!(expected["data"][0][field].as_array().unwrap().len(), 3, "{expected}");
        }
        let special = {
            let mut chat = chat.clone();
            chat["add_special_tokens"] = json!(true);
            server.post("/classify", &chat).await["usage"]["prompt_tokens"].as_u64().unwrap()
        };
        let without = server.post("/classify", &chat).await["usage"]["prompt_tokens"].as_u64();
        assert_eq!(special, without.unwrap() + 2);
    }
    let both = json!({"messages": messages, "continue_final_message": true,
        "add_generation_prompt": true});
    let refused = server.post("/classify", &both).await;
    assert!(message(&refused).contains("add_generation_prompt"), "{refused}");
    let refused = server.post("/pooling", &json!({"messages": messages, "input": "x"})).await;
    assert_eq!(refused["error"]["param"], "messages", "{refused}");
    let invoked = server.post("/invocations", &json!({"messages": messages})).await;
    let classified = server.post("/classify", &json!({"messages": messages})).await;
    assert_eq!(invoked["data"], classified["data"]);
    let invoked = server.post("/invocations", &json!({"input": ["a fox", "x"]})).await;
    assert_eq!(invoked["data"].as_array().unwrap().len(), 2, "{invoked}");
    assert_eq!(invoked["data"][0]["num_classes"], 3, "{invoked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_of_pairs_can_be_cut_and_one_route_takes_pairs() {
    let server = serve("bert_rank", &[]);
    let tokens = async |fields: Value| {
        let mut body = json!({"query": "the quick brown fox", "documents": ["the dog the dog"]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = server.post("/rerank", &body).await;
        answer["usage"]["prompt_tokens"].as_u64().unwrap_or_else(|| panic!("{answer}"))
    };
    let whole = tokens(json!({})).await;
    assert_eq!(tokens(json!({"max_tokens_per_doc": 0, "max_tokens_per_query": 0})).await, whole);
    assert_eq!(tokens(json!({"max_tokens_per_doc": 1})).await, whole - 3);
    assert_eq!(tokens(json!({"max_tokens_per_query": 1})).await, whole - 3);
    assert_eq!(
        tokens(json!({"max_tokens_per_query": 1, "max_tokens_per_doc": 2})).await,
        whole - 5
    );
    for field in ["max_tokens_per_doc", "max_tokens_per_query"] {
        let body = json!({"queries": "a", "documents": "b", field: -5});
        let refused = server.post("/score", &body).await;
        assert_eq!(refused["error"]["param"], field, "{refused}");
    }
    for (route, body) in [
        ("/rerank", json!({"query": "a fox", "documents": ["the dog", "hello world"]})),
        ("/score", json!({"text_1": "a fox", "text_2": ["the dog", "hello world"]})),
    ] {
        let (own, invoked) =
            (server.post(route, &body).await, server.post("/invocations", &body).await);
        let field = if route == "/score" { "data" } else { "results" };
        assert_eq!(own[field].as_array().unwrap().len(), 2, "{own}");
        assert_eq!(own[field], invoked[field], "{route}");
    }
    let body = json!({"query": "a fox", "texts": ["the dog", "hello world"]});
    assert_eq!(server.post("/rerank", &body).await, server.post("/invocations", &body).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_may_stand_among_the_templates_variables() {
    let server = serve("qwen3_words_rank", &["--kv-cache-memory", "8MiB"]);
    let score = async |fields: Value| {
        let mut body = json!({"queries": "a fox", "documents": "the dog"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let answer = server.post("/score", &body).await;
        let score = answer["data"][0]["score"].as_f64();
        (score.unwrap_or_else(|| panic!("{answer}")), answer["usage"]["prompt_tokens"].clone())
    };
    let told = score(json!({"instruction": "find dogs"})).await;
    assert_ne!(told, score(json!({})).await);
    let variables = json!({"chat_template_kwargs": {"instruction": "find dogs"}});
    assert_eq!(score(variables).await, told);
    let both = json!({"chat_template_kwargs": {"instruction": "find dogs"}, "instruction": "x"});
    assert_eq!(score(both).await, told);
}
