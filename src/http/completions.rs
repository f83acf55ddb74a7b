//! `/v1/completions`: prompts as text or token ids, continued.

use axum::extract::State;
use axum::response::Response;

use super::answer::{Head, UsageReporting};
use super::body::{JsonBody, field_names};
use super::completion_writer::{ChoiceState, CompletionWriter, Echo};
use super::error::ApiError;
use super::grammar;
use super::logprobs::LogprobSpelling;
use super::prompt::{self, off_thread};
use super::request::{self, Arrival, Plan};
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::completions::{CompletionRequest, Prompt};
use super::types::fields::IgnoredFields;
use super::types::sampling::{GenerationOptions, SamplingFields, token_id, top_logprobs};

/// `max_tokens` of a request that doesn't say.
const DEFAULT_MAX_TOKENS: usize = 16;
pub(crate) const MAX_PROMPTS: usize = 1024;

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let CompletionPlan { request, mut plan, logprobs, streaming, ignored } =
        CompletionPlan::new(&state, &arrival, &body)?;
    let prompts = prompts(&request, state.engine().limits().vocab_size)?;
    let copies = plan.options.best_of;
    let permit = state.admit(prompts.len() * plan.options.num_sequences())?;
    let echo = request.echo.unwrap_or(false);
    let tokenized = tokenize(&state, prompts, request.add_special_tokens.unwrap_or(true)).await?;
    let tools = ToolSetup::default();
    let grammar = grammar::compile(plan.options.demand.take(), &tools, &state).await?;
    plan.options.constrain(grammar, None)?;
    let plan = plan.break_repetitions(&state).await?;
    let return_token_ids = plan.options.return_token_ids;
    let choices = tokenized.iter().flat_map(|prompt| {
        let text = || prompt.text.clone().unwrap_or_else(|| decode(&state, &prompt.ids));
        let choice = ChoiceState {
            echo: echo.then(|| Echo { text: text(), token_ids: prompt.ids.clone() }),
            prompt_token_ids: return_token_ids.then(|| prompt.ids.clone()),
            offset: 0,
        };
        std::iter::repeat_n(choice, plan.options.n)
    });
    let choices: Vec<ChoiceState> = choices.collect();
    let spelling = LogprobSpelling::new(state.tokenizer().clone(), &plan.options);
    let writer = CompletionWriter {
        head: Head::new("cmpl", &state, request.model.as_deref()),
        usage: streaming.unwrap_or_default(),
        spelling,
        logprobs,
        prompt_logprobs: plan.options.prompt_logprobs,
        best_of: copies,
        n: plan.options.n,
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
    logprobs: Option<u8>,
    streaming: Option<UsageReporting>,
    ignored: IgnoredFields,
}

impl CompletionPlan {
    fn new(state: &AppState, arrival: &Arrival, body: &JsonBody) -> Result<Self, ApiError> {
        let request: CompletionRequest = body.read()?;
        let mut fields: SamplingFields = body.read()?;
        arrival.complete(&mut fields);
        let adapter = state.check_model(request.model.as_deref())?;
        let known = [field_names::<CompletionRequest>(), field_names::<SamplingFields>()];
        let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
        let streaming =
            request::streaming(request.stream, request.stream_options.as_ref(), &mut ignored)?;
        ignored.check_strict(state.config().strict)?;
        let logprobs = top_logprobs("logprobs", request.logprobs)?;
        let limits = state.engine().limits();
        let mut options =
            GenerationOptions::new(&fields, logprobs, request.best_of, state.defaults(), limits)?
                .with_default_max_tokens(DEFAULT_MAX_TOKENS);
        if streaming.is_some() && options.best_of > options.n {
            let message = "best_of above n can't stream: which answers are best shows at the end";
            return Err(ApiError::field("best_of", message));
        }
        options.echoed_logprobs = logprobs.filter(|_| request.echo == Some(true));
        if options.thought_budget.is_some() {
            let what = "a budget of thoughts without a conversation";
            return Err(ApiError::unsupported("thinking_token_budget", what));
        }
        request::check_prompt_logprobs(&options, streaming.is_some())?;
        let plan = Plan { adapter, options, arrival: arrival.at };
        Ok(Self { request, plan, logprobs, streaming, ignored })
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
    let context = state.engine().limits().max_model_len;
    off_thread(move || {
        let prompts = checked.into_iter().map(|prompt| {
            let (source, ids) = match prompt {
                CheckedPrompt::Ids(ids) => (None, ids),
                CheckedPrompt::Text(text) => {
                    let ids =
                        prompt::tokenize(&tokenizer, &text, add_special_tokens, context, "prompt")?;
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
