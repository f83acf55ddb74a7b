//! What operators and clients ask about the server itself: models, health, metrics, version.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::adapters::ServedAdapter;
use super::error::ApiError;
use super::path_id::PathId;
use super::state::AppState;

/// `GET /v1/models`.
pub(crate) async fn models(State(state): State<AppState>) -> axum::Json<Value> {
    let names = &state.config().served_model_names;
    let models = names.iter().map(|name| model_entry(&state, name));
    let adapters = state.adapters().all();
    let adapters = adapters.iter().map(|served| adapter_entry(&state, served));
    let data: Vec<Value> = models.chain(adapters).collect();
    axum::Json(json!({"object": "list", "data": data}))
}

/// `GET /v1/models/{id}`; an id may contain slashes.
pub(crate) async fn model(
    State(state): State<AppState>,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    if let Some(served) = state.adapters().find(&id) {
        return Ok(axum::Json(adapter_entry(&state, &served)));
    }
    state.check_model(Some(&id))?;
    Ok(axum::Json(model_entry(&state, &id)))
}

fn model_entry(state: &AppState, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": state.created(),
        "owned_by": "sconce",
        "root": state.model_name(),
        "parent": null,
        "max_model_len": state.engine().limits().max_model_len,
    })
}

fn adapter_entry(state: &AppState, served: &ServedAdapter) -> Value {
    json!({
        "id": served.adapter.name(),
        "object": "model",
        "created": served.created,
        "owned_by": "sconce",
        "root": served.path,
        "parent": served.base_model_name.as_deref().unwrap_or(state.model_name()),
        "max_model_len": state.engine().limits().max_model_len,
    })
}

/// `GET /health/live`: the process answers.
pub(crate) async fn live() -> axum::Json<Value> {
    axum::Json(json!({"status": "live"}))
}

/// `GET /health` and `/health/ready`: requests are welcome.
pub(crate) async fn ready(State(state): State<AppState>) -> Result<axum::Json<Value>, ApiError> {
    state.check_ready()?;
    Ok(axum::Json(json!({"status": "ready"})))
}

/// `GET /metrics`, as Prometheus text.
pub(crate) async fn metrics(State(state): State<AppState>) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], state.metrics().render()).into_response()
}

/// `GET /version`.
pub(crate) async fn version(State(state): State<AppState>) -> axum::Json<Value> {
    axum::Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "features": state.build_features(),
    }))
}
