//! `/v1/messages/batches`: requests for messages that are run when nothing else needs the engine.

use std::collections::HashSet;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader, required, text_member};
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::request::rules::Rules;
use crate::http::state::AppState;
use crate::http::state::batches::{BatchObject, BatchStatus, MESSAGE_BATCH, StoredBatch};
use crate::http::state::packing::{pack, unpack};
use crate::http::wire::batches::{MessageBatchLine, MessageBatchRequest};
use crate::http::wire::bounds::MAX_BATCH_LINES;
use crate::store::{Change, Key, LineState, NewLine, PageRequest, Store};

/// The route that all lines are for.
pub(crate) const MESSAGES: &str = "/v1/messages";
/// Longest name of a request.
const MOST_NAME: usize = 64;
/// Most batches on a page.
const MOST_ON_PAGE: usize = 1000;
/// Results that are read at once.
const GROUP: i64 = 200;

impl RequestBody for MessageBatchRequest {
    const RULES: &'static [Rules] = &[];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

/// `POST /v1/messages/batches`.
pub(crate) async fn create(
    State(state): State<AppState>,
    owner: Owner,
    headers: HeaderMap,
    request: Extracted<MessageBatchRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, fields, .. } = request;
    let ignored = fields.finish(state.config.strict)?;
    let requests = required(body.requests, "", "requests")?;
    if !(1..=MAX_BATCH_LINES).contains(&requests.len()) {
        let count = requests.len();
        let message = format!("requests must have 1 to {MAX_BATCH_LINES} requests, got {count}");
        return Err(ApiError::field("requests", message));
    }
    let mut names = HashSet::new();
    let lines = requests.into_iter().enumerate();
    let lines: Result<Vec<NewLine>, ApiError> =
        lines.map(|(at, request)| line(&state, &owner, at, request, &mut names)).collect();
    let batch = StoredBatch::new(MESSAGES, String::new());
    let id = format!("msgbatch_{}", uuid::Uuid::new_v4().simple());
    let key = Key::new(MESSAGE_BATCH, &owner.0, &id);
    let expires = state.responses.expires();
    let made = BatchObject::add(&state.store, key, batch, lines?, expires).await?;
    state.work.notify_one();
    let answer = json(&state.store, &made, &headers).await?;
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

fn line(
    state: &AppState,
    owner: &Owner,
    at: usize,
    request: MessageBatchLine,
    names: &mut HashSet<String>,
) -> Result<NewLine, ApiError> {
    let path = format!("requests[{at}]");
    let custom_id = required(request.custom_id, &path, "custom_id")?;
    let param = format!("{path}.custom_id");
    if !(1..=MOST_NAME).contains(&custom_id.chars().count()) {
        let message = format!("{param} must have 1 to {MOST_NAME} characters, got {custom_id:?}");
        return Err(ApiError::field(param, message));
    }
    if !names.insert(custom_id.clone()) {
        let message = format!("{param}: {custom_id:?} appears twice");
        return Err(ApiError::field(param, message));
    }
    let params = required(request.params, &path, "params")?;
    if params["stream"] == true {
        return Err(ApiError::unsupported(format!("{path}.params.stream"), "the value true"));
    }
    let model = text_member(&params, "model").unwrap_or(state.model_name());
    state.check_model(Some(model))?;
    Ok(NewLine {
        number: i64::try_from(at).unwrap_or(i64::MAX),
        custom_id,
        model: state.own_name(model),
        body: pack(&json!({"owner": owner.0, "path": MESSAGES, "request": params})),
    })
}

/// `GET /v1/messages/batches/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    headers: HeaderMap,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let found = BatchObject::find(&state.store, MESSAGE_BATCH, &owner.0, &id).await?;
    Ok(axum::Json(json(&state.store, &found, &headers).await?))
}

/// `POST /v1/messages/batches/{id}/cancel`: requests that are being answered still are.
pub(crate) async fn cancel(
    State(state): State<AppState>,
    owner: Owner,
    headers: HeaderMap,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let found = BatchObject::find(&state.store, MESSAGE_BATCH, &owner.0, &id).await?;
    let cancelled = found.cancel(&state.store).await?;
    state.work.notify_one();
    Ok(axum::Json(json(&state.store, &cancelled, &headers).await?))
}

/// `DELETE /v1/messages/batches/{id}`, of one that has ended.
pub(crate) async fn delete(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let found = BatchObject::find(&state.store, MESSAGE_BATCH, &owner.0, &id).await?;
    if found.batch.ended_at.is_none() {
        let message = format!("the batch {id:?} has not ended; cancel it first");
        return Err(ApiError::field("id", message));
    }
    let key = Key::new(MESSAGE_BATCH, &owner.0, &id);
    state.store.change(vec![Change::Remove(key)]).await?;
    Ok(axum::Json(json!({"id": id, "type": "message_batch_deleted"})))
}

