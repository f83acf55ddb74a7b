//! A request for a response to the one that all protocols share, and to the settings that the
//! response repeats.
//!
//! Every field is judged here: it takes effect, is refused by name, or is named as ignored.

use serde_json::{Value, json};

use super::comparison::Comparison;
use super::conversation::messages;
use super::items::{ItemReader, check_outputs};
use super::references::References;
use super::settings::{conversation_id, settings};
use super::tools::{CalledTools, ResponseTools};
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    ChatRequest, Conversation, ReasoningOptions, TemplateOptions, Tool, Tools,
};
use crate::http::generate::demand::Demand;
use crate::http::generate::field_names::FieldNames;
use crate::http::openai::conversations::all_items;
use crate::http::openai::sampling::{
    self, SamplingBody, Spelled, effort, prewarmed, reasoning_budget, top_logprobs,
};
use crate::http::openai::stream_options::streaming;
use crate::http::openai::synonyms::{N_PREDICT, N_PROBS};
use crate::http::openai::{format, tools};
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader, Ignored, required, text_member};
use crate::http::request::owner::Owner;
use crate::http::request::rules::{COMMON, Rules, Treatment, is_bool, is_empty, is_false};
use crate::http::state::AppState;
use crate::http::state::response_store::{History, Turn};
use crate::http::wire::bounds::{INCLUDABLES, INCLUDE_LOGPROBS, INCLUDE_REASONING};
use crate::http::wire::number::{Int, integer, to_usize};
use crate::http::wire::response_format::PlainFormat;
use crate::http::wire::response_input::JsonSchemaFormat;
use crate::http::wire::responses::{
    ReasoningField, ResponsesRequest, Settings, TextField, TextSettings,
};

/// What responses call the fields of all protocols.
const NAMES: FieldNames = FieldNames {
    prompt: "input",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_output_tokens",
    reasoning_budget: "thinking_token_budget",
};

/// Members of items and tools that say nothing to a model here.
const RESPONSE_RULES: Rules = &[
    ("*.allowed_callers", Treatment::Ignored),
    ("*.cache_control", Treatment::Ignored),
    ("*.defer_loading", Treatment::Ignored),
    ("input[].caller", Treatment::Ignored),
    ("input[].content[].annotations", Treatment::IgnoredUnless(is_empty)),
    ("input[].content[].logprobs", Treatment::IgnoredUnless(is_empty)),
    ("input[].created_by", Treatment::Ignored),
    ("input[].encrypted_content", Treatment::Ignored),
    ("enable_response_messages", Treatment::Unsupported(is_false)),
    ("input[].name", Treatment::Ignored),
    ("input[].phase", Treatment::Ignored),
    ("tools[].async", Treatment::Ignored),
    ("tools[].output_schema", Treatment::Ignored),
    ("tools[].tools[].async", Treatment::Ignored),
    ("tools[].tools[].output_schema", Treatment::Ignored),
    // Padding against traffic analysis; the answer is the same.
    ("stream_options.include_obfuscation", Treatment::Ignored),
    ("text.format.description", Treatment::Ignored),
    // Schemas are enforced whatever it says.
    ("text.format.strict", Treatment::Unsupported(is_bool)),
];

/// The body of `POST /v1/responses`.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    request: ResponsesRequest,
    sampling: SamplingBody,
}

