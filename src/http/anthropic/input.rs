//! A Messages request to the one that all protocols share, under Anthropic's field names.

use serde_json::Value;

use super::conversation::messages;
use super::diagnostics::Comparison;
use super::toolbox::Toolbox;
use super::tools::tool_choice;
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::generate::chat_request::{
    ChatRequest, Conversation, ReasoningOptions, TemplateOptions, Tools,
};
use crate::http::generate::demand::Demand;
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::{GenerationOptions, OwnOptions};
use crate::http::generate::stop_strings::stop_strings;
use crate::http::request::arrival::Arrival;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, FieldReader, Ignored, text_member};
use crate::http::request::rules::{COMMON, Rules, Treatment, is_empty, is_text};
use crate::http::state::AppState;
use crate::http::wire::bounds::MESSAGE_EFFORTS;
use crate::http::wire::messages::{MessagesRequest, OutputConfig, OutputFormat, ThinkingField};
use crate::http::wire::number::{integer, to_usize, within};
use crate::http::wire::sampling::CommonFields;
use crate::http::wire::scalars::ScalarFields;

/// What the Messages API calls the fields of all protocols.
const NAMES: FieldNames = FieldNames {
    prompt: "messages",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking.budget_tokens",
};

/// Fields that can't change the answer here, or would.
const MESSAGE_RULES: Rules = &[
    ("*.allowed_callers", Treatment::Ignored),
    ("*.cache_control", Treatment::Ignored),
    ("*.caller", Treatment::Ignored),
    ("*.citations", Treatment::Ignored),
    ("*.eager_input_streaming", Treatment::Ignored),
    ("*.input_examples", Treatment::Ignored),
    ("*.toolset_name", Treatment::Ignored),
    ("cache_control", Treatment::Ignored),
    // A name alone says which container to use again, and nothing here runs in one.
    ("container", Treatment::IgnoredIf(is_text)),
    ("inference_geo", Treatment::Ignored),
    ("mcp_servers", Treatment::Unsupported(is_empty)),
    ("speed", Treatment::Ignored),
    ("user_profile_id", Treatment::Ignored),
];

/// The body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`.
#[derive(Debug)]
pub(crate) struct MessagesBody {
    pub(super) request: MessagesRequest,
    common: CommonFields,
    scalars: ScalarFields,
}

