//! `/v1/chat/completions`, and the prompt that a chat request would run.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::answer::{Head, UsageReporting};
use super::body::{JsonBody, field_names};
use super::chat_plan::ChatPlan;
use super::chat_writer::ChatWriter;
use super::error::ApiError;
use super::logprobs::LogprobSpelling;
use super::request::{self, Arrival};
use super::state::AppState;
use super::types::chat::ChatCompletionRequest;
use super::types::fields::IgnoredFields;
use super::types::sampling::SamplingFields;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let ChatRequest { request, plan, streaming, ignored } =
        ChatRequest::new(&state, &arrival, &body)?;
    let chat = plan.prepare(&state).await?;
    let options = chat.options();
    let spelling = || LogprobSpelling::new(state.tokenizer().clone(), options);
    let writer = ChatWriter {
        head: Head::new("chatcmpl", &state, request.model.as_deref()),
        num_choices: options.n,
        usage: streaming.unwrap_or_default(),
        logprobs: request.logprobs.unwrap_or(false).then(spelling),
        prompt_logprobs: options.prompt_logprobs.map(|most| (spelling(), most)),
        prompt_token_ids: options.return_token_ids.then(|| chat.prompt().token_ids.clone()),
        thinks: options.decoding.reading.reasoning.is_some(),
        seed: options.seed,
        unfinished: options.n,
    };
    chat.answer(&state, writer, streaming.is_some(), &ignored).await
}

/// `POST /v1/chat/completions/render`.
pub(crate) async fn render(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let ChatRequest { request, plan, ignored, .. } = ChatRequest::new(&state, &arrival, &body)?;
    let prompt = plan.render(&state).await?;
    let answer = axum::Json(json!({
        "model": request.model,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.token_ids,
        "count": prompt.token_ids.len(),
        "max_model_len": state.engine().limits().max_model_len,
    }));
    Ok(request::with_ignored(answer.into_response(), &ignored))
}

/// The body, read and checked.
struct ChatRequest {
    request: ChatCompletionRequest,
    plan: ChatPlan,
    streaming: Option<UsageReporting>,
    ignored: IgnoredFields,
}

impl ChatRequest {
    fn new(state: &AppState, arrival: &Arrival, body: &JsonBody) -> Result<Self, ApiError> {
        let request: ChatCompletionRequest = body.read()?;
        let fields: SamplingFields = body.read()?;
        let known = [field_names::<ChatCompletionRequest>(), field_names::<SamplingFields>()];
        state.check_model(request.model.as_deref())?;
        let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
        let streaming =
            request::streaming(request.stream, request.stream_options.as_ref(), &mut ignored)?;
        let plan = ChatPlan::new(state, arrival, &request, fields, &mut ignored)?;
        Ok(Self { request, plan, streaming, ignored })
    }
}
