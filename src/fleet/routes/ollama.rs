//! Ollama's routes: all models with what is loaded, and `keep_alive`, which says how long a model stays.

use std::time::{Duration, SystemTime};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::passing::{forward, lease, read, refused as refusal, required};
use crate::fleet::model::ModelSpec;
use crate::fleet::naming;
use crate::fleet::residency::{Stage, Stay};
use crate::fleet::roster::View;
use crate::fleet::state::FleetState;
use crate::http::front::{ApiError, OLLAMA_VERSION};

/// Longest time that clients see; "for ever" is that far away.
const FOR_EVER: Duration = Duration::from_hours(100 * 365 * 24);

/// `GET /api/version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": OLLAMA_VERSION, "sconce": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`: all models, loaded or not.
pub(super) async fn tags(State(state): State<FleetState>) -> Json<Value> {
    let entry = |view: View| {
        let spec = &view.spec;
        json!({
            "name": spec.name,
            "model": spec.name,
            "modified_at": state.started(),
            "size": spec.facts.bytes,
            "digest": digest(spec),
            "details": details(spec),
            "capabilities": capabilities(&view),
        })
    };
    let models: Vec<Value> = state.keeper.views().into_iter().map(entry).collect();
    Json(json!({ "models": models }))
}

/// `GET /api/ps`: the models that are loaded, and until when.
pub(super) async fn ps(State(state): State<FleetState>) -> Json<Value> {
    let now = std::time::Instant::now();
    let views = state.keeper.views().into_iter().filter(|view| view.stage == Stage::Ready);
    let entry = |view: View| {
        let spec = &view.spec;
        let left = view.expires.map_or(FOR_EVER, |at| at.saturating_duration_since(now));
        let expires = DateTime::<Utc>::from(SystemTime::now() + left);
        let props = view.snapshot.props.as_ref();
        let context =
            props.and_then(|props| props["default_generation_settings"]["n_ctx"].as_u64());
        let on_gpu = props.is_some_and(|props| props["on_gpu"] == true);
        json!({
            "name": spec.name,
            "model": spec.name,
            "size": spec.facts.need,
            "digest": digest(spec),
            "details": details(spec),
            "expires_at": expires.to_rfc3339_opts(SecondsFormat::Secs, true),
            "size_vram": if on_gpu { spec.facts.need } else { 0 },
            "context_length": context,
        })
    };
    let models: Vec<Value> = views.map(entry).collect();
    Json(json!({ "models": models }))
}

/// `POST /api/show`: what the model's process said, or else what its files say; nothing is loaded for it.
pub(super) async fn show(
    State(state): State<FleetState>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let name = required(naming::in_json(&body)?)?;
    let view = state.keeper.view(&name).ok_or(ApiError::ModelNotFound(name))?;
    if let Some(shown) = view.snapshot.shown {
        return Ok(Json(shown));
    }
    let (spec, facts) = (&view.spec, &view.spec.facts);
    let of = |key: &str| format!("{}.{key}", facts.architecture);
    Ok(Json(json!({
        "modelfile": format!("FROM {}\n", spec.model),
        "parameters": "",
        "template": facts.template.clone().unwrap_or_default(),
        "details": details(spec),
        "model_info": {
            "general.architecture": facts.architecture,
            "general.basename": spec.name,
            of("context_length"): facts.context,
            of("embedding_length"): facts.config["hidden_size"],
            of("vocab_size"): facts.config["vocab_size"],
        },
        "capabilities": capabilities(&view),
        "modified_at": state.started(),
    })))
}

/// The routes that make models of models.
pub(super) async fn refused(request: Request) -> ApiError {
    let path = request.uri().path();
    let message =
        format!("{path} is not served: models are fetched (/api/pull) and deleted, not made");
    ApiError::Invalid { message, param: None, code: Some("unsupported_route") }
}

/// `POST /api/chat`, `/api/generate`, `/api/embed`: the model's process answers; `keep_alive` is for this
/// server.
pub(super) async fn answer(
    State(state): State<FleetState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let bytes = read(&state, body).await?;
    let name = state.meant(required(naming::in_json(&bytes)?)?);
    let keep = KeepAlive::take(&bytes)?;
    let Some(KeepAlive { ttl, rest }) = keep else {
        let lease = lease(&state, &name, &parts).await?;
        return forward(lease, parts, Body::from(bytes)).await;
    };
    if ttl == Stay::For(Duration::ZERO) && asks_nothing(&rest) {
        state.keeper.unload(&name, false).map_err(refusal)?;
        return Ok(Json(unloaded(&name, parts.uri.path())).into_response());
    }
    let mut lease = lease(&state, &name, &parts).await?;
    lease.ttl = Some(ttl);
    parts.headers.remove(header::CONTENT_LENGTH);
    forward(lease, parts, Body::from(Value::Object(rest).to_string())).await
}

