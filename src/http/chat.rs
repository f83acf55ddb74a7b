//! `/v1/chat/completions`, and the prompt that a chat request would run.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::answer::{Head, UsageReporting};
use super::body::{JsonBody, field_names};
use super::chat_writer::ChatWriter;
use super::error::ApiError;
use super::logprobs::LogprobSpelling;
use super::prompt::Conversation;
use super::request::{self, Arrival, Plan};
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::chat::ChatCompletionRequest;
use super::types::fields::IgnoredFields;
use super::types::sampling::{GenerationOptions, SamplingFields, top_logprobs};

/// `POST /v1/chat/completions`.
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let ChatPlan { request, plan, conversation, streaming, ignored } =
        ChatPlan::new(&state, &arrival, &body)?;
    let permit = state.admit(plan.options.n)?;
    let prompt = conversation.render(&state).await?;
    let spelling = || LogprobSpelling::new(state.tokenizer().clone(), &plan.options);
    let writer = ChatWriter {
        head: Head::new("chatcmpl", &state, request.model.as_deref()),
        num_choices: plan.options.n,
        usage: streaming.unwrap_or_default(),
        logprobs: request.logprobs.unwrap_or(false).then(spelling),
        prompt_logprobs: plan.options.prompt_logprobs.map(|most| (spelling(), most)),
        prompt_token_ids: plan.options.return_token_ids.then(|| prompt.token_ids.clone()),
        seed: plan.options.seed,
        unfinished: plan.options.n,
    };
    let generation = plan.submit(&state, permit, &[prompt.token_ids])?;
    let streams = streaming.is_some();
    request::answer(generation, writer, streams, state.keep_alive(), &ignored).await
}

/// `POST /v1/chat/completions/render`.
pub(crate) async fn render(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let ChatPlan { request, conversation, ignored, .. } = ChatPlan::new(&state, &arrival, &body)?;
    let prompt = conversation.render(&state).await?;
    let answer = axum::Json(json!({
        "model": request.model,
        "prompt": prompt.text,
        "prompt_token_ids": prompt.token_ids,
        "count": prompt.token_ids.len(),
        "max_model_len": state.engine().limits().max_model_len,
    }));
    Ok(request::with_ignored(answer.into_response(), &ignored))
}

/// A chat request with every check done that needs no rendering.
struct ChatPlan {
    request: ChatCompletionRequest,
    plan: Plan,
    conversation: Conversation,
    streaming: Option<UsageReporting>,
    ignored: IgnoredFields,
}

impl ChatPlan {
    fn new(state: &AppState, arrival: &Arrival, body: &JsonBody) -> Result<Self, ApiError> {
        let request: ChatCompletionRequest = body.read()?;
        let mut fields: SamplingFields = body.read()?;
        arrival.complete(&mut fields);
        state.check_model(request.model.as_deref())?;
        let known = [field_names::<ChatCompletionRequest>(), field_names::<SamplingFields>()];
        let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
        let streaming =
            request::streaming(request.stream, request.stream_options.as_ref(), &mut ignored)?;
        let logprobs = logprobs(&request)?;
        let limits = state.engine().limits();
        let options = GenerationOptions::new(&fields, logprobs, state.defaults(), limits)?;
        request::check_prompt_logprobs(&options, streaming.is_some())?;
        let tools = ToolSetup::new(state, &request)?;
        let conversation = Conversation::new(state, &request, &tools, &mut ignored)?;
        ignored.check_strict(state.config().strict)?;
        let plan = Plan { options, tools, arrival: arrival.at };
        Ok(Self { request, plan, conversation, streaming, ignored })
    }
}

fn logprobs(request: &ChatCompletionRequest) -> Result<Option<u8>, ApiError> {
    let top = top_logprobs("top_logprobs", request.top_logprobs)?;
    match (request.logprobs.unwrap_or(false), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => {
            Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs to be true"))
        }
    }
}
