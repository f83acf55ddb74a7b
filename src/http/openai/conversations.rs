//! `/v1/conversations`: items that stay together until they are deleted, to which responses add
//! what they were asked and what they answered.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::lists::{Asked, ListKind, Parameters, list};
use super::metadata::metadata;
use super::removal::remove;
use super::responses::items::ItemReader;
use super::responses::references::References;
use crate::http::error::ApiError;
use crate::http::openai::envelope::item_id;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader, required};
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::request::rules::Rules;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::packing::{pack, unpack};
use crate::http::state::response_store::{ITEM, StoredResponse};
use crate::http::wire::conversations::{ConversationRequest, ItemsRequest};
use crate::http::wire::responses::Item;
use crate::store::{Change, Key, Object, PageRequest};

/// The kind of a stored conversation.
const CONVERSATION: &str = "conversation";
/// Most items that come with one request.
const MOST_ITEMS: usize = 20;
/// Items of a conversation that are read at once.
const PAGE: usize = 500;

/// A conversation without its items, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Conversation {
    created_at: u64,
    metadata: Map<String, Value>,
}

impl Conversation {
    fn json(&self, id: &str) -> Value {
        json!({"id": id, "object": "conversation", "created_at": self.created_at,
            "metadata": self.metadata})
    }
}

impl RequestBody for ConversationRequest {
    const RULES: &'static [Rules] = &[];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

impl RequestBody for ItemsRequest {
    const RULES: &'static [Rules] = &[];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

/// `POST /v1/conversations`.
pub(crate) async fn create(
    State(state): State<AppState>,
    owner: Owner,
    request: Extracted<ConversationRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, mut fields, .. } = request;
    let items = read_items(&state, &owner, body.items.as_deref(), &mut fields).await?;
    let made = Conversation { created_at: unix_seconds(), metadata: metadata(body.metadata)? };
    let ignored = fields.finish(state.config.strict)?;
    let id = item_id("conv");
    let key = Key::new(CONVERSATION, &owner.0, &id);
    let mut changes = vec![Change::Add(Object::new(key, None, pack(&made)))];
    changes.extend(items.iter().map(|item| Change::Put(part(&owner, &id, item))));
    state.store.change(changes).await?;
    Ok(ignored.tell(axum::Json(made.json(&id)).into_response()))
}

/// `GET /v1/conversations/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let (conversation, _) = find(&state, &owner, &id).await?;
    Ok(axum::Json(conversation.json(&id)))
}

/// `POST /v1/conversations/{id}`: other metadata.
pub(crate) async fn update(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    request: Extracted<ConversationRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, fields, .. } = request;
    if body.items.is_some() {
        let message = "items: they are added at .../items";
        return Err(ApiError::field("items", message));
    }
    let new = metadata(Some(required(body.metadata, "", "metadata")?))?;
    let ignored = fields.finish(state.config.strict)?;
    let (conversation, object) = find(&state, &owner, &id).await?;
    let conversation = Conversation { metadata: new, ..conversation };
    let object = Object { body: pack(&conversation), ..object };
    if !state.store.change(vec![Change::Put(object)]).await? {
        return Err(not_found(&id));
    }
    Ok(ignored.tell(axum::Json(conversation.json(&id)).into_response()))
}

/// `DELETE /v1/conversations/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let key = Key::new(CONVERSATION, &owner.0, &id);
    remove(&state.store, key, "conversation", "conversation.deleted").await
}

/// `POST /v1/conversations/{id}/items`.
pub(crate) async fn add_items(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    request: Extracted<ItemsRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, mut fields, .. } = request;
    find(&state, &owner, &id).await?;
    let given = required(body.items, "", "items")?;
    let items = read_items(&state, &owner, Some(&given), &mut fields).await?;
    let ignored = fields.finish(state.config.strict)?;
    let objects = items.iter().map(|item| Change::Put(part(&owner, &id, item)));
    state.store.change(objects.collect()).await?;
    let data: Vec<Value> = items.iter().map(|item| json!(item)).collect();
    Ok(ignored.tell(axum::Json(list(&data, false)).into_response()))
}