impl RequestBody for ResponseBody {
    const RULES: &'static [Rules] = &[COMMON, RESPONSE_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, sampling: SamplingBody::read(body)? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

impl ResponseBody {
    /// Makes it the request for a summary: one answer that calls no tool, given whole and not stored.
    ///
    /// # Errors
    /// Something else is asked for.
    pub(super) fn summarize(&mut self) -> Result<(), ApiError> {
        let request = &mut self.request;
        let asks = [(request.stream, "stream"), (request.background, "background")];
        if let Some((_, name)) = asks.into_iter().find(|(asked, _)| *asked == Some(true)) {
            return Err(ApiError::unsupported(name, "the value true"));
        }
        request.store = Some(false);
        request.tool_choice = Some("none".into());
        Ok(())
    }
}

/// A request in the words of all protocols, and what its answer is written with.
pub(super) struct Converted {
    pub(super) chat: ChatRequest,
    pub(super) settings: Settings,
    pub(super) comparison: Comparison,
    pub(super) model: String,
    /// All items, the request's own last.
    pub(super) conversation: History,
    pub(super) called: CalledTools,
    /// Whether reasoning is wanted in a form that can be sent back in place of it.
    pub(super) carries_reasoning: bool,
    pub(super) ignored: Ignored,
    pub(super) adapter: Option<Adapter>,
    pub(super) arrival: Arrival,
}

impl Converted {
    pub(super) async fn new(
        state: &AppState,
        owner: &Owner,
        request: Extracted<ResponseBody>,
    ) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = request;
        let ResponseBody { mut request, sampling } = body;
        check_unsupported(&request, &sampling)?;
        note_idle(&request, &mut fields);
        let streaming = streaming(request.stream, request.stream_options.as_ref(), None)?;
        let history = history(state, owner, &request, &mut fields).await?;
        let tools = request.tools.take().unwrap_or_default();
        let ResponseTools { list, shown, called } = ResponseTools::read(&tools, &mut fields)?;
        let conversation = conversation(&request, list, &history, &mut fields)?;
        let (demand, text) = text(request.text.as_ref(), &mut fields)?;
        let max_tokens = integer(NAMES.max_tokens, request.max_output_tokens, 1, i64::MAX)?;
        let spelled = Spelled {
            names: &NAMES,
            demand: format::demand(demand, "text.format", &sampling, &mut fields)?,
            max_tokens: prewarmed(&sampling.own).or(max_tokens.map(to_usize)),
            best_of: None,
            logprobs: logprobs(&request, &mut fields, state)?,
            echoed_logprobs: None,
        };
        let chat = ChatRequest {
            options: sampling::options(&sampling, spelled, &arrival, state)?,
            reasoning: ReasoningOptions {
                separate: true,
                hidden: false,
                budget: reasoning_budget(&sampling.own)?,
            },
            streams: streaming.is_some(),
            conversation,
        };
        let ignored = fields.finish(state.config.strict)?;
        let tier = chat.options.tier;
        let carries_reasoning = includes(&request, INCLUDE_REASONING);
        let comparison = Comparison::new(&request, &shown, &sampling, &model, &history);
        let settings = settings(state, request, &sampling.scalars, tier, shown, text)?;
        let conversation = history;
        Ok(Self {
            chat,
            settings,
            comparison,
            model,
            conversation,
            called,
            carries_reasoning,
            ignored,
            adapter,
            arrival,
        })
    }
}

/// What shapes the prompt.
fn conversation(
    request: &ResponsesRequest,
    list: Vec<Tool>,
    history: &History,
    fields: &mut FieldReader,
) -> Result<Conversation, ApiError> {
    // Without tools, a choice that asks for no call is none.
    let choice = request.tool_choice.as_ref();
    let choice =
        choice.filter(|choice| !list.is_empty() || (*choice != "auto" && *choice != "none"));
    let effort = reasoning_effort(request.reasoning.as_ref(), fields)?;
    Ok(Conversation {
        messages: messages(request.instructions.as_deref(), history.items()),
        tools: Tools {
            choice: tools::tool_choice(choice, fields)?,
            single_call: request.parallel_tool_calls == Some(false),
            list,
        },
        template: TemplateOptions {
            source: None,
            variables: request.chat_template_kwargs.clone().unwrap_or_default(),
            documents: None,
            effort,
            thinking: request.enable_thinking,
            add_generation_prompt: true,
            continue_final_message: false,
            add_special_tokens: false,
        },
        names: &NAMES,
    })
}

