//! One line of a batch: run when nothing else needs the engine, and its answer as the batch tells it.

use axum::body::to_bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use super::run::{Run, Stored, request};
use crate::http::anthropic::batches::{MESSAGES, result};
use crate::http::request::arrival::Yields;
use crate::store::LineState;

/// Runs a line and stores its answer.
pub(super) async fn answer(run: Run, stored: Stored) {
    let path = stored.path.clone();
    let mut request = request(stored);
    request.extensions_mut().insert(Yields);
    let response = run.call(request).await;
    let status = response.status().as_u16();
    if matches!(status, 429 | 503) {
        return run.release().await;
    }
    let Ok(bytes) = to_bytes(response.into_body(), usize::MAX).await else {
        return run.release().await;
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let (succeeds, custom_id) = (status == 200, &run.line.custom_id);
    let answer = if path == MESSAGES {
        result(custom_id, succeeds, &body)
    } else {
        let id = Uuid::new_v4().simple();
        json!({
            "id": format!("batch_req_{id}"),
            "custom_id": custom_id,
            "response": {"status_code": status, "request_id": format!("req_{id}"), "body": body},
            "error": null,
        })
    };
    run.state.metrics.batch_line_ended(succeeds);
    let state = if succeeds { LineState::Answered } else { LineState::Failed };
    run.answer(state, &answer).await;
}
