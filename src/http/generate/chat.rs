//! A chat from what was asked to the engine: what all routes that chat do alike.
//!
//! Each step has a type of its own: a [`CheckedChat`] passed every check that needs no rendering,
//! a [`PreparedChat`] has its permit and its prompt.

use axum::response::Response;
use serde_json::Value;
use tracing::Instrument;

use super::chat_request::{ChatRequest, Message, Part, ReasoningOptions};
use super::demand::Demand;
use super::grammar;
use super::options::GenerationOptions;
use super::plan::{Constraints, Media, Plan, check_prompt_logprobs};
use super::prompt::{CheckedConversation, RenderedPrompt};
use super::reasoning;
use super::rendered::{Described, rendered};
use super::tools::ToolSetup;
use crate::engine::adapter::Adapter;
use crate::http::answer::stream;
use crate::http::answer::writer::AnswerWriter;
use crate::http::error::ApiError;
use crate::http::request::arrival::Arrival;
use crate::http::request::fields::Ignored;
use crate::http::state::AppState;
use crate::http::state::admission::Permit;
use crate::telemetry;

/// A chat with every check done that needs no rendering.
#[derive(Debug)]
pub(crate) struct CheckedChat {
    adapter: Option<Adapter>,
    arrival: Arrival,
    demand: Option<Demand>,
    options: GenerationOptions,
    tools: ToolSetup,
    conversation: CheckedConversation,
    reasoning: ReasoningOptions,
    streams: bool,
    /// The message that the answer goes on with.
    continued: Option<String>,
}

/// A chat that has its permit and its prompt.
#[derive(Debug)]
pub(crate) struct PreparedChat {
    pub(crate) plan: Plan,
    permit: Permit,
    pub(crate) prompt: RenderedPrompt,
}

impl CheckedChat {
    /// Checks what depends on the model.
    pub(crate) fn new(
        state: &AppState,
        request: ChatRequest,
        adapter: Option<Adapter>,
        arrival: Arrival,
    ) -> Result<Self, ApiError> {
        let ChatRequest { conversation, reasoning, mut options, streams } = request;
        check_prompt_logprobs(&options, streams)?;
        let tools = ToolSetup::new(state, &conversation)?;
        let goes_on = conversation.template.continue_final_message;
        let continued = goes_on.then(|| last_text(&conversation.messages));
        let mut conversation = CheckedConversation::new(state, conversation, &tools)?;
        conversation.cut = options.own.cut;
        let demand = options.own.demand.take();
        Ok(Self {
            adapter,
            arrival,
            demand,
            options,
            tools,
            conversation,
            reasoning,
            streams,
            continued,
        })
    }

    /// Takes a permit, renders the prompt and compiles what binds the answer.
    pub(crate) async fn prepare(self, state: &AppState) -> Result<PreparedChat, ApiError> {
        let Self { options, tools, reasoning, .. } = self;
        let permit = state.admit(options.num_sequences())?;
        let render = telemetry::stage("render");
        let prompt = self.conversation.render(state).instrument(render).await?;
        let grammar = grammar::compile(self.demand, &tools, state).await?;
        let continued = self.continued.as_deref();
        let reading = reasoning::reading(state, &tools, reasoning, continued, &prompt.text);
        let reasoning = reasoning::params(state, reasoning, tools.names, &reading, &prompt.text)?;
        let constraints = Constraints { grammar, reasoning };
        let arrival = self.arrival.at;
        let plan = Plan::new(state, options, constraints, reading, self.adapter, arrival).await?;
        Ok(PreparedChat { plan, permit, prompt })
    }

    /// Renders the prompt, no more.
    pub(crate) async fn render(self, state: &AppState) -> Result<RenderedPrompt, ApiError> {
        self.conversation.render(state).await
    }

    /// The request as the engine would get it.
    pub(crate) async fn describe(
        mut self,
        state: &AppState,
        Described { id, model, offsets }: Described,
    ) -> Result<Value, ApiError> {
        self.conversation.offsets = offsets;
        let prompt = self.conversation.render(state).await?;
        Ok(rendered(&prompt, &self.options, &id, &model, self.streams, state))
    }
}

impl PreparedChat {
    /// Runs the request and answers.
    pub(crate) async fn answer(
        self,
        state: &AppState,
        writer: impl AnswerWriter,
        streams: bool,
        ignored: &Ignored,
    ) -> Result<Response, ApiError> {
        let RenderedPrompt { token_ids, pictures, sounds, .. } = self.prompt;
        let media = Media { pictures: &pictures, sounds: &sounds };
        let generation = self.plan.submit_with(state, self.permit, &[token_ids], media)?;
        stream::respond(generation, writer, streams, state.keep_alive, ignored).await
    }
}

fn last_text(messages: &[Message]) -> String {
    let parts = messages.last().into_iter().flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
