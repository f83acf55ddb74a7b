//! `/v1/batches`: a file of requests that are run when nothing else needs the engine, and whose
//! answers are files.

use std::collections::HashSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::files::lifetime;
use super::lists::{Asked, ListKind, Parameters, list};
use super::metadata::metadata;
use super::responses::background::line_body;
use crate::http::error::ApiError;
use crate::http::openai::envelope::item_id;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, required, text_member};
use crate::http::request::owner::Owner;
use crate::http::request::path_id::PathId;
use crate::http::request::rules::Rules;
use crate::http::state::AppState;
use crate::http::state::batches::{BATCH, BatchObject, BatchStatus, LineError, StoredBatch};
use crate::http::state::files::{LineReader, StoredFile};
use crate::http::wire::batches::BatchRequest;
use crate::http::wire::bounds::MAX_BATCH_LINES;
use crate::store::{Key, NewLine, Store};

/// Routes that lines can be for.
const ENDPOINTS: [&str; 4] =
    ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];
/// Errors that a batch tells.
const MOST_ERRORS: usize = 100;

impl RequestBody for BatchRequest {
    const RULES: &'static [Rules] = &[];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }
}

/// `POST /v1/batches`.
pub(crate) async fn create(
    State(state): State<AppState>,
    owner: Owner,
    request: Extracted<BatchRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, fields, .. } = request;
    let ignored = fields.finish(state.config.strict)?;
    let endpoint = required(body.endpoint, "", "endpoint")?;
    if !ENDPOINTS.contains(&endpoint.as_str()) {
        let all = ENDPOINTS.join(", ");
        let message = format!("endpoint must be one of {all}, got {endpoint:?}");
        return Err(ApiError::field("endpoint", message));
    }
    let window = required(body.completion_window, "", "completion_window")?;
    if window != "24h" {
        let message = format!("completion_window must be \"24h\", got {window:?}");
        return Err(ApiError::field("completion_window", message));
    }
    let input = required(body.input_file_id, "", "input_file_id")?;
    let file = StoredFile::find(&state.store, &owner.0, &input).await?;
    if file.purpose != "batch" {
        let message = format!(
            "input_file_id: the file's purpose must be \"batch\", it is {:?}",
            file.purpose
        );
        return Err(ApiError::field("input_file_id", message));
    }
    let mut batch = StoredBatch::new(&endpoint, input);
    batch.metadata = metadata(body.metadata)?;
    if let Some(after) = body.output_expires_after {
        if let Some(anchor) = after.anchor.filter(|anchor| anchor != "created_at") {
            let param = "output_expires_after.anchor";
            let message = format!("{param} must be \"created_at\", got {anchor:?}");
            return Err(ApiError::field(param, message));
        }
        let seconds = required(after.seconds, "output_expires_after", "seconds")?;
        batch.output_seconds = Some(lifetime(&seconds.0.to_string())?);
    }
    let Lines { read: lines, errors, .. } = Lines::read(&state, &owner, &batch).await?;
    if !errors.is_empty() {
        batch.status = BatchStatus::Failed;
        batch.ended_at = Some(batch.created_at);
        batch.counts = Some([0, 0, 0]);
        batch.errors = errors;
    }
    let key = Key::new(BATCH, &owner.0, &item_id("batch"));
    let expires = state.responses.expires();
    let made = BatchObject::add(&state.store, key, batch, lines, expires).await?;
    state.work.notify_one();
    Ok(ignored.tell(axum::Json(json(&state.store, &made).await?).into_response()))
}

/// `GET /v1/batches/{id}`.
pub(crate) async fn retrieve(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let found = BatchObject::find(&state.store, BATCH, &owner.0, &id).await?;
    Ok(axum::Json(json(&state.store, &found).await?))
}

/// `POST /v1/batches/{id}/cancel`: lines that are being answered still are.
pub(crate) async fn cancel(
    State(state): State<AppState>,
    owner: Owner,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let found = BatchObject::find(&state.store, BATCH, &owner.0, &id).await?;
    let cancelled = found.cancel(&state.store).await?;
    state.work.notify_one();
    Ok(axum::Json(json(&state.store, &cancelled).await?))
}

/// `GET /v1/batches`: the newest first.
pub(crate) async fn batches(
    State(state): State<AppState>,
    owner: Owner,
    parameters: Parameters,
) -> Result<Response, ApiError> {
    let Asked { page, ignored, .. } = Asked::new(parameters, ListKind::NEWEST_FIRST, &state)?;
    let page = state.store.list(BATCH, &owner.0, "", &page).await?;
    let mut data = Vec::new();
    for object in page.objects {
        data.push(json(&state.store, &BatchObject::read(object)?).await?);
    }
    Ok(ignored.tell(axum::Json(list(&data, page.has_more)).into_response()))
}

