//! What programs of other servers ask about this one: load, properties, the tokenizer, and the prompt
//! of a conversation under llama.cpp's name.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::generate::prompt;
use crate::http::openai::chat::input::{CHAT_RULES, conversation};
use crate::http::page;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::BodyReader;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::wire::chat::ChatCompletionRequest;

/// `GET /`: the chat page for browsers; for programs that look whether a server is there, what it is.
pub(crate) async fn root(State(state): State<AppState>, headers: HeaderMap) -> Response {
    if page::wants_page(&headers) {
        return page::chat(&headers);
    }
    let about = json!({
        "server": "sconce",
        "version": env!("CARGO_PKG_VERSION"),
        "model": state.model_name(),
        "openapi": "/openapi.json",
    });
    ([(header::VARY, "accept")], axum::Json(about)).into_response()
}

/// `GET /load`: sequences that run or wait, under vLLM's name.
pub(crate) async fn load(State(state): State<AppState>) -> axum::Json<Value> {
    axum::Json(json!({"server_load": state.admission.in_use()}))
}

/// `GET /props`: the model's properties, under llama.cpp's names.
pub(crate) async fn props(State(state): State<AppState>) -> axum::Json<Value> {
    let limits = state.engine.limits();
    axum::Json(json!({
        "model_alias": state.model_name(),
        "model_path": state.model_name(),
        "total_slots": limits.max_num_seqs,
        "default_generation_settings": {"n_ctx": limits.max_model_len},
        "chat_template": state.chat_template(false).map(|template| template.source()),
        "modalities": {"vision": state.sees(), "audio": state.hears()},
        "build_info": concat!("sconce-", env!("CARGO_PKG_VERSION")),
    }))
}

/// `GET /slots`: the sequences that can run at once, under llama.cpp's names. Which of them a request
/// runs in isn't fixed here: as many are busy as run or wait.
pub(crate) async fn slots(State(state): State<AppState>) -> axum::Json<Value> {
    let limits = state.engine.limits();
    let busy = state.admission.in_use();
    let slot = |id| json!({"id": id, "n_ctx": limits.max_model_len, "is_processing": id < busy});
    axum::Json((0..limits.max_num_seqs).map(slot).collect())
}

/// `GET /tokenizer_info`: special tokens and chat template, for programs that render prompts
/// themselves.
pub(crate) async fn tokenizer_info(State(state): State<AppState>) -> axum::Json<Value> {
    let special = state.tokenizer.special_tokens();
    let mut info: Map<String, Value> =
        special.iter().map(|(name, text)| (name.to_owned(), json!(text))).collect();
    // Where a model says nothing of an end in its tokenizer's files.
    let end = state.eos_token_ids.first().and_then(|id| state.tokenizer.token(*id));
    info.entry("eos_token").or_insert_with(|| json!(end));
    info.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
    info.insert("model_max_length".to_owned(), json!(state.engine.limits().max_model_len));
    let template = state.chat_template(false).map(|template| template.source());
    info.insert("chat_template".to_owned(), json!(template));
    axum::Json(Value::Object(info))
}

/// The body of `POST /apply-template`.
#[derive(Debug)]
pub(crate) struct ConversationBody(ChatCompletionRequest);

impl RequestBody for ConversationBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self(body.take()?))
    }

    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }
}

/// `POST /apply-template`: the prompt of a conversation, as text.
pub(crate) async fn apply_template(
    State(state): State<AppState>,
    extracted: Extracted<ConversationBody>,
) -> Result<Response, ApiError> {
    let Extracted { body: ConversationBody(request), mut fields, .. } = extracted;
    let conversation = conversation(&request, &mut fields)?;
    let ignored = fields.finish(state.config.strict)?;
    let prompt = prompt::rendered(&state, conversation).await?;
    Ok(ignored.tell(axum::Json(json!({"prompt": prompt.text})).into_response()))
}
