//! The list of models, each with its state, and what loads and unloads them; the shapes are OpenAI's and
//! those of llama.cpp's router.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::passing::{event_stream, refused, required};
use crate::fleet::keeper::Event;
use crate::fleet::naming;
use crate::fleet::residency::Stage;
use crate::fleet::roster::View;
use crate::fleet::state::FleetState;
use crate::http::front::ApiError;

/// `GET /v1/models`; with `?reload=1` folders and files are read again before.
pub(super) async fn list(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    if naming::in_query(&uri, "reload").is_some_and(|asked| asked == "1" || asked == "true") {
        read_again(&state).await?;
    }
    let data: Vec<Value> = state.keeper.views().iter().map(|view| entry(&state, view)).collect();
    Ok(Json(json!({"object": "list", "data": data})))
}

/// `GET /v1/models/{id}`.
pub(super) async fn one(
    State(state): State<FleetState>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let view = state.keeper.view(&id).ok_or(ApiError::ModelNotFound(id))?;
    Ok(Json(entry(&state, &view)))
}

/// `POST /v1/models/reload`.
pub(super) async fn reload(State(state): State<FleetState>) -> Result<Json<Value>, ApiError> {
    read_again(&state).await?;
    Ok(Json(json!({"success": true})))
}

/// `POST /v1/models/load`: answers when the model is about to be loaded.
pub(super) async fn load(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let name = required(naming::in_json(&body)?)?;
    state.keeper.load(&state.meant(name)).map_err(refused)?;
    Ok(Json(json!({"success": true})))
}

/// `POST /v1/models/unload`: the model goes once its requests have ended.
pub(super) async fn unload(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let name = required(naming::in_json(&body)?)?;
    state.keeper.unload(&state.meant(name), false).map_err(refused)?;
    Ok(Json(json!({"success": true})))
}

/// `GET /v1/models/sse`: what happens to models, as it happens.
pub(super) async fn events(State(state): State<FleetState>) -> Response {
    let events = state.keeper.events();
    let frames = futures::stream::unfold(events, |mut events| async move {
        loop {
            match events.recv().await {
                Ok(event) => return Some((Ok::<_, std::io::Error>(frame(&event)), events)),
                // A reader that is too slow misses some.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    event_stream(Body::from_stream(frames))
}

fn frame(event: &Event) -> Bytes {
    let Event { model, kind, data } = event;
    format!("data: {}\n\n", json!({"model": model, "event": kind, "data": data})).into()
}

async fn read_again(state: &FleetState) -> Result<(), ApiError> {
    let catalog = state.catalog.clone();
    let read = tokio::task::spawn_blocking(move || (catalog.read)()).await;
    let read = read.map_err(|error| ApiError::Internal(error.to_string()))?;
    let specs = read.map_err(|error| ApiError::Invalid {
        message: format!("the models can't be read: {error:#}"),
        param: None,
        code: None,
    })?;
    state.keeper.set_models(specs);
    Ok(())
}

/// A model as the list has it.
fn entry(state: &FleetState, view: &View) -> Value {
    let spec = &view.spec;
    let known = view.snapshot.entry.as_ref();
    let context = known.and_then(|entry| entry["max_model_len"].as_u64());
    let mut entry = json!({
        "id": spec.name,
        "object": "model",
        "created": state.created,
        "owned_by": "sconce",
        "root": spec.model,
        "parent": null,
        "max_model_len": context.unwrap_or(spec.facts.context as u64),
        "aliases": spec.aliases,
        "pinned": spec.pinned,
        "size": spec.facts.bytes,
        "planned_memory": spec.facts.need,
        "status": status(view),
    });
    if let Some(fault) = &spec.facts.fault {
        entry["status"]["fault"] = json!(fault);
    }
    entry
}

/// The state of a model in the words of llama.cpp's router.
pub(super) fn status(view: &View) -> Value {
    let mut status = json!({"value": state_name(view)});
    if view.stage == Stage::Ready || view.stage == Stage::Loading {
        let [running, waiting] = view.requests;
        status["args"] = json!(view.spec.arguments);
        status["requests"] = json!({"running": running, "waiting": waiting});
        status["process"] = json!(view.process);
    }
    if let Some((reason, code)) = view.failure.as_ref().filter(|_| view.stage == Stage::Absent) {
        status["failed"] = json!(true);
        status["exit_code"] = json!(code);
        status["reason"] = json!(reason);
    }
    status
}

fn state_name(view: &View) -> &'static str {
    match view.stage {
        Stage::Ready => "loaded",
        Stage::Loading => "loading",
        Stage::Leaving => "unloading",
        Stage::Absent if view.sleeps => "sleeping",
        Stage::Absent => "unloaded",
    }
}
