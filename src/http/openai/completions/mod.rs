//! `/v1/completions`: prompts as text or token ids, continued.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tracing::Instrument;

use super::envelope::{Envelope, UsageReporting};
use super::format;
use super::sampling::{self, SamplingBody, Spelled, max_tokens, reasoning_budget, top_logprobs};
use super::stream_options::streaming;
use super::synonyms::rename_in_completion;
use crate::engine::adapter::Adapter;
use crate::http::answer::reader::ReadingPlan;
use crate::http::answer::stream;
use crate::http::error::ApiError;
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::grammar;
use crate::http::generate::options::GenerationOptions;
use crate::http::generate::plan::{Constraints, Plan, check_prompt_logprobs};
use crate::http::generate::prompt::RenderedPrompt;
use crate::http::generate::prompt_encoder::PromptEncoder;
use crate::http::generate::rendered::rendered;
use crate::http::generate::tools::ToolSetup;
use crate::http::openai::chat::input::CHAT_RULES;
use crate::http::request::arrival::Arrival;
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, Ignored, required};
use crate::http::request::id::RequestId;
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::wire::bounds::{MAX_PROMPTS, MAX_SEQUENCES};
use crate::http::wire::completions::{CompletionRequest, Prompt, PromptField};
use crate::http::wire::number::token_ids;
use crate::telemetry;
use crate::text::tokenizer::Encoded;
use writer::{ChoiceState, CompletionWriter, Echo};

mod writer;

/// `max_tokens` of a request that doesn't say.
const DEFAULT_MAX_TOKENS: usize = 16;

