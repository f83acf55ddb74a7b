//! The responses that requests asked to store: to read, to list what they were made of, to delete.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::request::fields::FieldReader;
use crate::http::request::path_id::PathId;
use crate::http::state::AppState;
use crate::http::state::response_store::StoredResponse;
use crate::http::wire::bounds::MAX_PAGE_ITEMS;
use crate::http::wire::responses::{Item, ItemList};

/// Items in a list that doesn't say how many.
const DEFAULT_LIMIT: usize = 20;

/// Names and values behind the question mark.
type Parameters = Query<Vec<(String, String)>>;

/// `GET /v1/responses/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    PathId(id): PathId,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut fields = FieldReader::new(&[]);
    for (name, value) in parameters {
        match name.as_str() {
            "stream" if value == "true" => {
                return Err(ApiError::unsupported("stream", "a stream of a stored response"));
            }
            "stream" if value != "false" => {
                let message = format!("stream must be true or false, got {value:?}");
                return Err(ApiError::field("stream", message));
            }
            // Everything there is to include is in it; the others are for streams.
            "stream" | "include" | "include[]" | "include_obfuscation" | "starting_after" => {
                fields.ignore(name);
            }
            _ => fields.unknown(name),
        }
    }
    let ignored = fields.finish(state.config.strict)?;
    let stored = stored(&state, id)?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    let response = (json, stored.json.clone()).into_response();
    Ok(ignored.tell(response))
}

/// `DELETE /v1/responses/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    if !state.responses.remove(Instant::now(), &id) {
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
    stored(&state, id)?;
    let message = "Cannot cancel a synchronous response.".to_owned();
    Err(ApiError::Invalid { message, param: None, code: None })
}

/// `GET /v1/responses/{id}/input_items`: all items that the model was given, the last one first.
pub(crate) async fn input_items(
    State(state): State<AppState>,
    PathId(id): PathId,
    Query(parameters): Parameters,
) -> Result<Response, ApiError> {
    let mut fields = FieldReader::new(&[]);
    let page = Page::new(parameters, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let stored = stored(&state, id)?;
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
    Ok(ignored.tell(axum::Json(list).into_response()))
}

/// Which items of a list are asked for.
struct Page {
    after: Option<String>,
    limit: usize,
    ascending: bool,
}

impl Page {
    fn new(parameters: Vec<(String, String)>, fields: &mut FieldReader) -> Result<Self, ApiError> {
        let mut page = Self { after: None, limit: DEFAULT_LIMIT, ascending: false };
        for (name, value) in parameters {
            match name.as_str() {
                "after" => page.after = Some(value),
                "limit" => {
                    let limit =
                        value.parse().ok().filter(|limit| (1..=MAX_PAGE_ITEMS).contains(limit));
                    page.limit = limit.ok_or_else(|| {
                        let message =
                            format!("limit must be in 1..={MAX_PAGE_ITEMS}, got {value:?}");
                        ApiError::field("limit", message)
                    })?;
                }
                "order" if value == "asc" || value == "desc" => page.ascending = value == "asc",
                "order" => {
                    let message = format!("order must be \"asc\" or \"desc\", got {value:?}");
                    return Err(ApiError::field("order", message));
                }
                "include" | "include[]" => fields.ignore(name),
                _ => fields.unknown(name),
            }
        }
        Ok(page)
    }
}

fn stored(state: &AppState, id: String) -> Result<Arc<StoredResponse>, ApiError> {
    let stored = state.responses.get(Instant::now(), &id);
    stored.ok_or(ApiError::ResponseNotFound(id))
}
