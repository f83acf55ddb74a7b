//! `/v1/embeddings`: inputs in all shapes, formats, bounds, and servers that only embed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sconce::config::ServerConfig;
use serde_json::{Value, json};

use super::fake_engine::Script;
use super::fixture::{CONTEXT, Server, Setup, VOCAB, bytes, chat, completion};

fn embed(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "Hi", "normalize": false});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn post(server: &Server, fields: Value) -> super::client::Answer {
    server.client.post("/v1/embeddings", &embed(fields)).await
}

/// The vectors of an answer, after a check of their order.
fn vectors(body: &Value) -> Vec<Vec<f64>> {
    let data = body["data"].as_array().unwrap_or_else(|| panic!("{body}"));
    let vector = |(index, entry): (usize, &Value)| {
        assert_eq!((&entry["index"], &entry["object"]), (&json!(index), &json!("embedding")));
        serde_json::from_value(entry["embedding"].clone()).unwrap()
    };
    data.iter().enumerate().map(vector).collect()
}

#[tokio::test]
async fn an_answer_has_the_shape_of_the_specification() {
    let server = Server::saying("x").await;
    let body = post(&server, json!({"input": ["ab", "c"]})).await.json();
    let entry = |index: usize, embedding: [f64; 4]| json!({"object": "embedding", "index": index, "embedding": embedding});
    let expected = json!({
        "object": "list",
        "data": [entry(0, [2.0, 97.0, 98.0, -1.0]), entry(1, [1.0, 99.0, 99.0, -1.0])],
        "model": "tiny",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn all_four_shapes_of_inputs_are_embedded_in_order() {
    let server = Server::saying("x").await;
    let firsts = async |input: Value| {
        let body = post(&server, json!({"input": input})).await.json();
        vectors(&body).iter().map(|vector| (vector[0], vector[1])).collect::<Vec<_>>()
    };
    assert_eq!(firsts(json!("ab")).await, [(2.0, 97.0)]);
    assert_eq!(firsts(json!(["ab", "c"])).await, [(2.0, 97.0), (1.0, 99.0)]);
    assert_eq!(firsts(json!([7, 8, 9])).await, [(3.0, 7.0)]);
    assert_eq!(firsts(json!([[7, 8], [9]])).await, [(2.0, 7.0), (1.0, 9.0)]);
}

#[tokio::test]
async fn texts_and_token_ids_may_stand_beside_each_other() {
    let server = Server::saying("x").await;
    let body = post(&server, json!({"input": ["ab", [7, 8, 9]]})).await.json();
    let firsts: Vec<_> = vectors(&body).iter().map(|vector| (vector[0], vector[1])).collect();
    assert_eq!(firsts, [(2.0, 97.0), (3.0, 7.0)]);
    let body = post(&server, json!({"input": [[7], "ab"]})).await.json();
    assert_eq!(vectors(&body).len(), 2);
    for input in [json!(["a", 1]), json!([1, "a"]), json!([[1, "a"]]), json!({"a": 1}), json!([])] {
        let answer = post(&server, json!({"input": input})).await;
        answer.error(400, "invalid_request_error", Some("input"));
    }
}

#[tokio::test]
async fn conversations_are_embedded_as_the_template_renders_them() {
    let server = Server::saying("x").await;
    let embed = async |fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.client.post("/v1/embeddings", &body).await
    };
    let tokens = |server: &Server| server.engine.embeddings().last().unwrap().token_ids.clone();
    let rendered = async |fields: Value| {
        let path = "/v1/chat/completions/render";
        let answer = server.client.post(path, &chat(fields)).await.json();
        serde_json::from_value::<Vec<u32>>(answer["token_ids"].clone()).unwrap()
    };
    assert_eq!(embed(json!({})).await.status, 200);
    assert_eq!(tokens(&server), rendered(json!({"add_generation_prompt": false})).await);
    assert_eq!(embed(json!({"add_generation_prompt": true})).await.status, 200);
    assert_eq!(tokens(&server), rendered(json!({})).await);
    for (fields, param) in [
        (json!({"input": "Hi"}), "messages"),
        (json!({"prompt_name": "query"}), "prompt_name"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "user", "content": "x".repeat(CONTEXT)}]}), "messages"),
        (json!({"chat_template": "{{ 1 }}"}), "chat_template"),
    ] {
        embed(fields).await.error(400, "invalid_request_error", Some(param));
    }
    let answer = post(&server, json!({"chat_template_kwargs": {}, "padding": "do_not_pad"})).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("chat_template_kwargs"));
}

