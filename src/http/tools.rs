//! The tools of a chat request: what the template sees of them, and who reads the answer.

use serde_json::Value;

use super::error::ApiError;
use super::state::AppState;
use super::types::chat::ChatCompletionRequest;

/// A piece of an answer, once it is known what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// Text for the reader.
    Content(String),
    /// A call begins.
    CallBegin {
        /// Which call, from 0.
        index: usize,
        /// The function.
        name: String,
    },
    /// A call goes on.
    Arguments {
        /// Which call.
        index: usize,
        /// More JSON.
        arguments: String,
    },
}

/// Finds tool calls in an answer while it is being written.
pub trait ToolCallParser: Send + std::fmt::Debug {
    /// Takes more text and tells what is certain.
    fn push(&mut self, text: &str) -> Vec<ToolEvent>;
    /// Tells what was held back.
    fn finish(&mut self) -> Vec<ToolEvent>;
}

/// Tools as the request asks for them, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSetup {
    /// For the template; empty without tools.
    pub(crate) definitions: Vec<Value>,
    /// At most one call.
    pub(crate) single_call: bool,
}

impl ToolSetup {
    /// Checks `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(crate) fn new(state: &AppState, request: &ChatCompletionRequest) -> Result<Self, ApiError> {
        let Some(definitions) = &request.tools else {
            return without_tools(request);
        };
        if definitions.is_empty() {
            return Err(ApiError::field("tools", "tools must not be empty; leave the field out"));
        }
        for (index, tool) in definitions.iter().enumerate() {
            check_tool(tool, &format!("tools[{index}]"))?;
        }
        let wants_calls = wants_calls(request.tool_choice.as_ref())?;
        let template =
            state.chat_template(true).filter(|template| template.source().contains("tools"));
        if template.is_none() {
            return Err(ApiError::unsupported("tools", "a model without tools"));
        }
        if wants_calls {
            return Err(ApiError::unsupported("tools", "this model's format of tool calls"));
        }
        Ok(Self {
            definitions: definitions.clone(),
            single_call: request.parallel_tool_calls == Some(false),
        })
    }
}

fn without_tools(request: &ChatCompletionRequest) -> Result<ToolSetup, ApiError> {
    match &request.tool_choice {
        Some(choice) if choice != "none" => {
            Err(ApiError::field("tool_choice", "tool_choice needs tools"))
        }
        _ => Ok(ToolSetup::default()),
    }
}

fn wants_calls(choice: Option<&Value>) -> Result<bool, ApiError> {
    match choice {
        None => Ok(true),
        Some(Value::String(mode)) if mode == "auto" => Ok(true),
        Some(Value::String(mode)) if mode == "none" => Ok(false),
        Some(choice) => {
            let shown: String = choice.to_string().chars().take(80).collect();
            Err(ApiError::unsupported("tool_choice", &format!("the value {shown}")))
        }
    }
}

fn check_tool(tool: &Value, path: &str) -> Result<(), ApiError> {
    let kind = tool.get("type").and_then(Value::as_str);
    if kind != Some("function") {
        let shown = kind.unwrap_or("nothing");
        let message = format!("{path}.type must be \"function\", got {shown:?}");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let function = tool.get("function");
    let name = function.and_then(|function| function.get("name")).and_then(Value::as_str);
    if name.is_none_or(str::is_empty) {
        let param = format!("{path}.function.name");
        return Err(ApiError::field(param.clone(), format!("{param} is required")));
    }
    let member = |key: &str| function.and_then(|function| function.get(key));
    if member("strict") == Some(&Value::Bool(true)) {
        return Err(ApiError::unsupported(format!("{path}.function.strict"), "a strict function"));
    }
    if member("parameters").is_some_and(|schema| !schema.is_object() && !schema.is_null()) {
        let param = format!("{path}.function.parameters");
        return Err(ApiError::field(param.clone(), format!("{param} must be a JSON schema")));
    }
    Ok(())
}
