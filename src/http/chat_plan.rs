//! A chat request from its fields to the engine: what all endpoints that chat do alike.
//!
//! Each of them brings its request into the shape of a chat completion, and writes the answer in
//! its own.

use axum::response::Response;

use super::admission::Permit;
use super::answer::AnswerWriter;
use super::error::ApiError;
use super::grammar;
use super::prompt::{Conversation, RenderedPrompt};
use super::reader::ReadingPlan;
use super::request::{self, Arrival, Plan};
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::chat::ChatCompletionRequest;
use super::types::fields::IgnoredFields;
use super::types::sampling::{GenerationOptions, SamplingFields, top_logprobs};
use crate::sampling::thoughts::ThoughtParams;
use crate::text::reasoning;

/// A chat request with every check done that needs no rendering.
pub(crate) struct ChatPlan {
    plan: Plan,
    tools: ToolSetup,
    conversation: Conversation,
    thoughts: ThoughtOptions,
}

/// What a request says about thoughts.
struct ThoughtOptions {
    parted: bool,
    hidden: bool,
    /// The message that is continued.
    continued: Option<String>,
}

/// A chat request that has its place and its prompt.
pub(crate) struct PreparedChat {
    plan: Plan,
    permit: Permit,
    prompt: RenderedPrompt,
}

impl ChatPlan {
    /// Checks the request; notes the fields that have no effect.
    pub(crate) fn new(
        state: &AppState,
        arrival: &Arrival,
        request: &ChatCompletionRequest,
        mut fields: SamplingFields,
        ignored: &mut IgnoredFields,
    ) -> Result<Self, ApiError> {
        arrival.complete(&mut fields);
        let adapter = state.check_model(request.model.as_deref())?;
        let logprobs = logprobs(request)?;
        let limits = state.engine().limits();
        let options = GenerationOptions::new(&fields, logprobs, None, state.defaults(), limits)?;
        request::check_prompt_logprobs(&options, request.stream == Some(true))?;
        let tools = ToolSetup::new(state, request)?;
        let conversation = Conversation::new(state, request, &tools, ignored)?;
        ignored.check_strict(state.config().strict)?;
        let continues = request.continue_final_message == Some(true);
        let thoughts = ThoughtOptions {
            parted: request.separate_reasoning != Some(false),
            hidden: request.include_reasoning == Some(false),
            continued: continues.then(|| last_message(request)),
        };
        let plan = Plan { adapter, options, arrival: arrival.at };
        Ok(Self { plan, tools, conversation, thoughts })
    }

    /// Takes a place and renders the prompt.
    pub(crate) async fn prepare(self, state: &AppState) -> Result<PreparedChat, ApiError> {
        let Self { mut plan, tools, conversation, thoughts } = self;
        let permit = state.admit(plan.options.num_sequences())?;
        let prompt = conversation.render(state).await?;
        let grammar = grammar::compile(plan.options.demand.take(), &tools, state).await?;
        let reading = reading(state, &tools, &thoughts, &prompt.text);
        let thoughts = thought_params(state, &plan.options, &reading, &prompt.text)?;
        plan.options.constrain(grammar, thoughts)?;
        let mut plan = plan.break_repetitions(state).await?;
        plan.options.decoding.reading = reading;
        Ok(PreparedChat { plan, permit, prompt })
    }

    /// Renders the prompt, no more.
    pub(crate) async fn render(self, state: &AppState) -> Result<RenderedPrompt, ApiError> {
        self.conversation.render(state).await
    }
}

impl PreparedChat {
    pub(crate) fn options(&self) -> &GenerationOptions {
        &self.plan.options
    }

    pub(crate) fn prompt(&self) -> &RenderedPrompt {
        &self.prompt
    }

    /// Runs the request and answers.
    pub(crate) async fn answer(
        self,
        state: &AppState,
        writer: impl AnswerWriter,
        streams: bool,
        ignored: &IgnoredFields,
    ) -> Result<Response, ApiError> {
        let generation = self.plan.submit(state, self.permit, &[self.prompt.token_ids])?;
        request::answer(generation, writer, streams, state.keep_alive(), ignored).await
    }
}

/// How the answer behind `prompt` is read.
fn reading(
    state: &AppState,
    tools: &ToolSetup,
    thoughts: &ThoughtOptions,
    prompt: &str,
) -> ReadingPlan {
    let family = state.families(!tools.definitions.is_empty()).reasoning;
    let reasoning = family.filter(|_| thoughts.parted);
    let starts_inside = |name| {
        let continues = |message: &String| reasoning::continues_inside(name, message);
        reasoning::starts_inside(name, prompt) || thoughts.continued.as_ref().is_some_and(continues)
    };
    ReadingPlan {
        reasoning,
        starts_inside: reasoning.is_some_and(starts_inside),
        hide_reasoning: thoughts.hidden,
        tools: tools.family,
        functions: tools.functions(),
        single_call: tools.single_call,
    }
}

/// How the sampler tells thoughts from the answer behind `prompt`.
fn thought_params(
    state: &AppState,
    options: &GenerationOptions,
    reading: &ReadingPlan,
    prompt: &str,
) -> Result<Option<ThoughtParams>, ApiError> {
    let Some(name) = reading.reasoning else {
        if options.thought_budget.is_some() {
            let what = "a budget of thoughts for a model without any";
            return Err(ApiError::unsupported("thinking_token_budget", what));
        }
        return Ok(None);
    };
    let Some(marks) = reasoning::marks(name) else { return Ok(None) };
    let tokenizer = state.tokenizer();
    let close = tokenizer.encode(marks.close, false).unwrap_or_default();
    if close.is_empty() {
        return Ok(None);
    }
    let was_closed = prompt.trim_end().ends_with(marks.close);
    let open = marks.open.filter(|_| !was_closed).and_then(|open| tokenizer.token_id(open));
    let starts_inside = reading.starts_inside || marks.always;
    Ok(Some(ThoughtParams { close, starts_inside, open, budget: options.thought_budget }))
}

fn last_message(request: &ChatCompletionRequest) -> String {
    let last = request.messages.as_ref().and_then(|messages| messages.last());
    let content = last.and_then(|message| message.content.as_ref()?.as_str());
    content.unwrap_or_default().to_owned()
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
