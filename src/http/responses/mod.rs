//! `/v1/responses`: OpenAI's newer shape of a chat, and the responses that are kept on request.
//!
//! `input` reads items, `conversation` makes a chat of them, and `convert` judges the other fields;
//! from there on a response is a chat like any other. `events` makes items of the answer, `writer`
//! the JSON, and `store` keeps it.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use super::body::JsonBody;
use super::chat_plan::ChatPlan;
use super::error::ApiError;
use super::logprobs::LogprobSpelling;
use super::path_id::PathId;
use super::request::{self, Arrival};
use super::state::{AppState, unix_seconds};
use super::types::chat::StopReason;
use super::types::fields::IgnoredFields;
use super::types::responses::{Item, ItemList, ResponseObject, Settings, Status};
use convert::{Converted, in_own_words};
use events::{Numbering, Output};
use store::StoredResponse;
use writer::{Keeping, ResponsesWriter};

mod conversation;
pub(crate) mod convert;
mod events;
mod input;
pub(crate) mod store;
mod writer;

/// Items in a list that doesn't say how many.
const DEFAULT_LIMIT: usize = 20;
pub(crate) const MAX_LIMIT: usize = 100;

/// Names and values behind the question mark.
type Parameters = Query<Vec<(String, String)>>;

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let Converted { chat, fields, settings, conversation, streaming, mut ignored } =
        Converted::new(&state, &body)?;
    let plan =
        ChatPlan::new(&state, &arrival, &chat, fields, &mut ignored).map_err(in_own_words)?;
    let prepared = plan.prepare(&state).await.map_err(in_own_words)?;
    let options = prepared.options();
    let writer = ResponsesWriter {
        logprobs: (chat.logprobs == Some(true))
            .then(|| LogprobSpelling::new(state.tokenizer().clone(), options)),
        keeping: settings.store.then(|| Keeping { state: state.clone(), input: conversation }),
        response: begun(&state, chat.model, settings, options.seed),
        output: Output::default(),
        numbering: Numbering::default(),
        finish: None,
    };
    let streams = streaming.is_some();
    prepared.answer(&state, writer, streams, &ignored).await.map_err(in_own_words)
}

/// `POST /v1/responses/input_tokens`: how many tokens a request's prompt has.
pub(crate) async fn input_tokens(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let Converted { chat, fields, mut ignored, .. } = Converted::new(&state, &body)?;
    let plan =
        ChatPlan::new(&state, &arrival, &chat, fields, &mut ignored).map_err(in_own_words)?;
    let prompt = plan.render(&state).await.map_err(in_own_words)?;
    let answer = json!({
        "object": "response.input_tokens",
        "input_tokens": prompt.token_ids.len(),
    });
    Ok(request::with_ignored(axum::Json(answer).into_response(), &ignored))
}

/// `GET /v1/responses/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    PathId(id): PathId,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut ignored = IgnoredFields::default();
    for (name, value) in parameters {
        match name.as_str() {
            "stream" if value == "true" => {
                return Err(ApiError::unsupported("stream", "a stream of a response that is kept"));
            }
            // Everything there is to include is in it; the others are for streams.
            "stream" | "include" | "include[]" | "include_obfuscation" | "starting_after" => {
                ignored.add(name);
            }
            _ => ignored.add_unknown(name),
        }
    }
    ignored.check_strict(state.config().strict)?;
    let stored = kept(&state, id)?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    let response = (json, stored.json.clone()).into_response();
    Ok(request::with_ignored(response, &ignored))
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    if !state.responses().remove(Instant::now(), &id) {
        return Err(ApiError::ResponseNotFound(id));
    }
    Ok(axum::Json(json!({"id": id, "object": "response", "deleted": true})))
}

/// `POST /v1/responses/{id}/cancel`: only responses in the background could be cancelled, and there
/// are none.
pub(crate) async fn cancel(
    State(state): State<AppState>,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    kept(&state, id)?;
    let message = "cannot cancel a synchronous response: it has ended".to_owned();
    Err(ApiError::Invalid { message, param: None, code: None })
}

/// `GET /v1/responses/{id}/input_items`: all items that the model was given, the last one first.
pub(crate) async fn input_items(
    State(state): State<AppState>,
    PathId(id): PathId,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut ignored = IgnoredFields::default();
    let page = Page::new(parameters, &mut ignored)?;
    ignored.check_strict(state.config().strict)?;
    let stored = kept(&state, id)?;
    let mut items: Vec<&Item> = stored.input.items().collect();
    if !page.ascending {
        items.reverse();
    }
    let place = |id: &String| {
        let place = items.iter().position(|item| item.id() == id);
        place.ok_or_else(|| ApiError::field("after", format!("after: there is no item {id:?}")))
    };
    let begin = page.after.as_ref().map(place).transpose()?.map_or(0, |place| place + 1);
    let data: Vec<&Item> = items[begin..].iter().take(page.limit).copied().collect();
    let list = ItemList {
        object: "list",
        first_id: data.first().map(|item| item.id()),
        last_id: data.last().map(|item| item.id()),
        has_more: begin + data.len() < items.len(),
        data,
    };
    Ok(request::with_ignored(axum::Json(list).into_response(), &ignored))
}

/// Which items of a list are asked for.
struct Page {
    after: Option<String>,
    limit: usize,
    ascending: bool,
}

impl Page {
    fn new(
        parameters: Vec<(String, String)>,
        ignored: &mut IgnoredFields,
    ) -> Result<Self, ApiError> {
        let mut page = Self { after: None, limit: DEFAULT_LIMIT, ascending: false };
        for (name, value) in parameters {
            match name.as_str() {
                "after" => page.after = Some(value),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    page.limit = limit.ok_or_else(|| {
                        let message = format!("limit must be in 1..={MAX_LIMIT}, got {value:?}");
                        ApiError::field("limit", message)
                    })?;
                }
                "order" if value == "asc" || value == "desc" => page.ascending = value == "asc",
                "order" => {
                    let message = format!("order must be \"asc\" or \"desc\", got {value:?}");
                    return Err(ApiError::field("order", message));
                }
                "include" | "include[]" => ignored.add(name),
                _ => ignored.add_unknown(name),
            }
        }
        Ok(page)
    }
}

fn kept(state: &AppState, id: String) -> Result<Arc<StoredResponse>, ApiError> {
    let stored = state.responses().get(Instant::now(), &id);
    stored.ok_or(ApiError::ResponseNotFound(id))
}

/// A response of which nothing is there yet.
fn begun(state: &AppState, model: Option<String>, settings: Settings, seed: i64) -> ResponseObject {
    ResponseObject {
        id: item_id("resp"),
        object: "response",
        created_at: unix_seconds(),
        status: Status::InProgress,
        completed_at: None,
        error: None,
        incomplete_details: None,
        model: model.unwrap_or_else(|| state.model_name().to_owned()),
        output: Vec::new(),
        usage: None,
        settings,
        seed,
        stop_reason: StopReason::Nothing,
        timings: None,
    }
}

/// A new id of the kind that `prefix` names.
fn item_id(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}
