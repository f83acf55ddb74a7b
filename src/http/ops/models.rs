//! `/v1/models`: the names that the model answers to, and its adapters. A client that sends
//! `anthropic-version` gets the objects of Anthropic's API.

use axum::extract::State;
use axum::http::HeaderMap;
use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::request::path_id::PathId;
use crate::http::state::adapter_registry::ServedAdapter;
use crate::http::state::{AppState, may_name};
use crate::http::wire::bounds::MESSAGE_EFFORTS;

/// `GET /v1/models`.
pub(crate) async fn models(State(state): State<AppState>, headers: HeaderMap) -> axum::Json<Value> {
    let names = state.config.served_model_names.iter().filter(|name| may_name(name));
    let models = names.map(|name| model_entry(&state, name));
    let adapters = state.adapters.all();
    let adapters = adapters.iter().filter(|served| may_name(served.adapter.name()));
    let adapters = adapters.map(|served| adapter_entry(&state, served));
    let speech = speech_names(&state).iter().filter(|name| may_name(name));
    let speech = speech.map(|name| speech_entry(&state, name));
    let data: Vec<Value> = models.chain(adapters).chain(speech).collect();
    if !speaks_anthropic(&headers) {
        return axum::Json(json!({"object": "list", "data": data}));
    }
    let infos: Vec<Value> = data.iter().map(|entry| model_info(&state, entry)).collect();
    let id = |info: Option<&Value>| info.map_or(Value::Null, |info| info["id"].clone());
    axum::Json(json!({
        "first_id": id(infos.first()),
        "last_id": id(infos.last()),
        "has_more": false,
        "data": infos,
    }))
}

/// `GET /v1/models/{id}`; an id may contain slashes.
pub(crate) async fn model(
    State(state): State<AppState>,
    headers: HeaderMap,
    PathId(id): PathId,
) -> Result<axum::Json<Value>, ApiError> {
    let entry = if speech_names(&state).contains(&id) {
        speech_entry(&state, &id)
    } else {
        state.check_model(Some(&id))?;
        match state.adapters.find(&id) {
            Some(served) => adapter_entry(&state, &served),
            None => model_entry(&state, &id),
        }
    };
    let anthropic = speaks_anthropic(&headers);
    Ok(axum::Json(if anthropic { model_info(&state, &entry) } else { entry }))
}

fn speaks_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// A model in the words of Anthropic's API.
fn model_info(state: &AppState, entry: &Value) -> Value {
    let created = entry["created"].as_i64().and_then(|at| DateTime::from_timestamp(at, 0));
    let created = created.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Secs, true);
    let context = state.engine.limits().max_model_len;
    json!({
        "type": "model",
        "id": entry["id"],
        "display_name": entry["id"],
        "created_at": created,
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
        "capabilities": capabilities(state.families(false).reasoning.is_some(), state.sees()),
    })
}

/// What a model can, in the words of Anthropic's API; `reasons` is whether it reasons before it
/// answers, `sees` whether it sees pictures.
fn capabilities(reasons: bool, sees: bool) -> Value {
    let supported = |yes: bool| json!({ "supported": yes });
    let each = |names: &[&str]| -> Value {
        let names = names.iter().map(|name| ((*name).to_owned(), supported(true)));
        Value::Object(names.collect())
    };
    let mut effort = each(&MESSAGE_EFFORTS);
    effort["supported"] = json!(true);
    json!({
        "batch": supported(false),
        "citations": supported(false),
        "code_execution": supported(false),
        "context_management": supported(false),
        "effort": effort,
        "image_input": supported(sees),
        "pdf_input": supported(false),
        "server_tools": {
            "supported": false,
            "code_execution": supported(false),
            "web_search": supported(false),
        },
        "structured_outputs": supported(true),
        "thinking": {
            "supported": reasons,
            "types": each(&["adaptive", "between_tools", "disabled", "enabled"]),
        },
    })
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

/// The names of a model for speech that stands beside another.
fn speech_names(state: &AppState) -> &[String] {
    let speech = state.speech.as_ref().filter(|speech| !speech.is_alone);
    speech.map_or(&[], |speech| &speech.names)
}

fn speech_entry(state: &AppState, name: &str) -> Value {
    let speech = state.speech.as_ref();
    json!({
        "id": name,
        "object": "model",
        "created": state.created,
        "owned_by": "sconce",
        "root": speech.and_then(|speech| speech.names.first()),
        "parent": null,
        "max_model_len": speech.map(|speech| speech.handle.transcriber().context()),
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
