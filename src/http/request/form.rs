//! Forms (`multipart/form-data`), part by part: what does not come in time is not waited for.

use std::time::Duration;

use axum::extract::multipart::{Field, Multipart, MultipartError, MultipartRejection};

use crate::http::error::ApiError;

/// Longest wait for the next part of an upload.
const STALL: Duration = Duration::from_secs(30);

/// The form that a request was expected to have.
pub(crate) fn expected(form: Result<Multipart, MultipartRejection>) -> Result<Multipart, ApiError> {
    form.map_err(|error| {
        let message = format!("the body must be multipart/form-data: {}", error.body_text());
        ApiError::UnsupportedMediaType(message)
    })
}

/// The next part of an upload, if it comes in time.
pub(crate) async fn next<T>(
    part: impl Future<Output = Result<T, MultipartError>>,
) -> Result<T, ApiError> {
    let part = tokio::time::timeout(STALL, part).await;
    let part = part.map_err(|_| ApiError::BodyStalled(STALL.as_secs()))?;
    part.map_err(|error| {
        let message = format!("the upload could not be read: {}", error.body_text());
        ApiError::Invalid { message, param: None, code: None }
    })
}

/// The value of a field beside the file, of at most so many bytes.
pub(crate) async fn text(
    mut field: Field<'_>,
    name: &str,
    most: usize,
) -> Result<String, ApiError> {
    let mut bytes = Vec::new();
    while let Some(more) = next(field.chunk()).await? {
        bytes.extend_from_slice(&more);
        if bytes.len() > most {
            return Err(ApiError::field(name, format!("{name} is longer than {most} bytes")));
        }
    }
    String::from_utf8(bytes).map_err(|_| ApiError::field(name, format!("{name} is not UTF-8")))
}
