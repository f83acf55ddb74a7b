//! Which handler answers which path, and the layers around all of them.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::HeaderValue;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use axum::middleware::{from_fn, from_fn_with_state, map_request};
use axum::routing::{any, delete, get, post};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};
use tower_http::decompression::RequestDecompressionLayer;

use super::error::ApiError;
use super::middleware::ports::{Routes, keep_to_routes};
use super::middleware::{auth, drain, generation_guard, observe};
use super::openai::{
    audio, batches, chat, completions, conversations, decisions, embeddings, files, responses,
};
use super::ops::{about, adapters, health, invocations, models, sglang, tokenize, usage};
use super::state::AppState;
use super::{anthropic, cohere, ollama, openapi, page, ranking, tei};

/// Routes that programs also ask for without `/v1`, as llama.cpp serves them.
const WITHOUT_VERSION: [&str; 5] =
    ["/chat/completions", "/chat/completions/input_tokens", "/embeddings", "/models", "/responses"];

/// The word that stands for the pages that this machine itself serves.
const LOCAL: &str = "localhost";

/// All routes.
pub fn router(state: AppState) -> Router {
    router_of(state, Routes::All)
}

/// The routes of one address.
pub(super) fn router_of(state: AppState, routes: Routes) -> Router {
    with_short_paths(versioned(state, routes))
}

/// The same router, which serves what programs ask for without `/v1`, too.
pub(super) fn with_short_paths(router: Router) -> Router {
    Router::new().fallback_service(router).layer(map_request(add_version))
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

/// The routes as stored requests reach them: whose they are is known, and who may call was asked.
pub(super) fn for_stored_requests(state: AppState) -> Router {
    routes()
        .layer(from_fn_with_state(state.clone(), generation_guard::refuse_generation))
        .layer(from_fn_with_state(state.clone(), observe::observe))
        .layer(from_fn(anthropic::error::adapt))
        .with_state(state)
}

fn versioned(state: AppState, own: Routes) -> Router {
    let layered = routes()
        .layer(from_fn_with_state(state.clone(), generation_guard::refuse_generation))
        .layer(from_fn_with_state(own, keep_to_routes))
        .layer(from_fn_with_state(state.clone(), auth::require_key))
        .layer(from_fn_with_state(state.clone(), drain::refuse_while_draining))
        .layer(from_fn_with_state(state.clone(), observe::observe));
    let origins = state.config.cors_origins.clone();
    in_all_protocols(layered.with_state(state), &origins)
}

/// The outermost layers: errors in the shapes of each protocol, bodies that come compressed, and calls
/// from the pages of `origins`.
pub(super) fn in_all_protocols(router: Router, origins: &[String]) -> Router {
    let layered = router
        .layer(from_fn(anthropic::error::adapt))
        .layer(from_fn(ollama::error::adapt))
        .layer(from_fn(tei::error::adapt));
    // What handlers read is plain; their bound is for that.
    let decoded = RequestDecompressionLayer::new().pass_through_unaccepted(true);
    let layered = layered.layer(decoded.gzip(true).zstd(true));
    if origins.is_empty() { layered } else { layered.layer(cors(origins)) }
}

fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/v1/chat/completions", get(chat::stored::completions).post(chat::chat_completions))
        .route("/v1/chat/completions/render", post(chat::render))
        .route("/v1/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/completions/render", post(completions::render))
        .merge(stored())
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/render", post(anthropic::render))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/render", post(responses::render))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/compact", post(responses::compaction::compact))
        .route("/v1/decisions", post(decisions::decisions))
        .route("/v1/systemone", post(decisions::system_one))
        .merge(vectors())
        .merge(speech())
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
        .merge(page::routes())
        .route("/invocations", post(invocations::invocations))
        .route("/load", get(about::load))
        .route("/props", get(about::props))
        .route("/slots", get(about::slots))
        .route("/server_info", get(sglang::server_info))
        .route("/get_server_info", get(sglang::server_info))
        .route("/model_info", get(sglang::model_info))
        .route("/get_model_info", get(sglang::model_info))
        .route("/tokenizer_info", get(about::tokenizer_info))
        .route("/ping", get(health::ready).post(health::ready))
        .route("/health", get(health::ready))
        .route("/health_generate", get(health::ready))
        .route("/health/ready", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/health/startup", get(health::startup))
        .route("/metrics", get(health::metrics))
        .route("/version", get(health::version))
        .route("/v1/usage", get(usage::usage))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
}

