//! Stored objects that are deleted.

use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::store::{Change, Key, Store};

/// Removes an object with its parts, and says so with `object` as the answer's kind; `name` is what errors
/// call it.
///
/// # Errors
///
/// 404 where there is none, 503 where the store is down.
pub(crate) async fn remove(
    store: &Store,
    key: Key,
    name: &'static str,
    object: &str,
) -> Result<axum::Json<Value>, ApiError> {
    let id = key.id.clone();
    if !store.change(vec![Change::Remove(key)]).await? {
        return Err(ApiError::ObjectNotFound(name, id));
    }
    Ok(axum::Json(json!({"id": id, "object": object, "deleted": true})))
}
