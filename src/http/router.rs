//! Which handler answers which path, and the layers around all of them.

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use axum::middleware::{from_fn, from_fn_with_state, map_request};
use axum::routing::{any, delete, get, post};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use super::error::ApiError;
use super::middleware::{auth, drain, generation_guard, observe};
use super::openai::{chat, completions, decisions, embeddings, responses};
use super::ops::{about, adapters, health, invocations, models, tokenize};
use super::state::AppState;
use super::{anthropic, ollama, openapi, page};

/// Routes that programs also ask for without `/v1`, as llama.cpp serves them.
const WITHOUT_VERSION: [&str; 5] =
    ["/chat/completions", "/chat/completions/input_tokens", "/embeddings", "/models", "/responses"];

/// The word that stands for the pages that this machine itself serves.
const LOCAL: &str = "localhost";

/// All routes.
pub fn router(state: AppState) -> Router {
    Router::new().fallback_service(versioned(state)).layer(map_request(add_version))
}

/// `/models` is `/v1/models`.
async fn add_version(mut request: Request) -> Request {
    let path = request.uri().path();
    if WITHOUT_VERSION.contains(&path) || path.starts_with("/models/") {
        let rest = request.uri().path_and_query().map_or(path, PathAndQuery::as_str);
        if let Ok(uri) = format!("/v1{rest}").parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}

fn versioned(state: AppState) -> Router {
    let routes = Router::new()
        .route("/v1/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/chat/completions/render", post(chat::render))
        .route("/v1/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/completions/render", post(completions::render))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/render", post(anthropic::render))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/render", post(responses::render))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route(
            "/v1/responses/{id}",
            get(responses::stored::retrieve).delete(responses::stored::delete),
        )
        .route("/v1/responses/{id}/cancel", post(responses::stored::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::stored::input_items))
        .route("/v1/decisions", post(decisions::decisions))
        .route("/v1/systemone", post(decisions::system_one))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed::embed))
        .route("/api/embeddings", post(ollama::embed::embeddings))
        .route("/api/tags", get(ollama::models::tags))
        .route("/api/ps", get(ollama::models::ps))
        .route("/api/show", post(ollama::models::show))
        .route("/api/version", get(ollama::models::version))
        .route("/api/pull", post(ollama::models::refused))
        .route("/api/push", post(ollama::models::refused))
        .route("/api/create", post(ollama::models::refused))
        .route("/api/copy", post(ollama::models::refused))
        .route("/api/delete", delete(ollama::models::refused))
        .route("/api/blobs/{digest}", any(ollama::models::refused))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/apply-template", post(about::apply_template))
        .route("/", get(about::root))
        .route("/status", get(page::status))
        .route("/page/{name}", get(page::file))
        .route("/invocations", post(invocations::invocations))
        .route("/load", get(about::load))
        .route("/props", get(about::props))
        .route("/slots", get(about::slots))
        .route("/tokenizer_info", get(about::tokenizer_info))
        .route("/ping", get(health::ready).post(health::ready))
        .route("/health", get(health::ready))
        .route("/health/ready", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/metrics", get(health::metrics))
        .route("/version", get(health::version))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method);
    let layered = routes
        .layer(from_fn_with_state(state.clone(), generation_guard::refuse_generation))
        .layer(from_fn_with_state(state.clone(), auth::require_key))
        .layer(from_fn_with_state(state.clone(), drain::refuse_while_draining))
        .layer(from_fn_with_state(state.clone(), observe::observe))
        .layer(from_fn(anthropic::error::adapt))
        .layer(from_fn(ollama::error::adapt));
    let origins = &state.config.cors_origins;
    let layered = if origins.is_empty() { layered } else { layered.layer(cors(origins)) };
    layered.with_state(state)
}

fn cors(origins: &[String]) -> CorsLayer {
    // SDKs send headers of their own, and `*` would not cover `authorization`.
    let headers = AllowHeaders::mirror_request();
    let layer = CorsLayer::new().allow_methods(Any).allow_headers(headers).expose_headers(Any);
    if origins.iter().any(|origin| origin == "*") {
        return layer.allow_origin(Any);
    }
    let local = origins.iter().any(|origin| origin == LOCAL);
    let origins: Vec<HeaderValue> =
        origins.iter().filter_map(|origin| HeaderValue::try_from(origin).ok()).collect();
    layer.allow_origin(AllowOrigin::predicate(move |origin, _| {
        origins.contains(origin) || (local && is_local(origin))
    }))
}

/// Whether an origin is a page that this machine serves, at any port.
fn is_local(origin: &HeaderValue) -> bool {
    let Some(uri) = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok()) else {
        return false;
    };
    let plain = matches!(uri.scheme_str(), Some("http" | "https"));
    plain && matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

async fn no_route(request: Request) -> ApiError {
    ApiError::RouteNotFound(request.uri().path().to_owned())
}

async fn wrong_method(request: Request) -> ApiError {
    ApiError::MethodNotAllowed(request.uri().path().to_owned(), request.method().to_string())
}