/// How long a model is to stay after a request, and the request without that.
#[derive(Debug, PartialEq)]
struct KeepAlive {
    ttl: Stay,
    rest: Map<String, Value>,
}

impl KeepAlive {
    /// `None` if the request doesn't say.
    fn take(bytes: &[u8]) -> Result<Option<Self>, ApiError> {
        let Ok(mut rest) = serde_json::from_slice::<Map<String, Value>>(bytes) else {
            // The model's process says what is wrong with it.
            return Ok(None);
        };
        let Some(value) = rest.remove("keep_alive").filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let ttl = keep_alive(&value).ok_or_else(|| {
            let message = format!(
                "keep_alive must be a number of seconds or a duration such as \"5m\", got {value}"
            );
            ApiError::field("keep_alive", message)
        })?;
        Ok(Some(Self { ttl, rest }))
    }
}

/// Seconds, or a duration in Go's words such as `1h30m`; what is negative is for ever.
fn keep_alive(value: &Value) -> Option<Stay> {
    let seconds = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse().ok().or_else(|| go_duration(text))?,
        _ => return None,
    };
    if seconds < 0.0 {
        return Some(Stay::Always);
    }
    Some(Stay::For(Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER).min(FOR_EVER)))
}

fn go_duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let factor = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = behind;
    }
    (!text.is_empty()).then_some(sign * seconds)
}

/// Whether a request is there for `keep_alive` alone.
fn asks_nothing(body: &Map<String, Value>) -> bool {
    let empty = |name: &str| match body.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    empty("prompt") && empty("messages") && empty("input")
}

fn unloaded(name: &str, path: &str) -> Value {
    let now = Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true);
    let mut answer =
        json!({"model": name, "created_at": now, "done": true, "done_reason": "unload"});
    if path == "/api/chat" {
        answer["message"] = json!({"role": "assistant", "content": ""});
    } else {
        answer["response"] = json!("");
    }
    answer
}

fn details(spec: &ModelSpec) -> Value {
    let facts = &spec.facts;
    json!({
        "parent_model": "",
        "format": facts.format,
        "family": facts.architecture,
        "families": [facts.architecture],
        "parameter_size": "",
        "quantization_level": facts.stored_as,
        "context_length": facts.context,
    })
}

/// What the model's process said that it can, or what its files show.
fn capabilities(view: &View) -> Value {
    if let Some(shown) = &view.snapshot.shown {
        return shown["capabilities"].clone();
    }
    let facts = &view.spec.facts;
    let template = facts.template.as_deref().unwrap_or_default();
    let sees = facts.config.get("vision_config").is_some();
    let all = [("completion", true), ("vision", sees), ("tools", template.contains("tools"))];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| Value::from(name)).collect()
}

/// Names a model as it is listed, and not the content of its files.
fn digest(spec: &ModelSpec) -> String {
    let hash =
        Sha256::digest(format!("{}\0{:?}\0{}", spec.model, spec.arguments, spec.facts.bytes));
    hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_is_a_number_or_a_duration() {
        let seconds = |value: Value| {
            keep_alive(&value).map(|stay| match stay {
                Stay::For(ttl) => Some(ttl.as_secs_f64()),
                Stay::Always => None,
            })
        };
        assert_eq!(seconds(json!(300)), Some(Some(300.0)));
        assert_eq!(seconds(json!("1h30m")), Some(Some(5400.0)));
        assert_eq!(seconds(json!("250ms")), Some(Some(0.25)));
        assert_eq!(seconds(json!("0")), Some(Some(0.0)));
        assert_eq!(seconds(json!(-1)), Some(None));
        assert_eq!(seconds(json!("-1m")), Some(None));
        assert_eq!(seconds(json!(1e300)), Some(Some(FOR_EVER.as_secs_f64())));
        for wrong in [json!("soon"), json!(""), json!("5"), json!(true), json!("5 m")] {
            let expected = (wrong == json!("5")).then_some(Some(5.0));
            assert_eq!(seconds(wrong.clone()), expected, "{wrong}");
        }
    }

    #[test]
    fn keep_alive_is_taken_out_of_the_request() {
        let taken =
            KeepAlive::take(br#"{"model": "m", "keep_alive": "5m", "x": 1.0}"#).unwrap().unwrap();
        assert_eq!(taken.ttl, Stay::For(Duration::from_mins(5)));
        assert_eq!(Value::Object(taken.rest).to_string(), r#"{"model":"m","x":1.0}"#);
        assert_eq!(KeepAlive::take(br#"{"model": "m", "keep_alive": null}"#).unwrap(), None);
        let error = KeepAlive::take(br#"{"keep_alive": "soon"}"#).unwrap_err().to_string();
        assert!(error.contains("got \"soon\""), "{error}");
    }
}
