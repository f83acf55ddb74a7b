//! One response in the background: its events are told to whoever follows it, and kept at its end.

use axum::body::Bytes;
use futures::StreamExt;
use serde_json::json;

use super::run::{Run, Stored, request};
use crate::http::error::ApiError;
use crate::http::openai::responses::background::{EVENTS, status};
use crate::http::state::clock::unix_seconds;
use crate::http::state::live::LiveResponse;
use crate::http::state::packing::pack;
use crate::http::state::response_store::BackgroundRun;
use crate::http::wire::responses::Status;
use crate::store::{Change, Key, LineState, Object};

/// Runs it. The handler stores the response, this its events.
pub(super) async fn respond(run: Run, stored: Stored) {
    let id = run.line.batch.clone();
    let begun = match begin(&run, &stored.owner, &id).await {
        Ok(Some(begun)) => begun,
        Ok(None) => return run.answer(LineState::Dropped, &json!(null)).await,
        Err(error) => {
            tracing::debug!(%error, id, "the response can't be begun yet");
            return run.release().await;
        }
    };
    let live = run.state.live.get(&id).unwrap_or_else(|| run.state.live.begin(&id));
    let owner = stored.owner.clone();
    let mut request = request(stored);
    request.extensions_mut().insert(begun);
    let told = tokio::select! {
        told = tell(&run, request, &live) => told,
        () = live.cancelled() => Ok(live.told()),
    };
    match told {
        Ok(events) => {
            let key = Key::part(EVENTS, &owner, &id, EVENTS);
            let object = Object::new(key, run.state.responses.expires(), pack(&events));
            if let Err(error) = run.state.store.change(vec![Change::Put(object)]).await {
                tracing::warn!(%error, id, "the events of a response could not be kept");
            }
            run.answer(LineState::Answered, &json!(null)).await;
        }
        Err(None) => return run.release().await,
        Err(Some(error)) => {
            fail(&run, &owner, &id, &error).await;
            run.fail(&error).await;
        }
    }
    live.end();
    run.state.live.forget(&id);
}

/// Marks the response as one that runs; `None` if it is not to run any more.
async fn begin(run: &Run, owner: &str, id: &str) -> Result<Option<BackgroundRun>, ApiError> {
    let responses = &run.state.responses;
    let Some((mut stored, revision)) = responses.find(owner, id).await? else { return Ok(None) };
    if !matches!(status(&stored.response).as_str(), "queued" | "in_progress") {
        return Ok(None);
    }
    stored.response["status"] = json!(Status::InProgress);
    if !responses.update(owner, id, &stored, revision).await? {
        return Ok(None);
    }
    let created_at = stored.response["created_at"].as_u64().unwrap_or_default();
    Ok(Some(BackgroundRun { id: id.to_owned(), created_at, revision: revision + 1 }))
}

/// Tells the events as they come; all of them at the end. An error is the handler's, or none if there
/// was no room.
async fn tell(
    run: &Run,
    request: axum::http::Request<axum::body::Body>,
    live: &LiveResponse,
) -> Result<Vec<String>, Option<ApiError>> {
    let response = run.call(request).await;
    if matches!(response.status().as_u16(), 429 | 503) {
        return Err(None);
    }
    if let Some(error) = response.extensions().get::<ApiError>() {
        return Err(Some(error.clone()));
    }
    let mut all = Vec::new();
    let mut body = response.into_body().into_data_stream();
    while let Some(bytes) = body.next().await {
        let bytes = bytes.map_err(|error| Some(ApiError::Internal(error.to_string())))?;
        let text = String::from_utf8_lossy(&bytes);
        let events = text.split_inclusive("\n\n").filter(|event| !event.starts_with(':'));
        let events: Vec<String> = events.map(str::to_owned).collect();
        live.tell(events.iter().map(|event| Bytes::from(event.clone())));
        all.extend(events);
    }
    Ok(all)
}

/// Says in the response that it failed.
async fn fail(run: &Run, owner: &str, id: &str, error: &ApiError) {
    let responses = &run.state.responses;
    let Ok(Some((mut stored, revision))) = responses.find(owner, id).await else { return };
    if status(&stored.response) != "in_progress" {
        return;
    }
    stored.response["status"] = json!(Status::Failed);
    stored.response["completed_at"] = json!(unix_seconds());
    stored.response["error"] = json!({"code": "server_error", "message": error.to_string()});
    if let Err(error) = responses.update(owner, id, &stored, revision).await {
        tracing::warn!(%error, id, "a response that failed could not say so");
    }
}