/// The batch object.
async fn json(store: &Store, object: &BatchObject) -> Result<Value, ApiError> {
    let batch = &object.batch;
    let counts = batch.counts(store, object.id()).await?;
    let ended = |status| (batch.status == status).then_some(batch.ended_at);
    let errors =
        (!batch.errors.is_empty()).then(|| json!({"object": "list", "data": batch.errors}));
    Ok(json!({
        "id": object.id(),
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at,
        "in_progress_at": batch.in_progress_at,
        "expires_at": batch.expires_at(),
        "finalizing_at": ended(BatchStatus::Completed),
        "completed_at": ended(BatchStatus::Completed),
        "failed_at": ended(BatchStatus::Failed),
        "expired_at": ended(BatchStatus::Expired),
        "cancelling_at": batch.cancelling_at,
        "cancelled_at": ended(BatchStatus::Cancelled),
        "request_counts": {
            "total": counts.total(),
            "completed": counts.answered,
            "failed": counts.failed,
        },
        "metadata": batch.metadata,
    }))
}

/// The lines of a batch's file, and what is wrong with them.
#[derive(Default)]
struct Lines {
    read: Vec<NewLine>,
    names: HashSet<String>,
    errors: Vec<LineError>,
}

impl Lines {
    async fn read(state: &AppState, owner: &Owner, batch: &StoredBatch) -> Result<Self, ApiError> {
        let mut all = Self::default();
        let mut reader = LineReader::new(&state.store, &batch.input_file_id);
        let mut number = 0;
        while let Some(line) = reader.next().await? {
            number += 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if all.read.len() == MAX_BATCH_LINES {
                let message = format!("The file has more than {MAX_BATCH_LINES} lines.");
                all.error("too_many_lines", number, message, None);
                break;
            }
            if let Err((code, message, param)) = all.add(state, owner, batch, &line) {
                all.error(code, number, message, param);
                if all.errors.len() == MOST_ERRORS {
                    break;
                }
            }
        }
        if all.read.is_empty() && all.errors.is_empty() {
            all.error("empty_file", 1, "The file has no lines.".to_owned(), None);
        }
        Ok(all)
    }

    fn error(&mut self, code: &str, line: usize, message: String, param: Option<&str>) {
        let (code, param) = (code.to_owned(), param.map(str::to_owned));
        self.errors.push(LineError { code, line: Some(line), message, param });
    }

    fn add(
        &mut self,
        state: &AppState,
        owner: &Owner,
        batch: &StoredBatch,
        line: &[u8],
    ) -> Result<(), (&'static str, String, Option<&'static str>)> {
        let line: Value = serde_json::from_slice(line).ok().filter(Value::is_object).ok_or((
            "invalid_json_line",
            "This line is no JSON object.".to_owned(),
            None,
        ))?;
        let custom_id = text_member(&line, "custom_id").filter(|id| !id.is_empty());
        let custom_id = custom_id.ok_or((
            "missing_required_parameter",
            "custom_id must be a text that is not empty.".to_owned(),
            Some("custom_id"),
        ))?;
        if !self.names.insert(custom_id.to_owned()) {
            let message = format!("The custom_id {custom_id:?} appears twice.");
            return Err(("duplicate_custom_id", message, Some("custom_id")));
        }
        let method = text_member(&line, "method").unwrap_or_default();
        if method != "POST" {
            let message = format!("method must be \"POST\", got {method:?}.");
            return Err(("invalid_method", message, Some("method")));
        }
        let url = text_member(&line, "url").unwrap_or_default();
        if url != batch.endpoint {
            let message =
                format!("url must be that of the batch, {}, got {url:?}.", batch.endpoint);
            return Err(("mismatched_endpoint", message, Some("url")));
        }
        let body = line.get("body").filter(|body| body.is_object()).ok_or((
            "missing_required_parameter",
            "body must be an object.".to_owned(),
            Some("body"),
        ))?;
        for name in ["stream", "background"] {
            if body[name] == true {
                let message = format!("{name}: a line of a batch is answered whole.");
                return Err(("unsupported_value", message, Some("body")));
            }
        }
        let model = text_member(body, "model").unwrap_or(state.model_name());
        if let Err(error) = state.check_model(Some(model)) {
            return Err(("model_not_found", error.to_string(), Some("body.model")));
        }
        self.read.push(NewLine {
            number: i64::try_from(self.read.len()).unwrap_or(i64::MAX),
            custom_id: custom_id.to_owned(),
            model: state.own_name(model),
            body: line_body(owner, url, body),
        });
        Ok(())
    }
}