/// What completions call the fields of all protocols.
const NAMES: FieldNames = FieldNames {
    prompt: "prompt",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

/// The body of `POST /v1/completions`.
#[derive(Debug)]
pub(crate) struct CompletionBody {
    request: CompletionRequest,
    sampling: SamplingBody,
}

impl RequestBody for CompletionBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        let mut request = body.take()?;
        let sampling = SamplingBody::read(body)?;
        rename_in_completion(&sampling.synonyms, &mut request)?;
        Ok(Self { request, sampling })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /v1/completions`.
pub(crate) async fn completions(
    State(state): State<AppState>,
    request: Extracted<CompletionBody>,
) -> Result<Response, ApiError> {
    let Checked { request, model, mut options, streaming, ignored, adapter, arrival } =
        Checked::new(&state, request)?;
    let ignored = ignored.and("return_token_offsets", request.return_token_offsets == Some(true));
    let prompts = prompts(&request, state.engine.limits().vocab_size)?;
    let permit = state.admit(num_sequences(prompts.len(), options.num_sequences())?)?;
    let tokenized = {
        let add_special_tokens = request.add_special_tokens.unwrap_or(true);
        let encoder = PromptEncoder::new(&state, options.own.cut, &NAMES);
        let render = telemetry::stage("render");
        tokenize(encoder, prompts, add_special_tokens).instrument(render).await?
    };
    let tools = ToolSetup::none(&NAMES, None);
    let grammar = grammar::compile(options.own.demand.take(), &tools, &state).await?;
    let constraints = Constraints { grammar, reasoning: None };
    let reading = ReadingPlan::default();
    let plan = Plan::new(&state, options, constraints, reading, adapter, arrival.at).await?;
    let envelope = Envelope::new("cmpl", model, &plan.options, &state);
    let writer = writer(&state, envelope, &request, &plan.options, &tokenized, streaming);
    let ids: Vec<Vec<u32>> = tokenized.into_iter().map(|prompt| prompt.ids).collect();
    let generation = plan.submit(&state, permit, &ids)?;
    let streams = streaming.is_some();
    stream::respond(generation, writer, streams, state.keep_alive, &ignored).await
}

/// `POST /v1/completions/render`: the request of each prompt as the engine would get it.
pub(crate) async fn render(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Extracted<CompletionBody>,
) -> Result<Response, ApiError> {
    let Checked { request, model, options, streaming, ignored, .. } =
        Checked::new(&state, request)?;
    let prompts = prompts(&request, state.engine.limits().vocab_size)?;
    let special_tokens = request.add_special_tokens.unwrap_or(true);
    let encoder = PromptEncoder::new(&state, options.own.cut, &NAMES);
    let encoder = encoder.telling_offsets(request.return_token_offsets == Some(true));
    let tokenized = tokenize(encoder, prompts, special_tokens).await?;
    let id = id.or_in_body("cmpl-", options.own.request_id.as_deref());
    let one = tokenized.len() == 1;
    let each = tokenized.into_iter().enumerate().map(|(at, prompt)| {
        let TokenizedPrompt { text, ids, offsets } = prompt;
        let text = text.unwrap_or_else(|| state.tokenizer.decode(&ids, false));
        let prompt = RenderedPrompt {
            text,
            token_ids: ids,
            offsets,
            pictures: Vec::new(),
            sounds: Vec::new(),
        };
        let id = if one { id.clone() } else { format!("{id}-{at}") };
        rendered(&prompt, &options, &id, &model, streaming.is_some(), &state)
    });
    let answer: Vec<Value> = each.collect();
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// Writes the choices of all prompts.
fn writer(
    state: &AppState,
    envelope: Envelope,
    request: &CompletionRequest,
    options: &GenerationOptions,
    prompts: &[TokenizedPrompt],
    streaming: Option<UsageReporting>,
) -> CompletionWriter {
    let own = &options.own;
    let echo = request.echo.unwrap_or(false);
    let choices = prompts.iter().flat_map(|prompt| {
        let decoded = || state.tokenizer.decode(&prompt.ids, false);
        let text = || prompt.text.clone().unwrap_or_else(decoded);
        let choice = ChoiceState {
            echo: echo.then(|| Echo { text: text(), token_ids: prompt.ids.clone() }),
            prompt_token_ids: own.return_token_ids.then(|| prompt.ids.clone()),
            offset: 0,
        };
        std::iter::repeat_n(choice, own.n)
    });
    let choices: Vec<ChoiceState> = choices.collect();
    CompletionWriter {
        envelope,
        usage: streaming.unwrap_or_default(),
        spelling: options.logprob_spelling(state),
        logprobs: own.logprobs,
        prompt_logprobs: own.prompt_logprobs,
        best_of: own.best_of,
        n: own.n,
        unfinished: choices.len(),
        choices,
        return_token_ids: own.return_token_ids,
        seed: options.seed,
    }
}

/// A completion request with every check done that needs no prompt.
struct Checked {
    request: CompletionRequest,
    model: String,
    options: GenerationOptions,
    streaming: Option<UsageReporting>,
    ignored: Ignored,
    adapter: Option<Adapter>,
    arrival: Arrival,
}

impl Checked {
    fn new(state: &AppState, request: Extracted<CompletionBody>) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = request;
        let CompletionBody { request, sampling } = body;
        let streaming = {
            let options = request.stream_options.as_ref();
            streaming(request.stream, options, request.timings_per_token)?
        };
        let demand = format::response_format(sampling.own.response_format.as_ref(), &mut fields)?;
        let demand = format::demand(demand, "response_format", &sampling, &mut fields)?;
        let ignored = fields.finish(state.config.strict)?;
        let logprobs = top_logprobs("logprobs", request.logprobs, state)?;
        let spelled = Spelled {
            names: &NAMES,
            demand,
            max_tokens: max_tokens(&sampling, Some(DEFAULT_MAX_TOKENS))?,
            best_of: request.best_of,
            logprobs,
            echoed_logprobs: logprobs.filter(|_| request.echo == Some(true)),
        };
        let options = sampling::options(&sampling, spelled, &arrival, state)?;
        if streaming.is_some() && options.own.best_of > options.own.n {
            let message = "best_of above n can't stream: which answers are best shows at the end";
            return Err(ApiError::field("best_of", message));
        }
        if reasoning_budget(&sampling.own)?.is_some() {
            let what = "a budget of reasoning without a conversation";
            return Err(ApiError::unsupported(NAMES.reasoning_budget, what));
        }
        check_prompt_logprobs(&options, streaming.is_some())?;
        Ok(Self { request, model, options, streaming, ignored, adapter, arrival })
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
    /// Where in the text each token stands, if that was asked for and is known.
    offsets: Option<Vec<(usize, usize)>>,
}

fn prompts(request: &CompletionRequest, vocab_size: usize) -> Result<Vec<CheckedPrompt>, ApiError> {
    let PromptField(prompts) = required(request.prompt.as_ref(), "", "prompt")?;
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
        Prompt::Tokens(ids) => token_ids("prompt", ids, vocab_size).map(CheckedPrompt::Ids),
    });
    checked.collect()
}

/// The sequences of a request. Without a bound of their own, one request of few bytes would hold a server that
/// has nothing else to do for minutes.
fn num_sequences(prompts: usize, of_each: usize) -> Result<usize, ApiError> {
    let sequences = prompts * of_each;
    if sequences > MAX_SEQUENCES {
        let message = format!(
            "{prompts} prompts with {of_each} sequences each are {sequences} sequences, and a request may have at \
             most {MAX_SEQUENCES}"
        );
        return Err(ApiError::field("prompt", message));
    }
    Ok(sequences)
}

async fn tokenize(
    encoder: PromptEncoder,
    checked: Vec<CheckedPrompt>,
    add_special_tokens: bool,
) -> Result<Vec<TokenizedPrompt>, ApiError> {
    off_thread(move || {
        let prompts = checked.into_iter().map(|prompt| {
            let (text, Encoded { ids, offsets }) = match prompt {
                CheckedPrompt::Ids(ids) => (None, encoder.kept(Encoded { ids, offsets: None })),
                // Of a prompt that was cut, the text is that of what is left.
                CheckedPrompt::Text(text) => {
                    let tokens = encoder.encode(&text, add_special_tokens)?;
                    (Some(text).filter(|_| !encoder.cuts()), tokens)
                }
            };
            if ids.is_empty() {
                return Err(ApiError::field("prompt", "prompt must have at least one token"));
            }
            Ok(TokenizedPrompt { text, ids, offsets })
        });
        prompts.collect()
    })
    .await
}
