//! Requests that are passed on: which model they are for, and the answer of its process.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};

use crate::fleet::keeper::Lease;
use crate::fleet::residency::Stage;
use crate::fleet::roster::{Refusal, View};
use crate::fleet::state::FleetState;
use crate::fleet::{naming, proxy};
use crate::http::front::{self, ApiError};

/// Largest body of a request, where no flag says otherwise.
const BODY_BYTES: usize = 64 << 20;

/// A request for one of the models: its process answers.
pub(super) async fn pass_on(
    State(state): State<FleetState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let views = state.keeper.views();
    let known = |name: &str| views.iter().any(|view| view.spec.is_called(name));
    let in_path = naming::in_path(&mut parts.uri, known);
    let in_query = naming::in_query(&parts.uri, "model");
    let (body, in_body) = read_model(&state, &parts, body).await?;
    let name = match in_path.or(in_body).or(in_query) {
        Some(name) => state.meant(name),
        None => unnamed(&views, &parts)?,
    };
    answer(&state, &name, parts, body).await
}

/// The answer of a model's process.
pub(super) async fn answer(
    state: &FleetState,
    name: &str,
    parts: Parts,
    body: Body,
) -> Result<Response, ApiError> {
    let lease = lease(state, name, &parts).await?;
    forward(lease, parts, body).await
}

pub(super) async fn lease(
    state: &FleetState,
    name: &str,
    parts: &Parts,
) -> Result<Lease, ApiError> {
    let asked = naming::in_query(&parts.uri, "autoload");
    let autoload = match asked.as_deref() {
        None => state.keeper.settings().autoload,
        Some("1" | "true") => true,
        Some("0" | "false") => false,
        Some(other) => {
            let message = format!("autoload must be true or false, got {other:?}");
            return Err(ApiError::field("autoload", message));
        }
    };
    state.keeper.acquire(name, autoload).await.map_err(refused)
}

pub(super) async fn forward(lease: Lease, parts: Parts, body: Body) -> Result<Response, ApiError> {
    let name = lease.name.clone();
    let answered = proxy::forward(lease, parts, body).await;
    answered.map_err(|error| ApiError::Unavailable(format!("{name}: {error}")))
}

/// Why there is no model for a request.
pub(super) fn refused(refusal: Refusal) -> ApiError {
    match refusal {
        Refusal::Unknown(name) => ApiError::ModelNotFound(name),
        Refusal::NotLoaded(name) => ApiError::Invalid {
            message: format!(
                "{name} is not loaded, and requests don't load models here: POST /models/load first"
            ),
            param: Some("model".to_owned()),
            code: Some("model_not_loaded"),
        },
        Refusal::Unavailable(why, Some(seconds)) => ApiError::Later(why, seconds),
        Refusal::Unavailable(why, None) => ApiError::Unavailable(why),
    }
}

/// Reads a body as far as it is needed to find the model; one that has none is passed on as it comes.
pub(super) async fn read_model(
    state: &FleetState,
    parts: &Parts,
    body: Body,
) -> Result<(Body, Option<String>), ApiError> {
    let (json, form) = (naming::is_json(&parts.headers), naming::is_form(&parts.headers));
    let stores = naming::is_about_stored(parts.uri.path(), false);
    if parts.method == Method::GET || stores || !(json || form) {
        return Ok((body, None));
    }
    let bytes = read(state, body).await?;
    let name = match (json, bytes.is_empty()) {
        (_, true) => None,
        (true, _) => naming::in_json(&bytes)?,
        (false, _) => naming::in_form(parts, &bytes).await?,
    };
    Ok((Body::from(bytes), name))
}

pub(super) async fn read(state: &FleetState, body: Body) -> Result<Bytes, ApiError> {
    front::read_body(body, state.config.max_body_bytes.unwrap_or(BODY_BYTES)).await
}

/// The model of a request that names none.
pub(super) fn unnamed(views: &[View], parts: &Parts) -> Result<String, ApiError> {
    if let [only] = views {
        return Ok(only.spec.name.clone());
    }
    if naming::is_about_stored(parts.uri.path(), parts.method == Method::GET) {
        return any(views).ok_or_else(|| ApiError::Unavailable("there is no model".to_owned()));
    }
    if parts.method == Method::GET && !is_route_of_models(parts.uri.path()) {
        return Err(ApiError::RouteNotFound(parts.uri.path().to_owned()));
    }
    let names: Vec<&str> = views.iter().map(|view| view.spec.name.as_str()).take(20).collect();
    let message = match names[..] {
        [] => "this server has no models yet".to_owned(),
        _ => format!(
            "model: this server has several models, name one of them in the body or as ?model=: {}",
            names.join(", ")
        ),
    };
    Err(ApiError::field("model", message))
}

/// A model whose process can be asked for what is stored: one that is there, if any is.
pub(super) fn any(views: &[View]) -> Option<String> {
    let ready = views.iter().find(|view| view.stage == Stage::Ready);
    ready
        .or_else(|| views.iter().find(|view| view.spec.facts.fault.is_none()))
        .map(|view| view.spec.name.clone())
}

/// A stream of events.
pub(super) fn event_stream(body: Body) -> Response {
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, body).into_response()
}

impl FleetState {
    /// The name that a request means. A server of one model takes any, and lets the model's process judge.
    pub(super) fn meant(&self, name: String) -> String {
        match &self.single {
            Some(single) => single.as_ref().clone(),
            None => name,
        }
    }
}

/// Paths that models' processes answer without a body.
fn is_route_of_models(path: &str) -> bool {
    ["/slots", "/tokenizer_info", "/info", "/openapi.json"].contains(&path)
}

/// The name of a model that a request must have.
pub(super) fn required(name: Option<String>) -> Result<String, ApiError> {
    name.filter(|name| !name.is_empty())
        .ok_or_else(|| ApiError::field("model", "model is required"))
}
