//! What operators ask about the server itself: health, metrics, version.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::metrics::open_metrics;

/// `GET /health/startup`: the model is loaded. Before that, another service answers 503 here.
pub(crate) async fn startup() -> axum::Json<Value> {
    axum::Json(json!({"status": "started"}))
}

/// `GET /health/live`: starting the process again would help nobody.
pub(crate) async fn live(State(state): State<AppState>) -> Result<axum::Json<Value>, ApiError> {
    state.check_live()?;
    Ok(axum::Json(json!({"status": "live"})))
}

/// `GET /health`, `/health/ready` and, for SGLang's routers, `/health_generate`: requests are welcome.
pub(crate) async fn ready(State(state): State<AppState>) -> Result<axum::Json<Value>, ApiError> {
    state.check_ready()?;
    Ok(axum::Json(json!({"status": "ready"})))
}

/// `GET /metrics`, as Prometheus text, or as OpenMetrics to whoever accepts that.
pub(crate) async fn metrics(State(state): State<AppState>, headers: HeaderMap) -> Response {
    let mut accepted =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (content_type, text) =
        if accepted.any(|types| types.contains("application/openmetrics-text")) {
            (open_metrics::CONTENT_TYPE, state.metrics.render_open_metrics())
        } else {
            ("text/plain; version=0.0.4; charset=utf-8", state.metrics.render())
        };
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// `GET /version`.
pub(crate) async fn version(State(state): State<AppState>) -> axum::Json<Value> {
    axum::Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "features": state.build_features,
    }))
}
