//! `/v1/completions`: prompts as text or token ids, continued.

use axum::extract::State;
use axum::response::Response;

use super::answer::{Head, UsageReporting};
use super::body::{JsonBody, field_names};
use super::completion_writer::{ChoiceState, CompletionWriter};
use super::error::ApiError;
use super::logprobs::LogprobSpelling;
use super::prompt::off_thread;
use super::request::{self, Arrival, Plan};
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::completions::{CompletionRequest, Prompt};
use super::types::fields::IgnoredFields;
use super::types::sampling::{GenerationOptions, SamplingFields, token_id, top_logprobs};

/// `max_tokens` of a request that doesn't say.
const DEFAULT_MAX_TOKENS: usize = 16;
const MAX_PROMPTS: usize = 1024;

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let CompletionPlan { request, plan, streaming, ignored } =
        CompletionPlan::new(&state, &arrival, &body)?;
    let prompts = prompts(&request, state.engine().limits().vocab_size)?;
    let n = plan.options.n;
    let permit = state.admit(prompts.len() * n)?;
    let echo = request.echo.unwrap_or(false);
    let tokenized = tokenize(&state, prompts, request.add_special_tokens.unwrap_or(true)).await?;
    let return_token_ids = plan.options.return_token_ids;
    let choices = tokenized.iter().flat_map(|prompt| {
        let choice = ChoiceState {
            echo: echo.then(|| prompt.text.clone().unwrap_or_else(|| decode(&state, &prompt.ids))),
            prompt_token_ids: return_token_ids.then(|| prompt.ids.clone()),
            offset: 0,
        };
        std::iter::repeat_n(choice, n)
    });
    let choices: Vec<ChoiceState> = choices.collect();
    let spelling = || LogprobSpelling::new(state.tokenizer().clone(), &plan.options);
    let writer = CompletionWriter {
        head: Head::new("cmpl", &state, request.model.as_deref()),
        usage: streaming.unwrap_or_default(),
        logprobs: request.logprobs.map(|_| spelling()),
        unfinished: choices.len(),
        choices,
        return_token_ids,
        seed: plan.options.seed,
    };
    let ids: Vec<Vec<u32>> = tokenized.into_iter().map(|prompt| prompt.ids).collect();
    let generation = plan.submit(&state, permit, &ids)?;
    let streams = streaming.is_some();
    request::answer(generation, writer, streams, state.keep_alive(), &ignored).await
}

/// A completion request with every check done that needs no prompt.
struct CompletionPlan {
    request: CompletionRequest,
    plan: Plan,
    streaming: Option<UsageReporting>,
    ignored: IgnoredFields,
}

impl CompletionPlan {
    fn new(state: &AppState, arrival: &Arrival, body: &JsonBody) -> Result<Self, ApiError> {
        let request: CompletionRequest = body.read()?;
        let mut fields: SamplingFields = body.read()?;
        arrival.complete(&mut fields);
        state.check_model(request.model.as_deref())?;
        let known = [field_names::<CompletionRequest>(), field_names::<SamplingFields>()];
        let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
        let streaming =
            request::streaming(request.stream, request.stream_options.as_ref(), &mut ignored)?;
        ignored.check_strict(state.config().strict)?;
        let logprobs = top_logprobs("logprobs", request.logprobs)?;
        if logprobs.is_some() && request.echo == Some(true) {
            return Err(ApiError::unsupported("echo", "echo together with logprobs"));
        }
        let limits = state.engine().limits();
        let options = GenerationOptions::new(&fields, logprobs, state.defaults(), limits)?
            .with_default_max_tokens(DEFAULT_MAX_TOKENS);
        check_best_of(&request, options.n)?;
        let plan = Plan { options, tools: ToolSetup::default(), arrival: arrival.at };
        Ok(Self { request, plan, streaming, ignored })
    }
}

fn check_best_of(request: &CompletionRequest, n: usize) -> Result<(), ApiError> {
    let Some(best_of) = request.best_of else { return Ok(()) };
    match usize::try_from(best_of.0) {
        Ok(best_of) if best_of == n => Ok(()),
        Ok(best_of) if best_of > n => {
            Err(ApiError::unsupported("best_of", &format!("{best_of}, more than n = {n},")))
        }
        _ => {
            let message = format!("best_of must be at least n ({n}), got {}", best_of.0);
            Err(ApiError::field("best_of", message))
        }
    }
}

/// Checked prompts.
enum CheckedPrompt {
    Text(String),
    Ids(Vec<u32>),
}

struct TokenizedPrompt {
    /// As the request had it, if it was text.
    text: Option<String>,
    ids: Vec<u32>,
}

fn prompts(request: &CompletionRequest, vocab_size: usize) -> Result<Vec<CheckedPrompt>, ApiError> {
    let prompts = request.prompt.as_ref();
    let prompts = &prompts.ok_or_else(|| ApiError::field("prompt", "prompt is required"))?.0;
    if prompts.is_empty() {
        return Err(ApiError::field("prompt", "prompt must not be empty"));
    }
    if prompts.len() > MAX_PROMPTS {
        let message =
            format!("prompt must have at most {MAX_PROMPTS} prompts, got {}", prompts.len());
        return Err(ApiError::field("prompt", message));
    }
    let checked = prompts.iter().map(|prompt| match prompt {
        Prompt::Text(text) => Ok(CheckedPrompt::Text(text.clone())),
        Prompt::Tokens(ids) => {
            let ids: Result<Vec<u32>, ApiError> =
                ids.iter().map(|id| token_id("prompt", *id, vocab_size)).collect();
            ids.map(CheckedPrompt::Ids)
        }
    });
    checked.collect()
}

async fn tokenize(
    state: &AppState,
    checked: Vec<CheckedPrompt>,
    add_special_tokens: bool,
) -> Result<Vec<TokenizedPrompt>, ApiError> {
    let tokenizer = state.tokenizer().clone();
    off_thread(move || {
        let prompts = checked.into_iter().map(|prompt| {
            let (source, ids) = match prompt {
                CheckedPrompt::Ids(ids) => (None, ids),
                CheckedPrompt::Text(text) => {
                    let ids = tokenizer
                        .encode(&text, add_special_tokens)
                        .map_err(|error| ApiError::field("prompt", error.to_string()))?;
                    (Some(text), ids)
                }
            };
            if ids.is_empty() {
                return Err(ApiError::field("prompt", "prompt must have at least one token"));
            }
            Ok(TokenizedPrompt { text: source, ids })
        });
        prompts.collect()
    })
    .await
}

fn decode(state: &AppState, ids: &[u32]) -> String {
    state.tokenizer().decode(ids, false)
}
