//! `prediction` and `speculative.n_max`: what reaches the engine, and what is told of it.

use serde_json::{Value, json};

use super::fixture::{CONTEXT, Server, chat, tokenizer};

fn predicted(content: Value) -> Value {
    chat(json!({"prediction": {"type": "content", "content": content}}))
}

#[tokio::test]
async fn a_prediction_reaches_the_engine_as_tokens_and_is_counted() {
    let server = Server::saying("Hello").await;
    let whole = predicted(json!("Help"));
    let parts = predicted(json!([{"type": "text", "text": "He"}, {"type": "text", "text": "lp"}]));
    for body in [whole, parts] {
        let answer = server.client.chat(&body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        // Three letters and a wrong one; the prediction ends before the rest.
        let details = &answer.json()["usage"]["completion_tokens_details"];
        assert_eq!(details["accepted_prediction_tokens"], 3);
        assert_eq!(details["rejected_prediction_tokens"], 1);
    }
    for asked in server.engine.requests() {
        assert_eq!(asked.prediction, Some(tokenizer().encode_plain("Help").unwrap()));
        assert_eq!(asked.max_drafts, None);
    }
}

#[tokio::test]
async fn a_request_bounds_its_drafts() {
    let server = Server::saying("x").await;
    for (asked, expected) in [(json!(0), Some(0)), (json!(5), Some(5)), (json!(null), None)] {
        let body = chat(json!({"speculative.n_max": asked}));
        assert_eq!(server.client.chat(&body).await.status, 200);
        assert_eq!(server.engine.requests().pop().unwrap().max_drafts, expected);
    }
    let refused = server.client.chat(&chat(json!({"speculative.n_max": -1}))).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["param"], "speculative.n_max");
}

#[tokio::test]
async fn predictions_that_can_not_be_followed_are_refused() {
    let server = Server::saying("x").await;
    let cases = [
        (json!({"prediction": {"type": "audio", "content": "x"}}), "prediction"),
        (json!({"prediction": {"type": "content"}}), "prediction"),
        (json!({"prediction": {"type": "content", "content": 7}}), "prediction"),
        (json!({"prediction": "x"}), "prediction"),
        (
            json!({"prediction": {"type": "content", "content": "x"}, "use_beam_search": true,
                "n": 2, "temperature": 0}),
            "prediction",
        ),
    ];
    for (fields, param) in cases {
        let answer = server.client.chat(&chat(fields.clone())).await;
        assert_eq!(answer.status, 400, "{fields}: {answer:?}");
        let named = answer.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
        assert!(named.starts_with(param), "{fields}: {answer:?}");
    }
    let long = predicted(json!("a".repeat(CONTEXT + 1)));
    let answer = server.client.chat(&long).await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains(&format!("{} tokens, the context {CONTEXT}", CONTEXT + 1)),
        "{message}"
    );
}
