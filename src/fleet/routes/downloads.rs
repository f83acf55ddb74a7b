//! Models of the hub: fetched and deleted, in the shapes of Ollama and of llama.cpp's router.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::passing::required;
use crate::fleet::model::Origin;
use crate::fleet::naming;
use crate::fleet::state::FleetState;
use crate::http::front::ApiError;
use crate::weights::hub::watch::Watch;
use crate::weights::hub::{self, HubOptions, inventory};
use crate::weights::model_ref::HubRef;

/// Between two looks at a download.
const LOOK: Duration = Duration::from_millis(250);

/// The body of `/api/pull`.
#[derive(Deserialize)]
struct PullBody {
    model: Option<String>,
    name: Option<String>,
    stream: Option<bool>,
    insecure: Option<bool>,
}

/// How far a download is.
enum Step {
    Progress(Vec<hub::watch::FileProgress>),
    Done,
    Failed(String),
}

/// `POST /api/pull`: lines that tell how far it is, or one at the end with `"stream": false`.
pub(super) async fn pull(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let body: PullBody = serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the request body is not the JSON expected: {error}");
        ApiError::Invalid { message, param: None, code: Some("invalid_json") }
    })?;
    if body.insecure == Some(true) {
        return Err(ApiError::unsupported("insecure", "a download without checked certificates"));
    }
    let name = required(body.model.or(body.name))?;
    let mut steps = begin(&state, &name)?;
    if body.stream == Some(false) {
        while let Some(step) = steps.recv().await {
            match step {
                Step::Progress(_) => {}
                Step::Done => return Ok(Json(json!({"status": "success"})).into_response()),
                Step::Failed(why) => return Err(ApiError::Internal(why)),
            }
        }
        return Err(ApiError::Internal("the download ended without a word".to_owned()));
    }
    let begun = futures::stream::iter([json!({"status": "pulling manifest"})]);
    let lines = futures::stream::unfold(steps, |mut steps| async move {
        let lines = match steps.recv().await? {
            Step::Progress(files) => files.iter().map(progress_line).collect(),
            Step::Done => vec![
                json!({"status": "verifying sha256 digest"}),
                json!({"status": "writing manifest"}),
                json!({"status": "success"}),
            ],
            Step::Failed(why) => vec![json!({ "error": why })],
        };
        Some((futures::stream::iter(lines), steps))
    });
    let lines = futures::StreamExt::flatten(lines);
    let lines = futures::StreamExt::chain(begun, lines);
    let lines = futures::StreamExt::map(lines, |line: Value| {
        Ok::<_, std::io::Error>(Bytes::from(format!("{line}\n")))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

fn progress_line(file: &hub::watch::FileProgress) -> Value {
    json!({
        "status": format!("pulling {}", file.file),
        "digest": file.file,
        "total": file.total,
        "completed": file.done,
    })
}

/// `POST /v1/models`: the download begins; `/v1/models/sse` tells how far it is.
pub(super) async fn start(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let name = required(naming::in_json(&body)?)?;
    let mut steps = begin(&state, &name)?;
    let keeper = state.keeper.clone();
    tokio::spawn(async move {
        while let Some(step) = steps.recv().await {
            match step {
                Step::Progress(files) => {
                    let files = files
                        .into_iter()
                        .map(|file| (file.file, json!({"done": file.done, "total": file.total})));
                    let files: serde_json::Map<_, _> = files.collect();
                    keeper.tell(&name, "download_progress", Value::Object(files));
                }
                Step::Done => keeper.tell(&name, "download_finished", json!({})),
                Step::Failed(why) => keeper.tell(&name, "download_failed", json!({"error": why})),
            }
        }
    });
    Ok(Json(json!({"success": true})))
}

/// Begins a download, which goes on whether anybody looks or not.
fn begin(state: &FleetState, name: &str) -> Result<mpsc::UnboundedReceiver<Step>, ApiError> {
    let options = options(state)?;
    let reference =
        HubRef::parse(name, None).map_err(|error| ApiError::field("model", error.to_string()))?;
    let watch = Watch::default();
    let options = HubOptions { watch: watch.clone(), progress: false, ..options };
    let (tell, steps) = mpsc::unbounded_channel();
    let (state, name) = (state.clone(), name.to_owned());
    tokio::spawn(async move {
        let fetch = tokio::task::spawn_blocking(move || hub::fetch_blocking(&reference, &options));
        tokio::pin!(fetch);
        let fetched = loop {
            tokio::select! {
                fetched = &mut fetch => break fetched,
                () = tokio::time::sleep(LOOK) => {
                    // Whoever asked may have gone.
                    let _ = tell.send(Step::Progress(watch.files()));
                }
            }
        };
        let fetched = match fetched {
            Ok(fetched) => fetched.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        // Small files are through before the first look.
        let _ = tell.send(Step::Progress(watch.files()));
        let step = match fetched {
            Ok(path) => {
                tracing::info!(model = name, path = %path.display(), "fetched");
                match read_again(&state).await {
                    Ok(()) => Step::Done,
                    Err(error) => Step::Failed(error),
                }
            }
            Err(error) => Step::Failed(error),
        };
        let _ = tell.send(step);
    });
    Ok(steps)
}

async fn read_again(state: &FleetState) -> Result<(), String> {
    let catalog = state.catalog.clone();
    let specs = tokio::task::spawn_blocking(move || (catalog.read)()).await;
    let specs = specs.map_err(|error| error.to_string())?.map_err(|error| format!("{error:#}"))?;
    state.keeper.set_models(specs);
    Ok(())
}

/// How the hub is reached, if its models are served here.
fn options(state: &FleetState) -> Result<HubOptions, ApiError> {
    state.catalog.hub.clone().ok_or_else(|| ApiError::Invalid {
        message: "this server fetches and deletes no models: it serves those of its folders and \
                  lists; with --models hub it serves those of the hub's cache, too"
            .to_owned(),
        param: None,
        code: Some("unsupported_route"),
    })
}

/// `DELETE /api/delete`.
pub(super) async fn delete(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<StatusCode, ApiError> {
    remove(&state, required(naming::in_json(&body)?)?).await?;
    Ok(StatusCode::OK)
}

/// `DELETE /v1/models?model=`.
pub(super) async fn delete_listed(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    remove(&state, required(naming::in_query(&uri, "model"))?).await?;
    Ok(Json(json!({"success": true})))
}

async fn remove(state: &FleetState, name: String) -> Result<(), ApiError> {
    let options = options(state)?;
    let view = state.keeper.view(&name).ok_or_else(|| ApiError::ModelNotFound(name.clone()))?;
    if view.spec.origin != Origin::Hub {
        let message = format!("{name} is not of the hub's cache: it is deleted where it lies");
        return Err(ApiError::field("model", message));
    }
    // Its process ends in its own time; files that it has open stay until then.
    state.keeper.remove(&view.spec.name);
    let id = view.spec.model.clone();
    let removed = tokio::task::spawn_blocking(move || inventory::remove(&options.cache, &id)).await;
    let removed = removed.map_err(|error| ApiError::Internal(error.to_string()))?;
    removed.map_err(|error| ApiError::Internal(format!("{name} can't be deleted: {error}")))?;
    Ok(())
}