#[tokio::test]
async fn base64_holds_the_same_numbers_in_little_endian() {
    let server = Server::saying("x").await;
    let fields = json!({"input": "abc", "normalize": true});
    let body = post(&server, fields).await.json();
    let floats = vectors(&body).remove(0);
    let fields = json!({"input": "abc", "normalize": true, "encoding_format": "base64"});
    let body = post(&server, fields).await.json();
    let bytes = STANDARD.decode(body["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty());
    let decoded: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    assert_eq!(decoded.iter().map(|x| f64::from(*x)).collect::<Vec<_>>().len(), floats.len());
    for (decoded, float) in decoded.iter().zip(floats) {
        assert_eq!(decoded.to_bits(), (float as f32).to_bits());
    }
}

#[tokio::test]
async fn fewer_dimensions_have_length_one_again() {
    let server = Server::saying("x").await;
    let fields = json!({"input": [[3, 4, 4]], "dimensions": 2, "normalize": true});
    let body = post(&server, fields).await.json();
    let vector = vectors(&body).remove(0);
    let length: f64 = vector.iter().map(|x| x * x).sum();
    assert_eq!(vector.len(), 2);
    assert!((length - 1.0).abs() < 1e-6, "{length}");
    for (dimensions, bound) in [(0, "got 0"), (5, "got 5"), (-3, "got -3")] {
        let answer = post(&server, json!({"dimensions": dimensions})).await;
        let message = answer.error(400, "invalid_request_error", Some("dimensions"));
        assert!(message.contains("in [1, 4]") && message.contains(bound), "{message}");
    }
}

#[tokio::test]
async fn the_engine_gets_what_the_request_asks_for() {
    let server = Server::saying("x").await;
    let fields = json!({"dimensions": 3, "priority": -2, "cache_salt": "s", "user": "me"});
    let answer = post(&server, fields).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("user"));
    let request = server.engine.embeddings().remove(0);
    assert_eq!((request.wanted.dimensions, request.priority), (Some(3), -2));
    assert_eq!(
        (request.wanted.activation, request.cache_salt.as_deref()),
        (Some(false), Some("s"))
    );
    assert_eq!(request.token_ids, bytes("Hi"));
    let body = json!({"model": "org/alias", "input": "Hi"});
    let answer = server.client.post("/v1/embeddings", &body).await;
    assert_eq!(answer.json()["model"], "org/alias");
    assert_eq!(server.engine.embeddings()[1].wanted.activation, None);
}

#[tokio::test]
async fn long_inputs_are_cut_only_where_asked() {
    let server = Server::saying("x").await;
    let long = "abc".repeat(CONTEXT);
    let answer = post(&server, json!({"input": ["a", long]})).await;
    let message = answer.error(400, "invalid_request_error", Some("input"));
    assert!(message.contains("input[1] has 1536 tokens"), "{message}");
    let vector = async |fields: Value| {
        let mut fields = fields;
        fields["input"] = json!(long);
        vectors(&post(&server, fields).await.json()).remove(0)
    };
    assert_eq!(vector(json!({"truncate_prompt_tokens": -1})).await[0].to_bits(), 512f64.to_bits());
    assert_eq!(vector(json!({"truncate_prompt_tokens": 2})).await, [2.0, 97.0, 98.0, -1.0]);
    let left = json!({"truncate_prompt_tokens": 2, "truncation_side": "left"});
    assert_eq!(vector(left).await, [2.0, 98.0, 99.0, -1.0]);
    for count in [0, -2, 513] {
        let answer = post(&server, json!({"truncate_prompt_tokens": count})).await;
        let message = answer.error(400, "invalid_request_error", Some("truncate_prompt_tokens"));
        assert!(message.contains("512"), "{message}");
    }
    let exact = json!({"input": vec![1; CONTEXT]});
    assert_eq!(vectors(&post(&server, exact).await.json())[0][0].to_bits(), 512f64.to_bits());
}

#[tokio::test]
async fn what_cannot_be_embedded_is_refused_by_name() {
    let server = Server::saying("x").await;
    let many = vec!["a"; 2049];
    for (input, expected) in [
        (json!(""), "input must not be an empty string"),
        (json!(["a", ""]), "input[1] must not be an empty string"),
        (json!([]), "1 to 2048 texts or token lists, got 0"),
        (json!([[1], []]), "input[1] must not be an empty list of tokens"),
        (json!(many), "1 to 2048 texts or token lists, got 2049"),
        (json!([VOCAB]), "token ids must be in 0..261, got 261, which is out of vocabulary"),
        (json!({"text": "a"}), "expected a string"),
        (Value::Null, "input is required"),
    ] {
        let answer = post(&server, json!({"input": input})).await;
        let message = answer.error(400, "invalid_request_error", Some("input"));
        assert!(message.contains(expected), "{message}");
    }
    let answer = post(&server, json!({"encoding_format": "int8"})).await;
    let message = answer.error(400, "invalid_request_error", Some("encoding_format"));
    assert!(message.contains("float, base64"), "{message}");
    let answer = post(&server, json!({"model": "gpt-4"})).await;
    answer.error(404, "invalid_request_error", Some("model"));
    assert!(server.engine.embeddings().is_empty());
}

#[tokio::test]
async fn unknown_fields_are_named_or_refused() {
    let server = Server::saying("x").await;
    let answer = post(&server, json!({"flavour": 1})).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, Some("flavour")));
    let config = ServerConfig { strict: true, ..Setup::default().config };
    let strict = Server::start(Setup { config, ..Setup::default() }, |_| Script::default()).await;
    let answer = post(&strict, json!({"flavour": 1})).await;
    answer.error(400, "invalid_request_error", Some("flavour"));
}

#[tokio::test]
async fn metrics_count_texts_and_their_tokens() {
    let server = Server::saying("x").await;
    post(&server, json!({"input": ["ab", "cde"]})).await;
    let text = server.client.get("/metrics").await.text;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(value("vllm:prompt_tokens_total"), "5");
    assert_eq!(value("vllm:generation_tokens_total"), "0");
    assert_eq!(value("vllm:e2e_request_latency_seconds_count"), "2");
}

#[tokio::test]
async fn a_model_that_only_embeds_says_so() {
    let mut setup = Setup { template: None, ..Setup::default() };
    setup.limits.generates = false;
    let server = Server::start(setup, |_| Script::default()).await;
    for (path, body) in
        [("/v1/chat/completions", chat(json!({}))), ("/v1/completions", completion(json!({})))]
    {
        let message =
            server.client.post(path, &body).await.error(400, "invalid_request_error", None);
        assert!(message.contains("only embeds") && message.contains(path), "{message}");
    }
    assert_eq!(post(&server, json!({})).await.status, 200);
    assert_eq!(server.client.get("/v1/models").await.status, 200);
    assert_eq!(server.client.get("/health").await.status, 200);
}
