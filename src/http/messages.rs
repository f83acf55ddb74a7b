//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages API.
//!
//! A request is checked under its own field names and brought into the shape of a chat completion;
//! from there it goes the way of all requests that chat. Fields of the others' APIs that have no
//! counterpart here (`n`, `logprobs`, `stop`) are unknown fields.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::body::{JsonBody, field_names};
use super::chat_plan::ChatPlan;
use super::error::ApiError;
use super::messages_input::{conversation, note_rest, read};
use super::messages_writer::MessagesWriter;
use super::observe::RequestId;
use super::request::{self, Arrival};
use super::state::AppState;
use super::types::chat::ChatCompletionRequest;
use super::types::fields::IgnoredFields;
use super::types::messages::{
    CountedTokens, MessagesRequest, OutputConfig, SamplingExtensions, ThinkingField,
    ToolChoiceField, ToolDefinition,
};
use super::types::number::Int;
use super::types::sampling::SamplingFields;
use super::types::stop::{MAX_STOP_STRINGS, StopField};

/// How much effort a model can be asked for.
pub(crate) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// `POST /v1/messages`.
pub(crate) async fn messages(
    State(state): State<AppState>,
    Extension(RequestId(id)): Extension<RequestId>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let parsed = Parsed::new(&state, &body)?;
    let max_tokens = parsed.request.max_tokens;
    let Int(max_tokens) =
        max_tokens.ok_or_else(|| ApiError::field("max_tokens", "max_tokens is required"))?;
    let streams = parsed.request.stream == Some(true);
    let model = parsed.request.model.clone().unwrap_or_default();
    let (plan, ignored) = parsed.plan(&state, &arrival)?;
    let chat = plan.prepare(&state).await.map_err(renamed)?;
    let request_id = id.to_str().unwrap_or_default().to_owned();
    let max_tokens = usize::try_from(max_tokens).unwrap_or_default();
    let writer = MessagesWriter::new(model, request_id, max_tokens);
    chat.answer(&state, writer, streams, &ignored).await
}

/// `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(
    State(state): State<AppState>,
    arrival: Arrival,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let (plan, ignored) = Parsed::new(&state, &body)?.plan(&state, &arrival)?;
    let prompt = plan.render(&state).await?;
    let answer = axum::Json(CountedTokens { input_tokens: prompt.token_ids.len() });
    Ok(request::with_ignored(answer.into_response(), &ignored))
}

/// A body whose fields have the right types.
struct Parsed {
    request: MessagesRequest,
    extensions: SamplingExtensions,
    ignored: IgnoredFields,
}

impl Parsed {
    fn new(state: &AppState, body: &JsonBody) -> Result<Self, ApiError> {
        let request: MessagesRequest = body.read()?;
        let extensions: SamplingExtensions = body.read()?;
        state.check_model(request.model.as_deref())?;
        let known = [field_names::<MessagesRequest>(), field_names::<SamplingExtensions>()];
        let ignored = IgnoredFields::judge(body.unknown(&known))?;
        Ok(Self { request, extensions, ignored })
    }

    /// The request as the other endpoints know it.
    fn plan(
        self,
        state: &AppState,
        arrival: &Arrival,
    ) -> Result<(ChatPlan, IgnoredFields), ApiError> {
        let Self { request, extensions, mut ignored } = self;
        note_top_level(&request, &mut ignored)?;
        let thinking = Thinking::new(request.thinking.as_ref(), &mut ignored)?;
        let chat = chat_request(&request, &extensions, &thinking, &mut ignored)?;
        // A model that has no thoughts keeps to any budget.
        let thinks = state.families(chat.tools.is_some()).reasoning.is_some();
        let thinking_token_budget = thinking.budget.filter(|_| thinks);
        if thinking.budget.is_some() && !thinks {
            ignored.add("thinking.budget_tokens".to_owned());
        }
        let fields = sampling_fields(request, extensions)?;
        let fields = SamplingFields { thinking_token_budget, ..fields };
        let plan = ChatPlan::new(state, arrival, &chat, fields, &mut ignored).map_err(renamed)?;
        Ok((plan, ignored))
    }
}

fn chat_request(
    request: &MessagesRequest,
    extensions: &SamplingExtensions,
    thinking: &Thinking,
    ignored: &mut IgnoredFields,
) -> Result<ChatCompletionRequest, ApiError> {
    let (messages, continues) = conversation(request, ignored)?;
    let tools = tools(request.tools.as_deref().unwrap_or_default(), ignored)?;
    let choice = request.tool_choice.as_ref();
    let parallel = choice.and_then(|choice| choice.disable_parallel_tool_use).map(|off| !off);
    Ok(ChatCompletionRequest {
        model: request.model.clone(),
        messages: Some(messages),
        tools,
        tool_choice: choice.map(|choice| tool_choice(choice, ignored)).transpose()?,
        parallel_tool_calls: parallel,
        stream: request.stream,
        reasoning_effort: effort(request.output_config.as_ref(), ignored)?,
        include_reasoning: thinking.hidden.then_some(false),
        enable_thinking: thinking.enabled,
        chat_template_kwargs: extensions.chat_template_kwargs.clone(),
        continue_final_message: Some(continues),
        ..ChatCompletionRequest::default()
    })
}

