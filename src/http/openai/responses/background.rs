//! Responses that nobody waits for: they are stored with their request, run when it is their turn by
//! any server of the store, and can be read, followed and cancelled meanwhile.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::input::Converted;
use super::settings::begun;
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::live::LiveResponse;
use crate::http::state::packing::{pack, unpack};
use crate::http::state::response_store::{RESPONSE, StoredResponse, Turn};
use crate::http::wire::responses::{ResponseObject, Status};
use crate::store::{Change, Key, NewLine, Object};

/// The kind under which the events of a response are kept once it has ended, as a part of it.
pub(crate) const EVENTS: &str = "events";
/// Background responses go before the lines of batches.
const URGENCY: i64 = 0;
/// How often to look after a response that runs on another server.
const LOOK: Duration = Duration::from_millis(500);

/// A stored request, as the lines of the store have it.
pub(crate) fn line_body(owner: &Owner, path: &str, request: &Value) -> Vec<u8> {
    pack(&json!({"owner": owner.0, "path": path, "request": request}))
}

/// Stores a response of which nothing is there yet, to be run; answers with it, or with its events.
pub(super) async fn queue(
    state: &AppState,
    owner: Owner,
    mut json: Value,
    converted: Converted,
) -> Result<Response, ApiError> {
    let Converted { chat, settings, model, conversation, ignored, adapter, arrival, .. } =
        converted;
    let (streams, seed) = (chat.streams, chat.options.seed);
    // What depends on the model is wrong now or never.
    CheckedChat::new(state, chat, adapter, arrival)?;
    let response = ResponseObject { status: Status::Queued, ..begun(model, settings, seed) };
    let id = response.id.clone();
    let stored = StoredResponse {
        response: json!(response),
        input: conversation,
        output: Turn::new(Vec::new()),
    };
    json["stream"] = Value::Bool(true);
    json["seed"] = Value::from(seed);
    let line = NewLine {
        number: 0,
        custom_id: id.clone(),
        model: state.own_name(&response.model),
        body: line_body(&owner, "/v1/responses", &json),
    };
    let object =
        Object::new(Key::new(RESPONSE, &owner.0, &id), state.responses.expires(), pack(&stored));
    state.store.change(vec![Change::Add(object)]).await?;
    let events = state.live.begin(&id);
    let ends = state.responses.expires().unwrap_or(i64::MAX);
    if let Err(error) = state.store.add_lines(&id, URGENCY, ends, vec![line]).await {
        state.live.forget(&id);
        state.responses.remove(&owner.0, &id).await?;
        return Err(error.into());
    }
    state.work.notify_one();
    let answer = if streams {
        follow(state.clone(), owner, id, Some(events), 0)
    } else {
        axum::Json(stored.response).into_response()
    };
    Ok(ignored.tell(answer))
}

/// The events of a response from the one of that number on, those of the future included.
pub(super) fn follow(
    state: AppState,
    owner: Owner,
    id: String,
    live: Option<Arc<LiveResponse>>,
    next: usize,
) -> Response {
    let keep_alive = state.keep_alive;
    let follower = Follower { state, owner, id, live, next, ready: VecDeque::new(), ended: false };
    let body = futures::stream::unfold(follower, move |mut follower| async move {
        let told = tokio::time::timeout(keep_alive, follower.next()).await;
        let bytes = told.unwrap_or_else(|_| Some(Bytes::from_static(b": keep-alive\n\n")))?;
        Some((Ok::<Bytes, Infallible>(bytes), follower))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(body)).into_response()
}

/// One reader of a response's events.
struct Follower {
    state: AppState,
    owner: Owner,
    id: String,
    /// Where it runs in this process.
    live: Option<Arc<LiveResponse>>,
    /// Number of the next event.
    next: usize,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Follower {
    /// The next event; `None` behind the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            let Some(live) = self.live.clone() else {
                self.look().await;
                continue;
            };
            let mut changes = live.changes();
            let (events, ended) = live.since(self.next);
            self.take(events);
            // One that ended before its last event was told runs on another server, or again.
            self.ended = ended;
            if self.ready.is_empty() && !ended {
                let told = tokio::time::timeout(LOOK, changes.changed()).await;
                if told.is_err() && live.since(0).0.is_empty() {
                    self.live = None;
                }
            }
        }
    }

    fn take(&mut self, events: impl IntoIterator<Item = Bytes>) {
        self.ready.extend(events);
        self.next += self.ready.len();
    }

    /// Looks for the events in the store, where they are once the response has ended.
    async fn look(&mut self) {
        let (store, owner) = (&self.state.store, self.owner.0.clone());
        match store.find_part(EVENTS, &owner, &self.id, EVENTS).await {
            Ok(Some(object)) => {
                let events: Vec<String> = unpack(&object.body).unwrap_or_default();
                let events: Vec<Bytes> = events.into_iter().map(Bytes::from).collect();
                self.take(events.into_iter().skip(self.next).collect::<Vec<_>>());
                self.ended = true;
            }
            Ok(None) => {
                let known = self.state.responses.get(&owner, &self.id).await;
                let status = known.ok().flatten().map(|stored| status(&stored.response));
                if status.is_none_or(|status| !matches!(status.as_str(), "queued" | "in_progress"))
                {
                    self.ended = true;
                    return;
                }
                tokio::time::sleep(LOOK).await;
                self.live = self.state.live.get(&self.id);
            }
            Err(error) => {
                tracing::debug!(%error, "the events of a response can't be read yet");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// The status of a response object.
pub(crate) fn status(response: &Value) -> String {
    response["status"].as_str().unwrap_or_default().to_owned()
}

/// Ends a response that runs in the background, or will; one that has ended stays as it is.
pub(super) async fn cancel(state: &AppState, owner: &Owner, id: &str) -> Result<Value, ApiError> {
    loop {
        let found = state.responses.find(&owner.0, id).await?;
        let (mut stored, revision) =
            found.ok_or_else(|| ApiError::ResponseNotFound(id.to_owned()))?;
        if stored.response["background"] != true {
            let message = "Cannot cancel a synchronous response.".to_owned();
            return Err(ApiError::Invalid { message, param: None, code: None });
        }
        if !matches!(status(&stored.response).as_str(), "queued" | "in_progress") {
            return Ok(stored.response);
        }
        stored.response["status"] = json!(Status::Cancelled);
        stored.response["completed_at"] = json!(unix_seconds());
        if state.responses.update(&owner.0, id, &stored, revision).await? {
            state.store.drop_lines(id, true).await?;
            if let Some(live) = state.live.get(id) {
                live.cancel();
            }
            return Ok(stored.response);
        }
    }
}