impl RequestBody for MessagesBody {
    const RULES: &'static [Rules] = &[COMMON, MESSAGE_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { request: body.take()?, common: body.take()?, scalars: body.take()? })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// A request in the words of all protocols, and what its answer is written with.
pub(super) struct Converted {
    pub(super) chat: ChatRequest,
    pub(super) model: String,
    /// Present if the request asks why its prompt was not in the cache.
    pub(super) comparison: Option<Comparison>,
    /// Whether reasoning is carried along without being shown.
    pub(super) omits_reasoning: bool,
    pub(super) ignored: Ignored,
    pub(super) adapter: Option<Adapter>,
    pub(super) arrival: Arrival,
}

impl Converted {
    pub(super) fn new(
        state: &AppState,
        extracted: Extracted<MessagesBody>,
    ) -> Result<Self, ApiError> {
        let Extracted { body, model, adapter, arrival, mut fields } = extracted;
        let MessagesBody { request, common, scalars } = body;
        if request.thread.is_some() {
            return Err(ApiError::ThreadUnsupported);
        }
        let thinking = Thinking::new(request.thinking.as_ref())?;
        let conversation = conversation(&request, thinking.enabled, state.sees(), &mut fields)?;
        let comparison = Comparison::new(&request, &model);
        // A model that does no reasoning keeps to any budget of it.
        let reasons = state.families(!conversation.tools.list.is_empty()).reasoning.is_some();
        if thinking.budget.is_some() && !reasons {
            fields.ignore(NAMES.reasoning_budget);
        }
        let max_tokens = integer(NAMES.max_tokens, request.max_tokens, 0, i64::MAX)?;
        // Anthropic's range is half of what the sampler takes.
        within("temperature", request.temperature, 0.0, 1.0)?;
        let own = OwnOptions {
            demand: demand(&request, &mut fields)?,
            stop_strings: stop_strings("stop_sequences", request.stop_sequences.as_deref())?,
            max_tokens: max_tokens.map(to_usize),
            ..OwnOptions::of(&NAMES)
        };
        let chat = ChatRequest {
            options: GenerationOptions::new(own, &scalars, &common, &arrival, state)?,
            reasoning: ReasoningOptions {
                separate: true,
                hidden: false,
                budget: thinking.budget.filter(|_| reasons),
            },
            streams: request.stream == Some(true),
            conversation,
        };
        let ignored = fields.finish(state.config.strict)?;
        let omits_reasoning = thinking.omitted;
        Ok(Self { chat, model, comparison, omits_reasoning, ignored, adapter, arrival })
    }
}

/// What shapes the prompt; `thinking` is whether the model is asked to reason, `sees` whether it sees
/// pictures.
fn conversation(
    request: &MessagesRequest,
    thinking: Option<bool>,
    sees: bool,
    fields: &mut FieldReader,
) -> Result<Conversation, ApiError> {
    let mut tools = Toolbox::new(request.tools.as_deref().unwrap_or_default(), fields)?;
    let (messages, continues) = messages(request, &mut tools, sees, fields)?;
    let choice = request.tool_choice.as_ref();
    let list = tools.into_list(choice.and_then(|choice| choice.name.as_deref()));
    Ok(Conversation {
        messages,
        tools: Tools {
            list,
            choice: choice.map(tool_choice).transpose()?,
            single_call: choice.and_then(|choice| choice.disable_parallel_tool_use) == Some(true),
        },
        template: TemplateOptions {
            source: None,
            variables: request.chat_template_kwargs.clone().unwrap_or_default(),
            documents: None,
            effort: effort(request.output_config.as_ref())?,
            thinking,
            add_generation_prompt: !continues,
            continue_final_message: continues,
            add_special_tokens: false,
        },
        names: &NAMES,
    })
}

/// The schema that the answer keeps to, under either of the names it has had.
fn demand(request: &MessagesRequest, fields: &mut FieldReader) -> Result<Option<Demand>, ApiError> {
    let format = request.output_config.as_ref().and_then(|config| config.format.as_ref());
    let (path, param, format) = match (format, &request.output_format) {
        (Some(_), Some(_)) => {
            let message = "output_format and output_config.format can't both be given";
            return Err(ApiError::field("output_format", message));
        }
        (Some(format), None) => ("output_config.format", "output_config.format.schema", format),
        (None, Some(format)) => ("output_format", "output_format.schema", format),
        (None, None) => return Ok(None),
    };
    let kind = text_member(format, "type");
    if kind != Some("json_schema") {
        let kind = kind.unwrap_or("nothing");
        let message = format!("{path}.type must be json_schema, got {kind:?}");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let OutputFormat { schema } = fields.variant(format, path)?;
    let schema = schema.filter(Value::is_object);
    let schema =
        schema.ok_or_else(|| ApiError::field(param, format!("{param} must be a JSON schema")))?;
    Demand::json_schema(&schema, param).map(Some)
}

fn effort(config: Option<&OutputConfig>) -> Result<Option<String>, ApiError> {
    match config.and_then(|config| config.effort.as_ref()) {
        Some(effort) if !MESSAGE_EFFORTS.contains(&effort.as_str()) => {
            let param = "output_config.effort";
            let words = MESSAGE_EFFORTS.join(", ");
            let message = format!("{param} must be one of {words}, got {effort:?}");
            Err(ApiError::field(param, message))
        }
        effort => Ok(effort.cloned()),
    }
}

/// What a request says about reasoning.
#[derive(Default)]
struct Thinking {
    /// As the template is told, if at all.
    enabled: Option<bool>,
    /// Whether the answer carries reasoning without showing it.
    omitted: bool,
    /// Most tokens of reasoning.
    budget: Option<usize>,
}

impl Thinking {
    fn new(field: Option<&ThinkingField>) -> Result<Self, ApiError> {
        let Some(field) = field else { return Ok(Self::default()) };
        let invalid = |name: &str, words: &str, got: &str| {
            let param = format!("thinking.{name}");
            let message = format!("{param} must be one of {words}, got {got:?}");
            Err(ApiError::field(param, message))
        };
        let enabled = match field.kind.as_deref() {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            Some("adaptive" | "between_tools") => None,
            kind => {
                let kind = kind.unwrap_or("nothing");
                return invalid("type", "enabled, disabled, adaptive, between_tools", kind);
            }
        };
        let omitted = match field.display.as_deref() {
            // It is shown as it comes, whole.
            None | Some("summarized" | "updates") => false,
            Some("omitted") => true,
            Some(display) => return invalid("display", "summarized, updates, omitted", display),
        };
        let budget = integer(NAMES.reasoning_budget, field.budget_tokens, 1, i64::MAX)?;
        Ok(Self { enabled, omitted, budget: budget.map(to_usize) })
    }
}
