//! What SGLang's routers ask of a server before they send requests to it, under SGLang's names.

use axum::extract::State;
use serde_json::{Value, json};

use crate::http::state::AppState;

/// `GET /server_info` and `/get_server_info`: what is served, and how much of it fits.
pub(crate) async fn server_info(State(state): State<AppState>) -> axum::Json<Value> {
    let limits = state.engine.limits();
    let name = state.model_name();
    axum::Json(json!({
        "version": concat!("sconce-", env!("CARGO_PKG_VERSION")),
        "model_path": name,
        "tokenizer_path": name,
        "served_model_name": name,
        "is_embedding": !limits.generates,
        "context_length": limits.max_model_len,
        "max_running_requests": limits.max_num_seqs,
        "max_total_num_tokens": limits.num_blocks * limits.block_size,
        "page_size": limits.block_size,
        "dp_size": 1,
        "disaggregation_mode": "null",
    }))
}

/// `GET /model_info` and `/get_model_info`: what the model is.
pub(crate) async fn model_info(State(state): State<AppState>) -> axum::Json<Value> {
    let name = state.model_name();
    axum::Json(json!({
        "model_path": name,
        "tokenizer_path": name,
        "is_generation": state.engine.limits().generates,
        "has_image_understanding": state.sees(),
        "has_audio_understanding": state.hears(),
        "model_type": state.model.architecture,
    }))
}
