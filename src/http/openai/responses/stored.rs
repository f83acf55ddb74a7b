//! The responses that are stored: to read, to follow while they run, to list what they were made of,
//! to cancel and to delete.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::background;
use crate::http::error::ApiError;
use crate::http::openai::lists::{Asked, ListKind, Parameters};
use crate::http::request::fields::FieldReader;
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::state::AppState;
use crate::http::state::response_store::StoredResponse;
use crate::http::wire::responses::{Item, ItemList};

/// `GET /v1/responses/{id}`: the response as it stands, or its events.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut fields = FieldReader::new(&[]);
    let (mut streams, mut next) = (false, None);
    for (name, value) in parameters {
        match name.as_str() {
            "stream" if value == "true" || value == "false" => streams = value == "true",
            "stream" => {
                let message = format!("stream must be true or false, got {value:?}");
                return Err(ApiError::field("stream", message));
            }
            "starting_after" => next = Some(behind(&value)?),
            // Everything there is to include is in it.
            "include" | "include[]" | "include_obfuscation" => fields.ignore(name),
            _ => fields.unknown(name),
        }
    }
    if next.is_some() && !streams {
        fields.ignore("starting_after");
    }
    let ignored = fields.finish(state.config.strict)?;
    let response = stored(&state, &owner, &id).await?.response;
    if !streams {
        return Ok(ignored.tell(axum::Json(response).into_response()));
    }
    if response["background"] != true {
        let message = "stream: only a response that was made with background can be followed";
        return Err(ApiError::field("stream", message));
    }
    let live = state.live.get(&id);
    let events = background::follow(state, owner, id, live, next.unwrap_or(0));
    Ok(ignored.tell(events))
}

/// The number of the event behind that one.
fn behind(value: &str) -> Result<usize, ApiError> {
    let number = value.parse::<usize>().ok().and_then(|number| number.checked_add(1));
    number.ok_or_else(|| {
        let message = format!("starting_after must be the number of an event, got {value:?}");
        ApiError::field("starting_after", message)
    })
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    if !state.responses.remove(&owner.0, &id).await? {
        return Err(ApiError::ResponseNotFound(id));
    }
    if let Some(live) = state.live.get(&id) {
        live.cancel();
    }
    Ok(axum::Json(json!({"id": id, "object": "response", "deleted": true})))
}

/// `POST /v1/responses/{id}/cancel`: ends a response that runs in the background.
pub(crate) async fn cancel(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    background::cancel(&state, &owner, &id).await.map(axum::Json)
}

/// `GET /v1/responses/{id}/input_items`: all items that the model was given, the last one first.
pub(crate) async fn input_items(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let Asked { page, ignored, .. } = Asked::new(parameters, ListKind::NEWEST_FIRST, &state)?;
    let stored = stored(&state, &owner, &id).await?;
    let mut items: Vec<&Item> = stored.input.items().collect();
    if !page.ascending {
        items.reverse();
    }
    let place = |name: &str, id: &String| {
        let place = items.iter().position(|item| item.id() == id);
        place.ok_or_else(|| ApiError::field(name, format!("{name}: there is no item {id:?}")))
    };
    let after = page.after.as_ref().map(|id| place("after", id)).transpose()?;
    let before = page.before.as_ref().map(|id| place("before", id)).transpose()?;
    let begin = after.map_or(0, |place| place + 1);
    let end = before.unwrap_or(items.len()).max(begin);
    let data: Vec<&Item> = items[begin..end].iter().take(page.limit).copied().collect();
    let list = ItemList {
        object: "list",
        first_id: data.first().map(|item| item.id()),
        last_id: data.last().map(|item| item.id()),
        has_more: begin + data.len() < end,
        data,
    };
    Ok(ignored.tell(axum::Json(list).into_response()))
}

async fn stored(state: &AppState, owner: &Owner, id: &str) -> Result<StoredResponse, ApiError> {
    let stored = state.responses.get(&owner.0, id).await?;
    stored.ok_or_else(|| ApiError::ResponseNotFound(id.to_owned()))
}
