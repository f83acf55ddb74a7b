//! `/v1/files`: what batches read, and what they write.

use axum::extract::State;
use axum::extract::multipart::{Multipart, MultipartRejection};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::lists::{Asked, ListKind, Parameters, list};
use super::removal::remove;
use crate::http::error::ApiError;
use crate::http::request::form::{expected, next, text};
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::state::files::{FILE, FileWriter, StoredFile, contents};
use crate::http::state::packing::unpack;
use crate::store::{Key, Object};

/// What files can be for.
const PURPOSES: [&str; 6] = ["assistants", "batch", "evals", "fine-tune", "user_data", "vision"];
/// Longest value of a field beside the file.
const MOST_TEXT: usize = 4096;
/// Bounds of how long a file may be kept, in seconds: an hour to 30 days.
const LIFETIME: std::ops::RangeInclusive<i64> = 3600..=2_592_000;
const LIST: ListKind =
    ListKind { most: 10_000, usual: 10_000, ascending: false, own: &["purpose"] };

/// What comes with an upload.
#[derive(Debug, Default)]
struct Form {
    filename: Option<String>,
    purpose: Option<String>,
    anchor: Option<String>,
    seconds: Option<String>,
}

/// `POST /v1/files`.
pub(crate) async fn upload(
    State(state): State<AppState>,
    owner: Owner,
    form: Result<Multipart, MultipartRejection>,
) -> Result<axum::Json<Value>, ApiError> {
    let multipart = expected(form)?;
    let mut writer = FileWriter::new(&state.store);
    let form = match read(&state, multipart, &mut writer).await {
        Ok(form) => form,
        Err(error) => {
            writer.abandon().await;
            return Err(error);
        }
    };
    let checked = checked(&state, form);
    let Ok((filename, purpose, expires_at)) = checked else {
        writer.abandon().await;
        return Err(checked.expect_err("it is no success"));
    };
    let id = writer.id.clone();
    let (change, file) = writer.end(&owner.0, filename, &purpose, expires_at).await?;
    state.store.change(vec![change]).await?;
    Ok(axum::Json(file.json(&id)))
}

async fn read(
    state: &AppState,
    mut multipart: Multipart,
    writer: &mut FileWriter,
) -> Result<Form, ApiError> {
    let mut form = Form::default();
    while let Some(mut field) = next(multipart.next_field()).await? {
        match field.name().unwrap_or_default() {
            "file" => {
                let name = field.file_name().unwrap_or("file");
                form.filename = Some(name.to_owned());
                let most = state.config.store.max_file_bytes;
                while let Some(bytes) = next(field.chunk()).await? {
                    if writer.bytes + bytes.len() as u64 > most {
                        let most = usize::try_from(most).unwrap_or(usize::MAX);
                        return Err(ApiError::BodyTooLarge(most));
                    }
                    writer.write(&bytes).await?;
                }
            }
            "purpose" => form.purpose = Some(text(field, "purpose", MOST_TEXT).await?),
            "expires_after[anchor]" => {
                form.anchor = Some(text(field, "expires_after", MOST_TEXT).await?);
            }
            "expires_after[seconds]" => {
                form.seconds = Some(text(field, "expires_after", MOST_TEXT).await?);
            }
            other => {
                let message = format!("{other}: unknown field");
                return Err(ApiError::field(other, message));
            }
        }
    }
    Ok(form)
}

/// The file's name, its purpose, and when it expires.
fn checked(state: &AppState, form: Form) -> Result<(String, String, Option<i64>), ApiError> {
    let required = |value: Option<String>, name: &'static str| {
        value.ok_or_else(|| ApiError::field(name, format!("{name} is required")))
    };
    let filename = required(form.filename, "file")?;
    let purpose = required(form.purpose, "purpose")?;
    if !PURPOSES.contains(&purpose.as_str()) {
        let all = PURPOSES.join(", ");
        let message = format!("purpose must be one of {all}, got {purpose:?}");
        return Err(ApiError::field("purpose", message));
    }
    if let Some(anchor) = form.anchor.filter(|anchor| anchor != "created_at") {
        let message = format!("expires_after.anchor must be \"created_at\", got {anchor:?}");
        return Err(ApiError::field("expires_after.anchor", message));
    }
    let seconds = form.seconds.map(|text| lifetime(&text)).transpose()?;
    // Files of batches don't pile up.
    let usual = (purpose == "batch").then(|| state.config.store.age.as_secs().cast_signed());
    let now = unix_seconds().cast_signed();
    Ok((filename, purpose, seconds.or(usual).map(|seconds| now + seconds)))
}

/// How long a file is kept, in seconds.
pub(super) fn lifetime(text: &str) -> Result<i64, ApiError> {
    text.parse().ok().filter(|seconds| LIFETIME.contains(seconds)).ok_or_else(|| {
        let (least, most) = (LIFETIME.start(), LIFETIME.end());
        let message = format!("expires_after.seconds must be in {least}..={most}, got {text:?}");
        ApiError::field("expires_after.seconds", message)
    })
}

/// `GET /v1/files`: the newest first, unless asked otherwise; of one purpose, if it is named.
pub(crate) async fn files(
    State(state): State<AppState>,
    owner: Owner,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let Asked { mut page, own, ignored } = Asked::new(parameters, LIST, &state)?;
    let purpose = own.into_iter().find(|(name, _)| name == "purpose").map(|(_, value)| value);
    let (mut data, mut has_more) = (Vec::new(), true);
    while has_more && data.len() < page.limit {
        let read = state.store.list(FILE, &owner.0, "", &page).await?;
        has_more = read.has_more;
        for Object { key, body, .. } in read.objects {
            let file: StoredFile = unpack(&body)?;
            page.after = Some(key.id.clone());
            if purpose.as_ref().is_none_or(|purpose| *purpose == file.purpose) {
                if data.len() == page.limit {
                    has_more = true;
                    break;
                }
                data.push(file.json(&key.id));
            }
        }
    }
    Ok(ignored.tell(axum::Json(list(&data, has_more)).into_response()))
}

/// `GET /v1/files/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    Ok(axum::Json(StoredFile::find(&state.store, &owner.0, &id).await?.json(&id)))
}

/// `GET /v1/files/{id}/content`.
pub(crate) async fn content(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let file = StoredFile::find(&state.store, &owner.0, &id).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_LENGTH, HeaderValue::from(file.bytes)),
    ];
    Ok((headers, contents(&state.store, &id)).into_response())
}

/// `DELETE /v1/files/{id}`.
pub(crate) async fn delete(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let key = Key::new(FILE, &owner.0, &id);
    remove(&state.store, key, FILE, "file").await
}