fn sampling_fields(
    request: MessagesRequest,
    extensions: SamplingExtensions,
) -> Result<SamplingFields, ApiError> {
    if let Some(value) = request.temperature.filter(|value| !(0.0..=1.0).contains(value)) {
        let message = format!("temperature must be in [0, 1], got {value}");
        return Err(ApiError::field("temperature", message));
    }
    Ok(SamplingFields {
        response_format: response_format(&request)?,
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: extensions.min_p,
        repetition_penalty: extensions.repetition_penalty,
        frequency_penalty: extensions.frequency_penalty,
        presence_penalty: extensions.presence_penalty,
        logit_bias: extensions.logit_bias,
        seed: extensions.seed,
        stop: stop_sequences(request.stop_sequences)?,
        stop_token_ids: extensions.stop_token_ids,
        skip_special_tokens: extensions.skip_special_tokens,
        min_tokens: extensions.min_tokens,
        ignore_eos: extensions.ignore_eos,
        max_tokens: request.max_tokens,
        priority: extensions.priority,
        cache_salt: extensions.cache_salt,
        deadline_ms: extensions.deadline_ms,
        ..SamplingFields::default()
    })
}

fn stop_sequences(sequences: Option<Vec<String>>) -> Result<Option<StopField>, ApiError> {
    let Some(sequences) = sequences else { return Ok(None) };
    let invalid = |message: String| Err(ApiError::field("stop_sequences", message));
    if sequences.len() > MAX_STOP_STRINGS {
        let given = sequences.len();
        return invalid(format!(
            "stop_sequences must have at most {MAX_STOP_STRINGS} strings, got {given}"
        ));
    }
    if sequences.iter().any(String::is_empty) {
        return invalid("stop_sequences must not contain an empty string".to_owned());
    }
    Ok(Some(StopField(sequences)))
}

/// Refuses what isn't here, and notes what has no effect.
fn note_top_level(request: &MessagesRequest, ignored: &mut IgnoredFields) -> Result<(), ApiError> {
    if request.mcp_servers.as_ref().is_some_and(|servers| !servers.is_empty()) {
        return Err(ApiError::unsupported("mcp_servers", "calling tools on the server's side"));
    }
    // A name alone says which container to use again, and nothing here runs in one.
    if request.container.as_ref().is_some_and(|container| !container.is_string()) {
        return Err(ApiError::unsupported("container", "a container with skills"));
    }
    for (name, value) in [
        ("container", &request.container),
        ("cache_control", &request.cache_control),
        ("diagnostics", &request.diagnostics),
        ("inference_geo", &request.inference_geo),
        ("speed", &request.speed),
        ("user_profile_id", &request.user_profile_id),
    ] {
        if value.is_some() {
            ignored.add(name.to_owned());
        }
    }
    Ok(())
}

/// The schema that the answer keeps to, under either of the names it has had.
fn response_format(request: &MessagesRequest) -> Result<Option<Value>, ApiError> {
    let format = request.output_config.as_ref().and_then(|config| config.format.as_ref());
    let (param, format) = match (format, &request.output_format) {
        (Some(_), Some(_)) => {
            let message = "output_format and output_config.format can't both be given";
            return Err(ApiError::field("output_format", message));
        }
        (Some(format), None) => ("output_config.format", format),
        (None, Some(format)) => ("output_format", format),
        (None, None) => return Ok(None),
    };
    let kind = format.get("type").and_then(Value::as_str);
    let schema = format.get("schema").filter(|schema| schema.is_object());
    match (kind, schema) {
        (Some("json_schema"), Some(schema)) => {
            let named = json!({"name": "answer", "schema": schema});
            Ok(Some(json!({"type": "json_schema", "json_schema": named})))
        }
        (Some("json_schema"), None) => {
            let param = format!("{param}.schema");
            Err(ApiError::field(param.clone(), format!("{param} must be a JSON schema")))
        }
        (kind, _) => {
            let kind = kind.unwrap_or("nothing");
            let message = format!("{param}.type must be json_schema, got {kind:?}");
            Err(ApiError::field(format!("{param}.type"), message))
        }
    }
}

