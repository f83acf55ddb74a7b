//! The model in Ollama's words: `/api/tags`, `/api/ps`, `/api/show` and `/api/version`, and what is
//! said to those who ask for other models.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, TimeDelta};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::input::check_model;
use crate::config::Parser;
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, required};
use crate::http::request::rules::{COMMON, Rules, Treatment, is_false};
use crate::http::state::{AppState, GenerationDefaults, may_name};
use crate::http::wire::ollama::OllamaShowRequest;

/// The version of Ollama whose API this is; clients look at it for what they can ask for.
pub(crate) const VERSION: &str = "0.33.0";

/// What would show a model as it would be with these.
const SHOW_RULES: Rules = &[
    ("options", Treatment::Ignored),
    ("system", Treatment::Ignored),
    ("template", Treatment::Ignored),
    ("verbose", Treatment::IgnoredUnless(is_false)),
];

impl RequestBody for OllamaShowRequest {
    const RULES: &'static [Rules] = &[SHOW_RULES, COMMON];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref().or(self.name.as_deref())
    }

    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        check_model(state, named)
    }
}

/// `GET /api/version`.
pub(crate) async fn version() -> axum::Json<Value> {
    axum::Json(json!({"version": VERSION, "sconce": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`: the names that the model answers to, and its adapters.
pub(crate) async fn tags(State(state): State<AppState>) -> axum::Json<Value> {
    let entry = |name: &String| {
        json!({
            "name": name,
            "model": name,
            "modified_at": started(&state),
            "size": state.model.bytes,
            "digest": digest(&state, name),
            "details": details(&state),
            "capabilities": capabilities(&state),
        })
    };
    let models: Vec<Value> = names(&state).iter().map(entry).collect();
    axum::Json(json!({ "models": models }))
}

/// `GET /api/ps`: the same names, which all stay loaded.
pub(crate) async fn ps(State(state): State<AppState>) -> axum::Json<Value> {
    let never = time(&state) + TimeDelta::nanoseconds(i64::MAX);
    let bytes = state.model.bytes;
    let entry = |name: &String| {
        json!({
            "name": name,
            "model": name,
            "size": bytes,
            "digest": digest(&state, name),
            "details": details(&state),
            "expires_at": never.to_rfc3339_opts(SecondsFormat::Secs, true),
            "size_vram": if state.model.on_gpu { bytes } else { 0 },
            "context_length": state.engine.limits().max_model_len,
        })
    };
    let models: Vec<Value> = names(&state).iter().map(entry).collect();
    axum::Json(json!({ "models": models }))
}

/// `POST /api/show`.
pub(crate) async fn show(
    State(state): State<AppState>,
    request: Extracted<OllamaShowRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body, model, fields, .. } = request;
    required(body.model.or(body.name), "", "model")?;
    let ignored = fields.finish(state.config.strict)?;
    let limits = state.engine.limits();
    let architecture = &state.model.architecture;
    let of = |name: &str| format!("{architecture}.{name}");
    let template = state.chat_template(false).map_or("", |template| template.source());
    let answer = json!({
        "modelfile": format!("FROM {model}\n"),
        "parameters": parameters(&state.defaults),
        "template": template,
        "details": details(&state),
        "model_info": {
            "general.architecture": architecture,
            "general.basename": model,
            of("context_length"): limits.max_model_len,
            of("embedding_length"): limits.embedding_size,
            of("vocab_size"): limits.vocab_size,
        },
        "capabilities": capabilities(&state),
        "modified_at": started(&state),
    });
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// The routes that fetch, make, copy or delete models.
pub(crate) async fn refused(request: Request) -> ApiError {
    let path = request.uri().path();
    let message = format!(
        "{path} is not served: this server has the model that it was started with, and neither \
         fetches nor changes any"
    );
    ApiError::Invalid { message, param: None, code: Some("unsupported_route") }
}

fn names(state: &AppState) -> Vec<String> {
    let adapters = state.adapters.all();
    let adapters = adapters.iter().map(|served| served.adapter.name().to_owned());
    let names = state.config.served_model_names.iter().cloned().chain(adapters);
    names.filter(|name| may_name(name)).collect()
}

/// Names what answers depend on: equal for equal answers, and not that of a file.
fn digest(state: &AppState, name: &str) -> String {
    let hash = Sha256::digest(format!("{}\0{name}", state.fingerprint));
    hash.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn details(state: &AppState) -> Value {
    let (model, limits) = (&state.model, state.engine.limits());
    json!({
        "parent_model": "",
        "format": model.format,
        "family": model.architecture,
        "families": [model.architecture],
        "parameter_size": "",
        "quantization_level": model.stored_as,
        "context_length": limits.max_model_len,
        "embedding_length": limits.embedding_size,
    })
}

fn capabilities(state: &AppState) -> Vec<&'static str> {
    if !state.engine.limits().generates {
        return vec!["embedding"];
    }
    // Without a format of its own, a model is told of tools in a text.
    let calls = state.chat_template(true).is_some() && state.config.tool_call_parser != Parser::Off;
    let reasons = state.families(false).reasoning.is_some();
    let sees = state.sees();
    let all = [("completion", true), ("vision", sees), ("tools", calls), ("thinking", reasons)];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

/// What requests get that say nothing, a line for each parameter.
fn parameters(defaults: &GenerationDefaults) -> String {
    #[expect(clippy::cast_precision_loss, reason = "such counts are small")]
    let all = [
        ("temperature", defaults.temperature),
        ("top_p", defaults.top_p),
        ("top_k", defaults.top_k.map(|top_k| top_k as f64)),
        ("min_p", defaults.min_p),
        ("repeat_penalty", defaults.repetition_penalty),
    ];
    let lines = all.iter().filter_map(|(name, value)| Some(format!("{name:<30} {}", (*value)?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// When the server started.
fn started(state: &AppState) -> String {
    time(state).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn time(state: &AppState) -> DateTime<chrono::Utc> {
    let seconds = i64::try_from(state.created).unwrap_or(0);
    DateTime::from_timestamp(seconds, 0).unwrap_or_default()
}
