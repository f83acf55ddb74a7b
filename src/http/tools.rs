//! The tools of a chat request: what the template sees of them, and who reads the answer.

use serde_json::Value;

use super::error::ApiError;
use super::state::AppState;
use super::types::chat::ChatCompletionRequest;
use crate::text::tool_calls;

/// Tools as the request asks for them, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSetup {
    /// For the template; empty without tools.
    pub(crate) definitions: Vec<Value>,
    /// Whose calls to look for in the answer.
    pub(crate) family: Option<&'static str>,
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
        let template =
            template.ok_or_else(|| ApiError::unsupported("tools", "a model without tools"))?;
        let family = if wants_calls {
            let family = tool_calls::detect(template.source());
            Some(family.ok_or_else(|| {
                ApiError::unsupported("tools", "this model's format of tool calls")
            })?)
        } else {
            None
        };
        Ok(Self {
            definitions: definitions.clone(),
            family,
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
