//! `tools` and `tool_choice`.

use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::generate::chat_request::{Function, Tool, ToolChoice};
use crate::http::request::fields::{FieldReader, known_members, required, text_member};
use crate::http::wire::chat::{
    AllowedTool, AllowedTools, AllowedToolsChoice, FunctionChoice, FunctionTool, NamedFunction,
};

/// The members of a function that templates are shown.
const SHOWN: [&str; 5] = ["name", "description", "parameters", "strict", "return"];

/// The tools of a chat completion.
pub(crate) fn tools(list: &[Value], fields: &mut FieldReader) -> Result<Vec<Tool>, ApiError> {
    let tools = list.iter().enumerate();
    tools.map(|(index, value)| tool(value, &format!("tools[{index}]"), fields)).collect()
}

fn tool(value: &Value, path: &str, fields: &mut FieldReader) -> Result<Tool, ApiError> {
    let kind = text_member(value, "type");
    if kind != Some("function") {
        let shown = kind.unwrap_or("nothing");
        let message = format!("{path}.type must be \"function\", got {shown:?}");
        return Err(ApiError::field(format!("{path}.type"), message));
    }
    let FunctionTool { function } = fields.variant(value, path)?;
    let inside = format!("{path}.function");
    let name = function.as_ref().and_then(|function| function.name.clone());
    let name = required(name.filter(|name| !name.is_empty()), &inside, "name")?;
    let function = function.map(|function| Function {
        name: name.clone(),
        parameters: function.parameters.map_or(Value::Null, Value::Object),
        strict: function.strict.unwrap_or(false),
        text: None,
    });
    let function = required(function, path, "function")?;
    let shown = value["function"].as_object().map(|object| known_members(object, &SHOWN));
    Ok(Tool {
        function,
        definition: definition(&shown.unwrap_or_default()),
        deferred: false,
        removed: false,
    })
}

/// A function as templates know it.
pub(crate) fn definition(function: &Map<String, Value>) -> Value {
    json!({"type": "function", "function": function})
}

/// Which tools the answer may use; `param` is the field's name.
pub(crate) fn tool_choice(
    choice: Option<&Value>,
    fields: &mut FieldReader,
) -> Result<Option<ToolChoice>, ApiError> {
    const PARAM: &str = "tool_choice";
    let Some(choice) = choice else { return Ok(None) };
    let invalid = || {
        let shown: String = choice.to_string().chars().take(80).collect();
        let message = format!(
            "tool_choice must be \"none\", \"auto\", \"required\", a function or allowed_tools, \
             got {shown}"
        );
        ApiError::field(PARAM, message)
    };
    let choice = match (choice.as_str(), text_member(choice, "type")) {
        (Some("none"), _) => ToolChoice::Off,
        (Some("auto"), _) => ToolChoice::Auto,
        (Some("required"), _) => ToolChoice::Required,
        (None, Some("function")) => {
            let FunctionChoice { function, name } = fields.variant(choice, PARAM)?;
            let name = function_name(function, name).ok_or_else(invalid)?;
            ToolChoice::Named(name)
        }
        (None, Some("allowed_tools")) => {
            let AllowedToolsChoice { allowed_tools, mode, tools } =
                fields.variant(choice, PARAM)?;
            let AllowedTools { mode, tools } =
                allowed_tools.unwrap_or(AllowedTools { mode, tools });
            let required = match mode.as_deref() {
                None | Some("auto") => false,
                Some("required") => true,
                Some(_) => return Err(invalid()),
            };
            let tools = tools.ok_or_else(invalid)?.into_iter();
            let names: Option<Vec<String>> = tools
                .map(|AllowedTool { function, name, .. }| function_name(function, name))
                .collect();
            let names = names.filter(|names| !names.is_empty()).ok_or_else(invalid)?;
            ToolChoice::Allowed(names, required)
        }
        _ => return Err(invalid()),
    };
    Ok(Some(choice))
}

/// The name in `{"type": "function", "function": {"name": ...}}`, or in the flat shape.
fn function_name(function: Option<NamedFunction>, name: Option<String>) -> Option<String> {
    function.map_or(name, |function| function.name)
}
