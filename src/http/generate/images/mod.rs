//! The pictures of a conversation: from where a request says they are to what the engine sees.
//!
//! `source` reads what the request says, `remote` gets what is elsewhere.

mod address;
mod remote;
pub(crate) mod source;

use std::sync::Arc;

use super::chat_request::{Image, Part};
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::pictures::processor::Processor;
use crate::pictures::wording::Prepared;
use source::Location;

/// Refuses more pictures in a prompt than the server takes.
pub(super) fn check_count(state: &AppState, count: usize) -> Result<(), ApiError> {
    let most = state.config.media.max_images;
    if count <= most {
        return Ok(());
    }
    let message = format!("the conversation has {count} pictures, at most {most} are taken");
    Err(ApiError::Invalid { message, param: None, code: Some("too_many_images") })
}

/// Gets, decodes and prepares pictures, one after the other.
pub(super) async fn read(
    state: &AppState,
    processor: &Arc<Processor>,
    images: Vec<Image>,
) -> Result<Vec<Prepared>, ApiError> {
    let mut pictures = Vec::with_capacity(images.len());
    for Image { path, source, detail, .. } in images {
        let refused = {
            let path = path.clone();
            move |reason: String| ApiError::Invalid {
                message: format!("{path}: {reason}"),
                param: Some(path.clone()),
                code: Some("invalid_image"),
            }
        };
        let located = off_thread(move || Ok(source.locate())).await?;
        let bytes = match located.map_err(&refused)? {
            Location::Here(bytes) => bytes,
            Location::Remote(url) => remote::fetch(&url, &state.config.media)
                .await
                .map_err(|error| refused(error.to_string()))?,
        };
        let processor = Arc::clone(processor);
        let picture = off_thread(move || {
            processor.read(&bytes, detail).map_err(|error| refused(error.to_string()))
        });
        pictures.push(picture.await?);
    }
    Ok(pictures)
}

/// The pictures among the parts of a message.
pub(super) fn in_parts(parts: &[Part]) -> impl Iterator<Item = &Image> {
    parts.iter().filter_map(|part| match part {
        Part::Image(image) => Some(image),
        _ => None,
    })
}