/// `GET /v1/messages/batches`: the newest first.
pub(crate) async fn batches(
    State(state): State<AppState>,
    owner: Owner,
    headers: HeaderMap,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let mut fields = FieldReader::new(&[]);
    let mut page = PageRequest { limit: 20, ..PageRequest::default() };
    for (name, value) in parameters {
        match name.as_str() {
            "after_id" => page.after = Some(value),
            "before_id" => page.before = Some(value),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST_ON_PAGE).contains(limit));
                page.limit = limit.ok_or_else(|| {
                    let message = format!("limit must be in 1..={MOST_ON_PAGE}, got {value:?}");
                    ApiError::field("limit", message)
                })?;
            }
            _ => fields.unknown(name),
        }
    }
    let ignored = fields.finish(state.config.strict)?;
    // The page that ends right before an id is read from there backwards.
    let backwards = page.before.is_some() && page.after.is_none();
    if backwards {
        page.after = page.before.take();
        page.ascending = true;
    }
    let mut read = state.store.list(MESSAGE_BATCH, &owner.0, "", &page).await?;
    if backwards {
        read.objects.reverse();
    }
    let mut data = Vec::new();
    for object in read.objects {
        data.push(json(&state.store, &BatchObject::read(object)?, &headers).await?);
    }
    let id = |batch: Option<&Value>| batch.map_or(Value::Null, |batch| batch["id"].clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    let answer = json!({"data": data, "first_id": first_id, "last_id": last_id,
        "has_more": read.has_more});
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// `GET /v1/messages/batches/{id}/results`: a line for each request, in their order.
pub(crate) async fn results(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let found = BatchObject::find(&state.store, MESSAGE_BATCH, &owner.0, &id).await?;
    if found.batch.ended_at.is_none() {
        let message = format!("the batch {id:?} has no results before it has ended");
        return Err(ApiError::field("id", message));
    }
    let given_up = if found.batch.cancelling_at.is_some() { "canceled" } else { "expired" };
    let lines = futures::stream::unfold(Some(0), move |next| {
        let (store, id) = (state.store.clone(), id.clone());
        async move {
            match group(&store, &id, next?, given_up).await {
                Ok(group) => group.map(|(bytes, next)| (Ok(bytes), Some(next))),
                // The connection breaks: half of the results must not look whole.
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-jsonl"))];
    Ok((kind, Body::from_stream(lines)).into_response())
}

/// Some results from the line `next` on, and where the others begin; `None` behind the last.
async fn group(
    store: &Store,
    id: &str,
    next: i64,
    given_up: &str,
) -> Result<Option<(Bytes, i64)>, ApiError> {
    let lines = store.answered_lines(id, next, GROUP).await?;
    let Some(last) = lines.last() else { return Ok(None) };
    let behind = last.number + 1;
    let mut text = String::new();
    for line in lines {
        let result: Value = match line.state {
            LineState::Dropped => {
                json!({"custom_id": line.custom_id, "result": {"type": given_up}})
            }
            _ => unpack(&line.answer)?,
        };
        text.push_str(&result.to_string());
        text.push('\n');
    }
    Ok(Some((Bytes::from(text), behind)))
}

/// The batch object.
async fn json(store: &Store, object: &BatchObject, headers: &HeaderMap) -> Result<Value, ApiError> {
    let batch = &object.batch;
    let counts = batch.counts(store, object.id()).await?;
    let ended = batch.ended_at.is_some();
    let status = match batch.status {
        _ if ended => "ended",
        BatchStatus::Cancelling => "canceling",
        _ => "in_progress",
    };
    let at_end = |count: i64| if ended { count } else { 0 };
    let cancelled = batch.cancelling_at.is_some();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let results = format!("http://{host}/v1/messages/batches/{}/results", object.id());
    Ok(json!({
        "id": object.id(),
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {
            "processing": if ended { 0 } else { counts.total() },
            "succeeded": at_end(counts.answered),
            "errored": at_end(counts.failed),
            "canceled": at_end(if cancelled { counts.dropped } else { 0 }),
            "expired": at_end(if cancelled { 0 } else { counts.dropped }),
        },
        "created_at": time(Some(batch.created_at)),
        "expires_at": time(Some(batch.expires_at())),
        "ended_at": time(batch.ended_at),
        "cancel_initiated_at": time(batch.cancelling_at),
        "archived_at": null,
        "results_url": ended.then_some(results),
    }))
}

/// Seconds since 1970 as RFC 3339 has them.
fn time(seconds: Option<u64>) -> Option<String> {
    let time = DateTime::from_timestamp(seconds?.cast_signed(), 0)?;
    Some(time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// The result of a request that was answered.
pub(crate) fn result(custom_id: &str, succeeds: bool, body: &Value) -> Value {
    let result = if succeeds {
        json!({"type": "succeeded", "message": body})
    } else {
        json!({"type": "errored", "error": body})
    };
    json!({"custom_id": custom_id, "result": result})
}
