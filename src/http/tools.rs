//! The tools of a request: what the template sees of them, which may or must be called, and who
//! reads the answer.

use serde_json::Value;

use super::error::ApiError;
use super::state::AppState;
use super::types::chat::ChatCompletionRequest;
use crate::text::tool_calls::{self, Functions};

/// Tools as the request asks for them, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSetup {
    /// For the template; empty without tools.
    pub(crate) definitions: Vec<Value>,
    /// Whose calls to look for in the answer.
    pub(crate) family: Option<&'static str>,
    /// What may be called.
    pub(crate) callable: Vec<Function>,
    /// Whether there has to be a call.
    pub(crate) required: bool,
    /// Whether the choice leaves out some of the tools.
    restricted: bool,
    /// At most one call.
    pub(crate) single_call: bool,
}

/// A tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// A JSON schema, or null.
    pub(crate) parameters: Value,
    /// Whether arguments have to follow the schema.
    pub(crate) strict: bool,
}

/// Which tools the answer may use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ToolChoice {
    Off,
    Auto,
    Required,
    /// One of these; whether one has to be.
    Allowed(Vec<String>, bool),
}

impl ToolSetup {
    /// Checks `tools`, `tool_choice` and `parallel_tool_calls`.
    pub(crate) fn new(state: &AppState, request: &ChatCompletionRequest) -> Result<Self, ApiError> {
        let Some(definitions) = &request.tools else {
            return without_tools(state, request);
        };
        if definitions.is_empty() {
            return Err(ApiError::field("tools", "tools must not be empty; leave the field out"));
        }
        let mut callable = Vec::with_capacity(definitions.len());
        for (index, tool) in definitions.iter().enumerate() {
            callable.push(Function::new(tool, &format!("tools[{index}]"))?);
        }
        let choice = ToolChoice::new(request.tool_choice.as_ref())?;
        let knows_tools =
            state.chat_template(true).is_some_and(|template| template.source().contains("tools"));
        if !knows_tools {
            return Err(ApiError::unsupported("tools", "a model without tools"));
        }
        let family = match choice {
            ToolChoice::Off => state.families(true).always(),
            _ => Some(state.families(true).tools.ok_or_else(|| {
                ApiError::unsupported("tools", "this model's format of tool calls")
            })?),
        };
        let all = callable.len();
        if let ToolChoice::Allowed(names, _) = &choice {
            for name in names {
                if !callable.iter().any(|function| function.name == *name) {
                    let message = format!("tool_choice names {name:?}, which is not among tools");
                    return Err(ApiError::field("tool_choice", message));
                }
            }
            callable.retain(|function| names.contains(&function.name));
        }
        Ok(Self {
            definitions: definitions.clone(),
            family,
            restricted: callable.len() < all,
            required: matches!(choice, ToolChoice::Required | ToolChoice::Allowed(_, true)),
            callable: if choice == ToolChoice::Off { Vec::new() } else { callable },
            single_call: request.parallel_tool_calls == Some(false),
        })
    }

    /// What the parser has to know of the functions.
    pub(crate) fn functions(&self) -> Functions {
        let functions = self.callable.iter();
        Functions::new(
            functions.map(|function| (function.name.clone(), function.parameters.clone())),
        )
    }

    /// Whether only a grammar can keep the answer to what was asked for.
    pub(crate) fn needs_grammar(&self) -> bool {
        !self.callable.is_empty()
            && (self.required
                || self.restricted
                || self.callable.iter().any(|function| function.strict))
    }
}

impl Function {
    fn new(tool: &Value, path: &str) -> Result<Self, ApiError> {
        let kind = tool.get("type").and_then(Value::as_str);
        if kind != Some("function") {
            let shown = kind.unwrap_or("nothing");
            let message = format!("{path}.type must be \"function\", got {shown:?}");
            return Err(ApiError::field(format!("{path}.type"), message));
        }
        let function = tool.get("function");
        let member = |key: &str| function.and_then(|function| function.get(key));
        let name = member("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            let param = format!("{path}.function.name");
            ApiError::field(param.clone(), format!("{param} is required"))
        })?;
        if member("description").is_some_and(|text| !text.is_string() && !text.is_null()) {
            let param = format!("{path}.function.description");
            return Err(ApiError::field(param.clone(), format!("{param} must be a string")));
        }
        let parameters = member("parameters").cloned().unwrap_or_default();
        if !parameters.is_object() && !parameters.is_null() {
            let param = format!("{path}.function.parameters");
            return Err(ApiError::field(param.clone(), format!("{param} must be a JSON schema")));
        }
        let strict = match member("strict") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(strict)) => *strict,
            Some(_) => {
                let param = format!("{path}.function.strict");
                return Err(ApiError::field(param.clone(), format!("{param} must be a bool")));
            }
        };
        Ok(Self { name: name.to_owned(), parameters, strict })
    }
}

impl ToolChoice {
    fn new(choice: Option<&Value>) -> Result<Self, ApiError> {
        let Some(choice) = choice else { return Ok(Self::Auto) };
        let invalid = || {
            let shown: String = choice.to_string().chars().take(80).collect();
            let message = format!(
                "tool_choice must be \"none\", \"auto\", \"required\", a function or \
                 allowed_tools, got {shown}"
            );
            ApiError::field("tool_choice", message)
        };
        match (choice.as_str(), choice.get("type").and_then(Value::as_str)) {
            (Some("none"), _) => Ok(Self::Off),
            (Some("auto"), _) => Ok(Self::Auto),
            (Some("required"), _) => Ok(Self::Required),
            (None, Some("function")) => {
                let name = function_name(choice).ok_or_else(invalid)?;
                Ok(Self::Allowed(vec![name], true))
            }
            (None, Some("allowed_tools")) => {
                // In an object of its own as chat completions have it, or beside the type.
                let allowed = choice.get("allowed_tools").unwrap_or(choice);
                let required = match allowed.get("mode").and_then(Value::as_str) {
                    None | Some("auto") => false,
                    Some("required") => true,
                    Some(_) => return Err(invalid()),
                };
                let tools = allowed.get("tools").and_then(Value::as_array).ok_or_else(invalid)?;
                let names: Option<Vec<String>> = tools.iter().map(function_name).collect();
                let names = names.filter(|names| !names.is_empty()).ok_or_else(invalid)?;
                Ok(Self::Allowed(names, required))
            }
            _ => Err(invalid()),
        }
    }
}

/// The name in `{"type": "function", "function": {"name": ...}}`, or in the flat shape.
fn function_name(tool: &Value) -> Option<String> {
    let holder = tool.get("function").unwrap_or(tool);
    holder.get("name")?.as_str().map(str::to_owned)
}

fn without_tools(state: &AppState, request: &ChatCompletionRequest) -> Result<ToolSetup, ApiError> {
    match &request.tool_choice {
        Some(choice) if choice != "none" => {
            Err(ApiError::field("tool_choice", "tool_choice needs tools"))
        }
        _ => Ok(ToolSetup { family: state.families(false).always(), ..ToolSetup::default() }),
    }
}

/// The families of models whose markup a template shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) tools: Option<&'static str>,
    pub(crate) reasoning: Option<&'static str>,
}

impl Families {
    /// The family whose answers need to be parsed even without tools.
    fn always(self) -> Option<&'static str> {
        self.tools.filter(|name| tool_calls::always(name))
    }
}