fn check_unsupported(request: &ResponsesRequest, sampling: &SamplingBody) -> Result<(), ApiError> {
    let SamplingBody { own: fields, synonyms, .. } = sampling;
    let given = |value: &Option<Value>| match value {
        None => false,
        Some(value) => !value.as_array().is_some_and(Vec::is_empty),
    };
    let asks = [
        (given(&request.prompt), "prompt", "any; use input"),
        (given(&request.context_management), "context_management", "any"),
        (fields.n.is_some_and(|n| n != Int(1)), "n", "another number of answers than 1"),
        (fields.max_tokens.is_some(), "max_tokens", "any; use max_output_tokens"),
        (
            fields.max_completion_tokens.is_some(),
            "max_completion_tokens",
            "any; use max_output_tokens",
        ),
        (synonyms.n_predict.is_some(), N_PREDICT, "any; use max_output_tokens"),
        (synonyms.n_probs.is_some_and(|n| n != Int(0)), N_PROBS, "any; use top_logprobs"),
        (fields.response_format.is_some(), "response_format", "any; use text.format"),
        (fields.prompt_logprobs.is_some(), "prompt_logprobs", "any"),
        (fields.return_token_ids == Some(true), "return_token_ids", "true"),
    ];
    for (asked, name, what) in asks {
        if asked {
            return Err(ApiError::unsupported(name, &format!("the value {what}")));
        }
    }
    if request.background == Some(true) && request.store == Some(false) {
        let message = "background needs store to be true: the answer is read from there";
        return Err(ApiError::field("background", message));
    }
    if given(&request.conversation) && request.previous_response_id.is_some() {
        let message = "conversation and previous_response_id can't both be given";
        return Err(ApiError::field("conversation", message));
    }
    match request.truncation.as_deref() {
        None | Some("disabled") => Ok(()),
        Some("auto") => Err(ApiError::unsupported("truncation", "the value \"auto\"")),
        Some(other) => {
            let message = format!("truncation must be \"disabled\", got {other:?}");
            Err(ApiError::field("truncation", message))
        }
    }
}

/// Notes the fields that have no effect here, though the response may repeat them.
fn note_idle(request: &ResponsesRequest, fields: &mut FieldReader) {
    let options = request.stream_options.as_ref();
    let asks_usage = options.is_some_and(|options| options.include_usage.is_some());
    let asks_more = options.is_some_and(|options| options.continuous_usage_stats.is_some());
    for (given, name) in [
        // It counts the calls of tools that a server has; there are none.
        (request.max_tool_calls.is_some(), "max_tool_calls"),
        (request.user.is_some(), "user"),
        (request.safety_identifier.is_some(), "safety_identifier"),
        (request.prompt_cache_key.is_some(), "prompt_cache_key"),
        // Usage always comes with the last event.
        (asks_usage, "stream_options.include_usage"),
        (asks_more, "stream_options.continuous_usage_stats"),
    ] {
        if given {
            fields.ignore(name);
        }
    }
}

/// What went before, and the request's own items.
async fn history(
    state: &AppState,
    owner: &Owner,
    request: &ResponsesRequest,
    fields: &mut FieldReader,
) -> Result<History, ApiError> {
    let keeps = request.store == Some(true) || request.background == Some(true);
    if keeps {
        // Known before anything is computed.
        state.store.check().await?;
    }
    let history = match (&request.previous_response_id, &request.conversation) {
        (Some(id), _) => {
            let previous = state.responses.get(&owner.0, id).await?;
            previous.ok_or_else(|| ApiError::PreviousResponseNotFound(id.clone()))?.conversation()
        }
        (None, conversation) => match conversation_id(conversation.as_ref())? {
            Some(id) => History::default().with(Turn::new(all_items(state, owner, &id).await?)),
            None => History::default(),
        },
    };
    let nothing = Value::Array(Vec::new());
    let goes_on = history.items().next().is_some();
    let given = request.input.as_ref().or(goes_on.then_some(&nothing));
    let input = required(given, "", "input")?;
    let references = References::find(state, owner, Some(input)).await?;
    let items = ItemReader { references: &references, sees: state.sees(), fields }.read(input)?;
    if items.is_empty() && !goes_on {
        return Err(ApiError::field("input", "input must have at least one item"));
    }
    check_outputs(&history, &items)?;
    Ok(history.with(Turn::new(items)))
}

/// Whether the response is asked to include this.
fn includes(request: &ResponsesRequest, name: &str) -> bool {
    request.include.iter().flatten().any(|included| included == name)
}