/// What transcribes. The handlers have a bound of their own for files.
fn speech() -> Router<AppState> {
    Router::new()
        .route("/v1/audio/transcriptions", post(audio::transcriptions))
        .route("/v1/audio/translations", post(audio::translations))
        .layer(DefaultBodyLimit::disable())
}

/// What is made of the store.
fn stored() -> Router<AppState> {
    Router::new()
        .route(
            "/v1/responses/{id}",
            get(responses::stored::retrieve).delete(responses::stored::delete),
        )
        .route("/v1/responses/{id}/cancel", post(responses::stored::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::stored::input_items))
        .route(
            "/v1/chat/completions/{id}",
            get(chat::stored::retrieve).post(chat::stored::update).delete(chat::stored::delete),
        )
        .route("/v1/chat/completions/{id}/messages", get(chat::stored::messages))
        .route("/v1/conversations", post(conversations::create))
        .route(
            "/v1/conversations/{id}",
            get(conversations::retrieve).post(conversations::update).delete(conversations::delete),
        )
        .route(
            "/v1/conversations/{id}/items",
            get(conversations::items).post(conversations::add_items),
        )
        .route(
            "/v1/conversations/{id}/items/{item}",
            get(conversations::item).delete(conversations::delete_item),
        )
        .route(
            "/v1/files",
            // The handler has a bound of its own, and never holds a file whole.
            get(files::files).post(files::upload).layer(DefaultBodyLimit::disable()),
        )
        .route("/v1/files/{id}", get(files::retrieve).delete(files::delete))
        .route("/v1/files/{id}/content", get(files::content))
        .route("/v1/batches", get(batches::batches).post(batches::create))
        .route("/v1/batches/{id}", get(batches::retrieve))
        .route("/v1/batches/{id}/cancel", post(batches::cancel))
        .route(
            "/v1/messages/batches",
            get(anthropic::batches::batches).post(anthropic::batches::create),
        )
        .route(
            "/v1/messages/batches/{id}",
            get(anthropic::batches::retrieve).delete(anthropic::batches::delete),
        )
        .route("/v1/messages/batches/{id}/cancel", post(anthropic::batches::cancel))
        .route("/v1/messages/batches/{id}/results", get(anthropic::batches::results))
}

/// Routes that make vectors, scores and classes of texts.
fn vectors() -> Router<AppState> {
    Router::new()
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/rerank", post(ranking::rerank))
        .route("/v1/rerank", post(ranking::rerank_documents))
        .route("/v2/rerank", post(ranking::rerank_documents))
        .route("/v2/embed", post(cohere::embed))
        .route("/score", post(ranking::score))
        .route("/v1/score", post(ranking::score))
        .route("/classify", post(ranking::classify))
        .route("/v1/classify", post(ranking::classify))
        .route("/pooling", post(ranking::pooling))
        .route("/v1/pooling", post(ranking::pooling))
        .route("/embed", post(tei::embed))
        .route("/embed_all", post(tei::embed_all))
        .route("/embed_sparse", post(tei::embed_sparse))
        .route("/predict", post(tei::predict))
        .route("/similarity", post(tei::similarity))
        .route("/info", get(tei::info))
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
    if let Some(error) = responses::no_websocket(&request) {
        return error;
    }
    ApiError::MethodNotAllowed(request.uri().path().to_owned(), request.method().to_string())
}