/// An error of what all endpoints share, with the field's name here.
fn renamed(error: ApiError) -> ApiError {
    const NAMES: [(&str, &str); 2] = [
        ("response_format.json_schema.schema", "output_config.format.schema"),
        ("response_format", "output_config.format"),
    ];
    match error {
        ApiError::Invalid { message, param, code } => {
            let rename = |text: String| {
                NAMES.iter().fold(text, |text, (shared, own)| text.replace(shared, own))
            };
            ApiError::Invalid { message: rename(message), param: param.map(rename), code }
        }
        error => error,
    }
}

fn effort(
    config: Option<&OutputConfig>,
    ignored: &mut IgnoredFields,
) -> Result<Option<String>, ApiError> {
    let Some(config) = config else { return Ok(None) };
    note_rest(&config.unknown, "output_config", ignored);
    match &config.effort {
        Some(effort) if !EFFORTS.contains(&effort.as_str()) => {
            let param = "output_config.effort";
            let message = format!("{param} must be one of {}, got {effort:?}", EFFORTS.join(", "));
            Err(ApiError::field(param, message))
        }
        effort => Ok(effort.clone()),
    }
}

/// What a request says about thoughts.
#[derive(Default)]
struct Thinking {
    /// As the template is told, if at all.
    enabled: Option<bool>,
    /// Whether the answer leaves thoughts out.
    hidden: bool,
    /// Most tokens of thoughts.
    budget: Option<Int>,
}

impl Thinking {
    fn new(field: Option<&ThinkingField>, ignored: &mut IgnoredFields) -> Result<Self, ApiError> {
        let Some(field) = field else { return Ok(Self::default()) };
        note_rest(&field.unknown, "thinking", ignored);
        let enabled = match field.kind.as_deref() {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            Some("adaptive") => None,
            kind => {
                let kind = kind.unwrap_or("nothing");
                let message = format!(
                    "thinking.type must be one of enabled, disabled, adaptive, got {kind:?}"
                );
                return Err(ApiError::field("thinking.type", message));
            }
        };
        if let Some(Int(budget)) = field.budget_tokens.filter(|Int(budget)| *budget < 1) {
            let message = format!("thinking.budget_tokens must be at least 1, got {budget}");
            return Err(ApiError::field("thinking.budget_tokens", message));
        }
        let hidden = match field.display.as_deref() {
            None | Some("summarized") => false,
            Some("omitted") => true,
            Some(display) => {
                let message =
                    format!("thinking.display must be one of summarized, omitted, got {display:?}");
                return Err(ApiError::field("thinking.display", message));
            }
        };
        Ok(Self { enabled, hidden, budget: field.budget_tokens })
    }
}

/// The tools as functions; none is the same as an empty list.
fn tools(tools: &[Value], ignored: &mut IgnoredFields) -> Result<Option<Vec<Value>>, ApiError> {
    let mut functions = Vec::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        functions.push(function(tool, &format!("tools[{index}]"), ignored)?);
    }
    Ok(Some(functions).filter(|functions| !functions.is_empty()))
}

fn function(tool: &Value, path: &str, ignored: &mut IgnoredFields) -> Result<Value, ApiError> {
    if let Some(kind) = tool.get("type").filter(|kind| !kind.is_null() && *kind != "custom") {
        let message = format!("{path}: tools of the type {kind} are not supported, only custom");
        let param = Some(format!("{path}.type"));
        return Err(ApiError::Invalid { message, param, code: Some("unsupported_value") });
    }
    let ToolDefinition { name, description, input_schema, strict, rest } = read(tool, path)?;
    note_rest(&rest, path, ignored);
    if name.is_empty() {
        let param = format!("{path}.name");
        return Err(ApiError::field(param.clone(), format!("{param} must not be empty")));
    }
    let mut function = json!({"name": name});
    if let Some(description) = description {
        function["description"] = Value::String(description);
    }
    function["parameters"] = Value::Object(input_schema);
    if let Some(strict) = strict {
        function["strict"] = Value::Bool(strict);
    }
    Ok(json!({"type": "function", "function": function}))
}

fn tool_choice(choice: &ToolChoiceField, ignored: &mut IgnoredFields) -> Result<Value, ApiError> {
    note_rest(&choice.unknown, "tool_choice", ignored);
    match (choice.kind.as_deref(), &choice.name) {
        (Some("auto"), _) => Ok(json!("auto")),
        (Some("any"), _) => Ok(json!("required")),
        (Some("none"), _) => Ok(json!("none")),
        (Some("tool"), Some(name)) => Ok(json!({"type": "function", "function": {"name": name}})),
        (Some("tool"), None) => {
            Err(ApiError::field("tool_choice.name", "tool_choice.name is required"))
        }
        (kind, _) => {
            let kind = kind.unwrap_or("nothing");
            let message =
                format!("tool_choice.type must be one of auto, any, tool, none, got {kind:?}");
            Err(ApiError::field("tool_choice.type", message))
        }
    }
}
