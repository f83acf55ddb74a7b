//! What the items of a request name instead of bringing it: stored items, and pictures that were uploaded
//! as files.

use std::collections::HashMap;

use axum::body::to_bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::request::fields::text_member;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::files::{StoredFile, contents};
use crate::http::wire::responses::Item;

/// What the references of a request lead to, as far as it is stored.
#[derive(Debug, Default)]
pub(crate) struct References {
    items: HashMap<String, Item>,
    /// Files as data URLs.
    pictures: HashMap<String, String>,
}

impl References {
    /// Looks up those of an `input`.
    ///
    /// # Errors
    /// The store can't be read, or a picture is larger than a request may be.
    pub(crate) async fn find(
        state: &AppState,
        owner: &Owner,
        input: Option<&Value>,
    ) -> Result<Self, ApiError> {
        let items = || input.and_then(Value::as_array).into_iter().flatten();
        let ids = items().filter(|item| refers(item)).filter_map(|item| text_member(item, "id"));
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let mut found =
            Self { items: state.responses.items(&owner.0, ids).await?, ..Self::default() };
        if state.sees() {
            for id in items().flat_map(pictures) {
                found.add_picture(state, owner, id).await?;
            }
        }
        Ok(found)
    }

    /// A stored item.
    pub(super) fn item(&self, id: &str) -> Option<&Item> {
        self.items.get(id)
    }

    /// A file as a data URL.
    pub(super) fn picture(&self, id: &str) -> Option<&String> {
        self.pictures.get(id)
    }

    async fn add_picture(
        &mut self,
        state: &AppState,
        owner: &Owner,
        id: &str,
    ) -> Result<(), ApiError> {
        if self.pictures.contains_key(id) {
            return Ok(());
        }
        let file = match StoredFile::find(&state.store, &owner.0, id).await {
            Ok(file) => file,
            // Its place in the request is told by who asks for it.
            Err(ApiError::ObjectNotFound(..)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let most = state.max_body_bytes();
        let too_large = || {
            let bytes = file.bytes;
            let message =
                format!("the file {id:?} has {bytes} bytes, at most {most} may be a picture");
            ApiError::field("file_id", message)
        };
        if file.bytes > most as u64 {
            return Err(too_large());
        }
        let bytes = to_bytes(contents(&state.store, id), most).await.map_err(|_| too_large())?;
        let url = format!("data:application/octet-stream;base64,{}", STANDARD.encode(bytes));
        self.pictures.insert(id.to_owned(), url);
        Ok(())
    }
}

/// Whether an item stands for a stored one.
fn refers(item: &Value) -> bool {
    let has = |name: &str| item.get(name).is_some_and(|value| !value.is_null());
    match text_member(item, "type") {
        Some(kind) => kind == "item_reference",
        None => !has("type") && !has("role") && has("id"),
    }
}

/// The files that are the pictures of an item.
fn pictures(item: &Value) -> impl Iterator<Item = &str> {
    let parts = ["content", "output"].into_iter().filter_map(|name| item.get(name)?.as_array());
    let pictures = parts.flatten().filter(|part| text_member(part, "type") == Some("input_image"));
    let without_url = pictures.filter(|part| text_member(part, "image_url").is_none());
    without_url.filter_map(|part| text_member(part, "file_id"))
}