/// `GET /v1/conversations/{id}/items`: the newest first, unless asked otherwise.
pub(crate) async fn items(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let Asked { page, ignored, .. } = Asked::new(parameters, ListKind::NEWEST_FIRST, &state)?;
    find(&state, &owner, &id).await?;
    let page = state.store.list(ITEM, &owner.0, &id, &page).await?;
    let data: Result<Vec<Value>, ApiError> =
        page.objects.iter().map(|object| unpack(&object.body)).collect();
    Ok(ignored.tell(axum::Json(list(&data?, page.has_more)).into_response()))
}

/// `GET /v1/conversations/{id}/items/{item}`.
pub(crate) async fn item(
    State(state): State<AppState>,
    owner: Owner,
    Path((id, item)): Path<(String, String)>,
) -> Result<axum::Json<Value>, ApiError> {
    find(&state, &owner, &id).await?;
    let object = state.store.find_part(ITEM, &owner.0, &id, &item).await?;
    let object = object.ok_or(ApiError::ObjectNotFound("item", item))?;
    Ok(axum::Json(unpack(&object.body)?))
}

/// `DELETE /v1/conversations/{id}/items/{item}`: the conversation without it.
pub(crate) async fn delete_item(
    State(state): State<AppState>,
    owner: Owner,
    Path((id, item)): Path<(String, String)>,
) -> Result<axum::Json<Value>, ApiError> {
    let (conversation, _) = find(&state, &owner, &id).await?;
    let key = Key::part(ITEM, &owner.0, &id, &item);
    if !state.store.change(vec![Change::Remove(key)]).await? {
        return Err(ApiError::ObjectNotFound("item", item));
    }
    Ok(axum::Json(conversation.json(&id)))
}

/// All items of a conversation, the first one first.
pub(crate) async fn all_items(
    state: &AppState,
    owner: &Owner,
    id: &str,
) -> Result<Vec<Item>, ApiError> {
    find(state, owner, id).await?;
    let mut items = Vec::new();
    let mut page = PageRequest { limit: PAGE, ascending: true, ..PageRequest::default() };
    loop {
        let read = state.store.list(ITEM, &owner.0, id, &page).await?;
        for object in &read.objects {
            items.push(unpack(&object.body)?);
        }
        page.after = read.objects.last().map(|object| object.key.id.clone());
        if !read.has_more {
            return Ok(items);
        }
    }
}

/// What a response adds to its conversation.
pub(crate) fn additions(owner: &Owner, id: &str, stored: &StoredResponse) -> Vec<Change> {
    let items = stored.input.last().iter().chain(stored.output.items());
    items.map(|item| Change::Put(part(owner, id, item))).collect()
}

async fn read_items(
    state: &AppState,
    owner: &Owner,
    given: Option<&[Value]>,
    fields: &mut FieldReader,
) -> Result<Vec<Item>, ApiError> {
    let given = given.unwrap_or_default();
    if given.len() > MOST_ITEMS {
        let message = format!("items must have at most {MOST_ITEMS} items, got {}", given.len());
        return Err(ApiError::field("items", message));
    }
    let references = References::find(state, owner, Some(&Value::from(given))).await?;
    ItemReader { references: &references, sees: state.sees(), fields }.list(given, "items")
}

fn part(owner: &Owner, conversation: &str, item: &Item) -> Object {
    Object::new(Key::part(ITEM, &owner.0, conversation, item.id()), None, pack(item))
}

async fn find(
    state: &AppState,
    owner: &Owner,
    id: &str,
) -> Result<(Conversation, Object), ApiError> {
    let object = state.store.find(CONVERSATION, &owner.0, id).await?;
    let object = object.ok_or_else(|| not_found(id))?;
    Ok((unpack(&object.body)?, object))
}

fn not_found(id: &str) -> ApiError {
    ApiError::ObjectNotFound("conversation", id.to_owned())
}
