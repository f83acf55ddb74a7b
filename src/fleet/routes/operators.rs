//! What operators ask: health, metrics of all models, properties, and models that sleep.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::passing::{refused, required};
use crate::fleet::connection;
use crate::fleet::exposition::Exposition;
use crate::fleet::naming;
use crate::fleet::residency::Stage;
use crate::fleet::roster::View;
use crate::fleet::state::FleetState;
use crate::http::front::{self, ApiError};

/// `GET /health/live`.
pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "live"}))
}

/// `GET /health` and `/health/ready`: requests are welcome, whichever models are loaded.
pub(super) async fn ready(State(state): State<FleetState>) -> Result<Json<Value>, ApiError> {
    state.check_not_leaving()?;
    Ok(Json(json!({"status": "ready"})))
}

/// `GET /version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION"), "role": "router"}))
}

/// `GET /`: the chat page for browsers, for programs what is here.
pub(super) async fn root(State(state): State<FleetState>, request: Request) -> Response {
    if let Some(page) = front::chat_page(request.headers()) {
        return page;
    }
    let views = state.keeper.views();
    let names: Vec<&str> = views.iter().map(|view| view.spec.name.as_str()).collect();
    let about = json!({
        "server": "sconce",
        "version": env!("CARGO_PKG_VERSION"),
        "models": names,
    });
    ([(header::VARY, "accept")], Json(about)).into_response()
}

/// `GET /load`: requests of all models that run or wait.
pub(super) async fn load(State(state): State<FleetState>) -> Json<Value> {
    let views = state.keeper.views();
    let all: usize = views.iter().map(|view| view.requests.iter().sum::<usize>()).sum();
    Json(json!({"server_load": all}))
}

/// `GET /props`: those of a model with `?model=`, which it isn't loaded for; else this server's own.
pub(super) async fn props(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    let named = naming::in_query(&uri, "model").map(|name| state.meant(name));
    let Some(name) = named.or_else(|| state.single.as_deref().cloned()) else {
        let settings = state.keeper.settings();
        return Ok(Json(json!({
            "role": "router",
            "max_instances": settings.most_models,
            "models_autoload": settings.autoload,
            "models_memory": settings.memory,
            "model_alias": "sconce",
            "default_generation_settings": null,
            "build_info": concat!("sconce-", env!("CARGO_PKG_VERSION")),
        })));
    };
    let view = state.keeper.view(&name).ok_or(ApiError::ModelNotFound(name))?;
    let mut props = match &view.snapshot.props {
        Some(props) => props.clone(),
        // Never loaded so far: what its files say.
        None => json!({
            "model_alias": view.spec.name,
            "model_path": view.spec.model,
            "default_generation_settings": {"n_ctx": view.spec.facts.context},
            "chat_template": view.spec.facts.template,
        }),
    };
    props["is_sleeping"] = json!(view.stage == Stage::Absent && view.sleeps);
    props["is_loaded"] = json!(view.stage == Stage::Ready);
    Ok(Json(props))
}

/// `GET /metrics`: this server's own, and those of all models. A model that is gone has the ones from its
/// end. With `?model=` only that one's.
pub(super) async fn metrics(State(state): State<FleetState>, uri: Uri) -> Response {
    let named = naming::in_query(&uri, "model");
    let mut views = state.keeper.views();
    views.retain(|view| named.as_deref().is_none_or(|name| view.spec.is_called(name)));
    let texts = views.iter().map(|view| metrics_of(&state, view));
    let texts = futures::future::join_all(texts).await;
    let mut all = Exposition::default();
    add_own(&mut all, &state, &views);
    for (view, text) in views.iter().zip(texts) {
        if let Some(text) = text {
            all.add(&view.spec.name, &text);
        }
    }
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], all.render()).into_response()
}

async fn metrics_of(state: &FleetState, view: &View) -> Option<String> {
    let live = view.address.as_ref().filter(|_| view.stage == Stage::Ready);
    let key = state.keeper.settings().launch.key.as_deref();
    match live {
        Some(address) => connection::ask_text(address, "/metrics", key).await,
        None => view.snapshot.metrics.clone(),
    }
}

fn add_own(all: &mut Exposition, state: &FleetState, views: &[View]) {
    let each = |value: fn(&View) -> u64| {
        let values: Vec<_> =
            views.iter().map(|view| (Some(view.spec.name.clone()), value(view))).collect();
        values
    };
    let settings = state.keeper.settings();
    let gauge = "gauge";
    all.add_own(
        "sconce:models_memory_bytes",
        gauge,
        "Bytes that loaded models may take together.",
        [(None, settings.memory)],
    );
    all.add_own(
        "sconce:models_planned_bytes",
        gauge,
        "Bytes that loaded models are planned to take.",
        [(None, state.keeper.taken())],
    );
    all.add_own(
        "sconce:model_loaded",
        gauge,
        "Whether the model is loaded.",
        each(|view| u64::from(view.stage == Stage::Ready)),
    );
    all.add_own(
        "sconce:model_requests_running",
        gauge,
        "Requests that the model's process has.",
        each(|view| view.requests[0] as u64),
    );
    all.add_own(
        "sconce:model_requests_waiting",
        gauge,
        "Requests that wait for the model to be loaded.",
        each(|view| view.requests[1] as u64),
    );
    all.add_own(
        "sconce:model_loads_total",
        "counter",
        "Processes that were started for the model.",
        each(|view| view.loads),
    );
    all.add_own(
        "sconce:model_failures_total",
        "counter",
        "Processes of the model that could not be started or ended by themselves.",
        each(|view| view.failures),
    );
}

/// The model that is to sleep or wake.
fn sleeper(state: &FleetState, uri: &Uri) -> Result<String, ApiError> {
    let named = naming::in_query(uri, "model").map(|name| state.meant(name));
    required(named.or_else(|| state.single.as_deref().cloned()))
}

/// `POST /sleep?model=`: the weights go; what is in a folder of `--kv-disk` stays.
pub(super) async fn sleep(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    state.keeper.unload(&sleeper(&state, &uri)?, true).map_err(refused)?;
    Ok(Json(json!({"success": true})))
}

/// `POST /wake_up?model=`: answers when the model is loaded.
pub(super) async fn wake_up(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    let name = sleeper(&state, &uri)?;
    drop(state.keeper.acquire(&name, true).await.map_err(refused)?);
    Ok(Json(json!({"success": true})))
}

/// `GET /is_sleeping?model=`.
pub(super) async fn is_sleeping(
    State(state): State<FleetState>,
    uri: Uri,
) -> Result<Json<Value>, ApiError> {
    let name = sleeper(&state, &uri)?;
    let view = state.keeper.view(&name).ok_or(ApiError::ModelNotFound(name))?;
    Ok(Json(json!({"is_sleeping": view.stage == Stage::Absent && view.sleeps})))
}
