//! The routes of a server of several models: some are its own, all others are those of its models.

mod downloads;
mod models;
mod ollama;
mod operators;
mod passing;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::routing::{delete, get, post};

use super::state::FleetState;
use crate::http::front;
use passing::pass_on;

/// All routes.
pub(super) fn router(state: FleetState) -> Router {
    let own = Router::new()
        .route("/health", get(operators::ready))
        .route("/health/ready", get(operators::ready))
        .route("/health/live", get(operators::live))
        .route("/health/startup", get(operators::live))
        .route("/ping", get(operators::ready).post(operators::ready))
        .route("/metrics", get(operators::metrics))
        .route("/version", get(operators::version))
        .route("/props", get(operators::props))
        .route("/sleep", post(operators::sleep))
        .route("/wake_up", post(operators::wake_up))
        .route("/is_sleeping", get(operators::is_sleeping))
        .route("/load", get(operators::load))
        .route(
            "/v1/models",
            get(models::list).post(downloads::start).delete(downloads::delete_listed),
        )
        .route("/v1/models/load", post(models::load))
        .route("/v1/models/unload", post(models::unload))
        .route("/v1/models/reload", post(models::reload))
        .route("/v1/models/sse", get(models::events))
        .route("/v1/models/{*id}", get(models::one))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::ps))
        .route("/api/show", post(ollama::show))
        .route("/api/version", get(ollama::version))
        .route("/api/chat", post(ollama::answer))
        .route("/api/generate", post(ollama::answer))
        .route("/api/embed", post(ollama::answer))
        .route("/api/embeddings", post(ollama::answer))
        .route("/api/pull", post(downloads::pull))
        .route("/api/delete", delete(downloads::delete))
        .route("/api/push", post(ollama::refused))
        .route("/api/create", post(ollama::refused))
        .route("/api/copy", post(ollama::refused))
        .route("/", get(operators::root))
        .fallback(pass_on)
        .layer(DefaultBodyLimit::disable())
        .with_state(state);
    front::page_files().fallback_service(own)
}

/// Routes for which a key of an administrator is needed, where there are keys at all.
pub(super) fn needs_admin(method: &Method, path: &str) -> bool {
    let changes = ["/api/pull", "/api/delete", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"];
    changes.contains(&path) || (path == "/v1/models" && method != Method::GET)
}
