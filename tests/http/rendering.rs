//! Requests that are only rendered: where tokens stand, and what requests are called.

use serde_json::{Value, json};

use super::fixture::{Server, bytes, chat, completion};

const BAD: &str = "invalid_request_error";
const CHAT: &str = "/v1/chat/completions/render";
const COMPLETIONS: &str = "/v1/completions/render";

#[tokio::test]
async fn tokens_are_told_with_their_places() {
    let server = Server::saying("x").await;
    let asked = json!({"prompt": "a\u{e9}b", "return_token_offsets": true});
    let rendered = server.client.post(COMPLETIONS, &completion(asked)).await.json();
    // A character of two bytes is two tokens here.
    assert_eq!(rendered[0]["token_ids"], json!(bytes("a\u{e9}b")));
    assert_eq!(rendered[0]["token_offsets"], json!([[0, 1], [1, 2], [1, 2], [2, 3]]));
    let cut = json!({"prompt": "abc", "return_token_offsets": true, "truncate_prompt_tokens": 2});
    let rendered = server.client.post(COMPLETIONS, &completion(cut)).await.json();
    assert_eq!(rendered[0]["token_offsets"], json!([[1, 2], [2, 3]]));
    let tokens = json!({"prompt": [97, 98], "return_token_offsets": true});
    let rendered = server.client.post(COMPLETIONS, &completion(tokens)).await.json();
    assert_eq!(rendered[0]["token_offsets"], Value::Null);

    let rendered = server.client.post(CHAT, &chat(json!({"return_token_offsets": true}))).await;
    let rendered = rendered.json();
    let text: Vec<char> = rendered["prompt"].as_str().unwrap().chars().collect();
    let places: Vec<(usize, usize)> =
        serde_json::from_value(rendered["token_offsets"].clone()).unwrap();
    assert_eq!(places.len() as u64, rendered["count"].as_u64().unwrap());
    let first: String = text[places[0].0..places[0].1].iter().collect();
    assert_eq!(first, "<|im_start|>");
    let plain = server.client.post(CHAT, &chat(json!({}))).await.json();
    assert_eq!(plain["token_offsets"], Value::Null);
    for (path, body) in [
        ("/v1/chat/completions", chat(json!({"return_token_offsets": true}))),
        ("/v1/completions", completion(json!({"return_token_offsets": true}))),
    ] {
        let answer = server.client.post(path, &body).await;
        let header = (answer.status, answer.header("x-sconce-ignored"));
        assert_eq!(header, (200, Some("return_token_offsets")));
    }
}

#[tokio::test]
async fn requests_can_name_themselves() {
    let server = Server::saying("x").await;
    let id = |answer: Value| {
        let answer = if answer.is_array() { answer[0].clone() } else { answer };
        answer.get("request_id").unwrap_or(&answer["id"]).as_str().unwrap().to_owned()
    };
    let named = json!({"request_id": "mine"});
    let mut response = json!({"model": "tiny", "input": "Hi"});
    response["request_id"] = json!("mine");
    for (path, body, expected) in [
        (CHAT, chat(named.clone()), "chatcmpl-mine"),
        (COMPLETIONS, completion(named.clone()), "cmpl-mine"),
        ("/v1/responses/render", response.clone(), "mine"),
        ("/v1/chat/completions", chat(named.clone()), "chatcmpl-mine"),
        ("/v1/completions", completion(named), "cmpl-mine"),
    ] {
        let answer = server.client.post(path, &body).await;
        assert_eq!(
            (id(answer.json()), answer.header("x-sconce-ignored")),
            (expected.to_owned(), None)
        );
    }
    let answer = server.client.post("/v1/responses", &response).await;
    assert_ne!(id(answer.json()), "mine");
    assert_eq!(answer.header("x-sconce-ignored"), Some("request_id"));
    for bad in ["", "a b", &"x".repeat(129)] {
        let body = chat(json!({"request_id": bad}));
        server.client.post(CHAT, &body).await.error(400, BAD, Some("request_id"));
    }
}