/// How many alternatives to list beside each token, if logprobs are asked for.
fn logprobs(
    request: &ResponsesRequest,
    fields: &mut FieldReader,
    state: &AppState,
) -> Result<Option<u32>, ApiError> {
    let included = includes(request, INCLUDE_LOGPROBS);
    for (at, name) in request.include.iter().flatten().enumerate() {
        let path = format!("include[{at}]");
        match name.as_str() {
            INCLUDE_LOGPROBS | INCLUDE_REASONING => {}
            name if INCLUDABLES.contains(&name) => fields.ignore(path),
            _ => {
                let message = format!("{path} must be something to include, got {name:?}");
                return Err(ApiError::field(path, message));
            }
        }
    }
    let top = top_logprobs("top_logprobs", request.top_logprobs, state)?;
    if !included && top.is_some_and(|top| top > 0) {
        let message = format!("top_logprobs needs include to name {INCLUDE_LOGPROBS:?}");
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(included.then(|| top.unwrap_or(0)))
}

fn reasoning_effort(
    reasoning: Option<&ReasoningField>,
    fields: &mut FieldReader,
) -> Result<Option<String>, ApiError> {
    let Some(reasoning) = reasoning else { return Ok(None) };
    for (name, value, only) in
        [("mode", &reasoning.mode, "standard"), ("context", &reasoning.context, "auto")]
    {
        if let Some(value) = value.as_ref().filter(|value| **value != only) {
            let path = format!("reasoning.{name}");
            return Err(ApiError::unsupported(path, &format!("the value {value}")));
        }
    }
    let summaries =
        [("summary", &reasoning.summary), ("generate_summary", &reasoning.generate_summary)];
    for (name, value) in summaries {
        let Some(value) = value else { continue };
        let path = format!("reasoning.{name}");
        // The reasoning itself is in the answer.
        if !matches!(value.as_str(), Some("auto" | "concise" | "detailed")) {
            let message = format!("{path} must be one of auto, concise, detailed, got {value}");
            return Err(ApiError::field(path, message));
        }
        fields.ignore(path);
    }
    effort("reasoning.effort", reasoning.effort.as_ref())
}

/// What the text of the answer must be like, and how the response repeats it.
fn text(
    text: Option<&TextField>,
    fields: &mut FieldReader,
) -> Result<(Option<Demand>, TextSettings), ApiError> {
    const FORMAT: &str = "text.format";
    let plain = json!({"type": "text"});
    let verbosity = text.and_then(|text| text.verbosity.as_ref());
    // A wish that no template knows of; the answer is as long as the model makes it.
    match verbosity {
        Some(word) if ["low", "high"].iter().any(|known| word == known) => {
            fields.ignore("text.verbosity");
        }
        Some(other) if other != "medium" => {
            let message = format!("text.verbosity must be one of low, medium, high, got {other}");
            return Err(ApiError::field("text.verbosity", message));
        }
        _ => {}
    }
    let format = text.and_then(|text| text.format.as_ref()).unwrap_or(&plain);
    let demand = match text_member(format, "type") {
        Some("text") => {
            fields.variant::<PlainFormat>(format, FORMAT)?;
            None
        }
        Some("json_object") => {
            fields.variant::<PlainFormat>(format, FORMAT)?;
            Some(Demand::json_object(FORMAT))
        }
        Some("json_schema") => {
            const SCHEMA: &str = "text.format.schema";
            let JsonSchemaFormat { name, schema } = fields.variant(format, FORMAT)?;
            let schema = schema.ok_or_else(|| {
                ApiError::field(SCHEMA, format!("{SCHEMA} must be a JSON schema"))
            })?;
            required(name.filter(|name| !name.is_empty()), FORMAT, "name")?;
            Some(Demand::json_schema(&Value::Object(schema), SCHEMA)?)
        }
        kind => {
            let shown = kind.unwrap_or("nothing");
            let what = "text.format.type must be one of text, json_object, json_schema";
            return Err(ApiError::field("text.format.type", format!("{what}, got {shown:?}")));
        }
    };
    Ok((demand, TextSettings { format: format.clone(), verbosity: "medium" }))
}
