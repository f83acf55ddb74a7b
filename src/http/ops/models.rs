//! `/v1/models`: the names that the model answers to, and its adapters.

use axum::extract::State;
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::request::path_id::PathId;
use crate::http::state::AppState;
use crate::http::state::adapter_registry::ServedAdapter;

/// `GET /v1/models`.
pub(crate) async fn models(State(state): State<AppState>) -> axum::Json<Value> {
    let names = &state.config.served_model_names;
    let models = names.iter().map(|name| model_entry(&state, name));
    let adapters = state.adapters.all();
    let adapters = adapters.iter().map(|served| adapter_entry(&state, served));
    let data: Vec<Value> = models.chain(adapters).collect();
    axum::Json(json!({"object": "list", "data": data}))
}

/// `GET /v1/models/{id}`; an id may contain slashes.
pub(crate) async fn model(
    State(state): State<AppState>,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    if let Some(served) = state.adapters.find(&id) {
        return Ok(axum::Json(adapter_entry(&state, &served)));
    }
    state.check_model(Some(&id))?;
    Ok(axum::Json(model_entry(&state, &id)))
}

fn model_entry(state: &AppState, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": state.created,
        "owned_by": "sconce",
        "root": state.model_name(),
        "parent": null,
        "max_model_len": state.engine.limits().max_model_len,
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
        "max_model_len": state.engine.limits().max_model_len,
    })
}
