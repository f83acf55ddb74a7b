//! Chat completions that were made with `store: true`: to list, to read with their messages, to give
//! other metadata, to delete.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::http::answer::delta::{ChoiceDelta, CompletedChoice};
use crate::http::error::ApiError;
use crate::http::openai::lists::{Asked, ListKind, Parameters, list};
use crate::http::openai::metadata::metadata;
use crate::http::openai::removal::remove;
use crate::http::request::extract::Extracted;
use crate::http::request::fields::required;
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::state::AppState;
use crate::http::state::packing::{pack, unpack};
use crate::http::wire::conversations::ConversationRequest;
use crate::store::{Change, Key, Object};

/// The kind of a stored chat completion.
const CHAT: &str = "chat.completion";
const LIST: ListKind =
    ListKind { ascending: true, own: &["model", "metadata["], ..ListKind::NEWEST_FIRST };

/// A completion as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredChat {
    completion: Value,
    metadata: Map<String, Value>,
    /// As they came.
    messages: Vec<Value>,
}

impl StoredChat {
    fn json(&self) -> Value {
        let mut completion = self.completion.clone();
        completion["metadata"] = json!(self.metadata);
        completion
    }

    /// Whether it is of that model or has that pair, as a parameter of a list says.
    fn fits(&self, (name, value): &(String, String)) -> bool {
        let key = name.strip_prefix("metadata[").and_then(|name| name.strip_suffix(']'));
        let own = key.map_or_else(
            || &self.completion["model"],
            |key| self.metadata.get(key).unwrap_or(&Value::Null),
        );
        own == value.as_str()
    }
}

/// What a completion is stored with, and what there is of it so far.
#[derive(Debug)]
pub(super) struct StoringChat {
    pub(super) state: AppState,
    pub(super) owner: Owner,
    pub(super) metadata: Map<String, Value>,
    pub(super) messages: Vec<Value>,
    pub(super) choices: Vec<CompletedChoice>,
}

impl StoringChat {
    /// What a request asks to be stored with, if it does.
    ///
    /// # Errors
    /// When the store is down, or the metadata are no pairs of short texts.
    pub(super) async fn new(
        state: &AppState,
        owner: Owner,
        request: &Value,
    ) -> Result<Option<Self>, ApiError> {
        if request["store"] != true {
            return Ok(None);
        }
        let metadata = metadata(request["metadata"].as_object().cloned())?;
        state.store.check().await?;
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let (state, choices) = (state.clone(), Vec::new());
        Ok(Some(Self { state, owner, metadata, messages, choices }))
    }

    /// Adds a delta to what there is.
    pub(super) fn note(&mut self, ChoiceDelta { index, delta }: &ChoiceDelta) {
        if self.choices.len() <= *index {
            self.choices.resize(index + 1, CompletedChoice::default());
        }
        self.choices[*index].add(delta.clone());
    }

    /// Stores the completion.
    pub(super) async fn store(self, completion: Value) {
        let id = completion["id"].as_str().unwrap_or_default().to_owned();
        let Self { state, owner, metadata, messages, .. } = self;
        let body = pack(&StoredChat { completion, metadata, messages });
        let object = Object::new(Key::new(CHAT, &owner.0, &id), state.responses.expires(), body);
        if let Err(error) = state.store.change(vec![Change::Put(object)]).await {
            tracing::warn!(%error, id, "the chat completion could not be stored");
        }
    }
}

/// `GET /v1/chat/completions`: the oldest first, unless asked otherwise.
pub(crate) async fn completions(
    State(state): State<AppState>,
    owner: Owner,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let Asked { mut page, own, ignored } = Asked::new(parameters, LIST, &state)?;
    let (mut data, mut has_more) = (Vec::new(), true);
    while has_more && data.len() < page.limit {
        let read = state.store.list(CHAT, &owner.0, "", &page).await?;
        has_more = read.has_more;
        for object in read.objects {
            let stored: StoredChat = unpack(&object.body)?;
            page.after = Some(object.key.id);
            if own.iter().all(|wanted| stored.fits(wanted)) {
                if data.len() == page.limit {
                    has_more = true;
                    break;
                }
                data.push(stored.json());
            }
        }
    }
    Ok(ignored.tell(axum::Json(list(&data, has_more)).into_response()))
}

/// `GET /v1/chat/completions/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let (stored, _) = find(&state, &owner, &id).await?;
    Ok(axum::Json(stored.json()))
}

/// `POST /v1/chat/completions/{id}`: other metadata.
pub(crate) async fn update(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    request: Extracted<ConversationRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, mut fields, .. } = request;
    if body.items.is_some() {
        fields.unknown("items");
    }
    let new = metadata(Some(required(body.metadata, "", "metadata")?))?;
    let ignored = fields.finish(state.config.strict)?;
    let (stored, object) = find(&state, &owner, &id).await?;
    let stored = StoredChat { metadata: new, ..stored };
    let object = Object { body: pack(&stored), ..object };
    state.store.change(vec![Change::Put(object)]).await?;
    Ok(ignored.tell(axum::Json(stored.json()).into_response()))
}

/// `DELETE /v1/chat/completions/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let key = Key::new(CHAT, &owner.0, &id);
    remove(&state.store, key, "chat completion", "chat.completion.deleted").await
}

/// `GET /v1/chat/completions/{id}/messages`: the first one first, unless asked otherwise.
pub(crate) async fn messages(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let kind = ListKind { ascending: true, ..ListKind::NEWEST_FIRST };
    let Asked { page, ignored, .. } = Asked::new(parameters, kind, &state)?;
    let (stored, _) = find(&state, &owner, &id).await?;
    let messages = stored.messages.into_iter().enumerate();
    let mut messages: Vec<Value> = messages.map(|(at, message)| told(&id, at, message)).collect();
    if !page.ascending {
        messages.reverse();
    }
    let begin = match &page.after {
        None => 0,
        Some(after) => {
            let place = messages.iter().position(|message| message["id"] == after.as_str());
            let missing = || format!("after: there is no message {after:?}");
            place.ok_or_else(|| ApiError::field("after", missing()))? + 1
        }
    };
    let data: Vec<Value> = messages[begin..].iter().take(page.limit).cloned().collect();
    let has_more = begin + data.len() < messages.len();
    Ok(ignored.tell(axum::Json(list(&data, has_more)).into_response()))
}

/// A message with an id; parts of its content stand beside it.
fn told(id: &str, at: usize, mut message: Value) -> Value {
    message["id"] = json!(format!("{id}-{at}"));
    if message["content"].is_array() {
        message["content_parts"] = message["content"].take();
    }
    message
}

async fn find(state: &AppState, owner: &Owner, id: &str) -> Result<(StoredChat, Object), ApiError> {
    let object = state.store.find(CHAT, &owner.0, id).await?;
    let object = object.ok_or_else(|| not_found(id))?;
    Ok((unpack(&object.body)?, object))
}

fn not_found(id: &str) -> ApiError {
    ApiError::ObjectNotFound("chat completion", id.to_owned())
}
