//! The tools of a chat on this model: what the template sees of them, which may or must be called,
//! and who reads the answer.

use serde_json::Value;

use super::chat_request::{Conversation, Function, ToolChoice, Tools};
use super::field_names::FieldNames;
use super::tools_as_text;
use crate::config::Parser;
use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::text::tool_calls::Functions;

/// How the model is told of tools, calls and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// By the template.
    Template,
    /// In texts of the conversation, for the template knows no tools.
    Text,
}

/// Tools as the request asks for them, checked.
#[derive(Clone, Debug)]
pub(crate) struct ToolSetup {
    /// For the template; empty without tools.
    pub(crate) definitions: Vec<Value>,
    pub(crate) telling: Telling,
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
    pub(crate) names: &'static FieldNames,
}

impl ToolSetup {
    /// No tools; `family` is whose markup is read all the same.
    pub(crate) fn none(names: &'static FieldNames, family: Option<&'static str>) -> Self {
        Self {
            definitions: Vec::new(),
            telling: Telling::Template,
            family,
            callable: Vec::new(),
            required: false,
            restricted: false,
            single_call: false,
            names,
        }
    }

    /// Checks the tools of a conversation and the choice among them.
    pub(crate) fn new(state: &AppState, conversation: &Conversation) -> Result<Self, ApiError> {
        let Conversation { tools, names, .. } = conversation;
        if tools.list.is_empty() {
            return without_tools(state, tools, names);
        }
        let families = state.families(true);
        let detects = state.config.tool_call_parser == Parser::Detected;
        let knows_tools = knows_tools(state);
        let as_text = detects && (!knows_tools || families.tools.is_none());
        if !as_text && !knows_tools {
            return Err(ApiError::unsupported(names.tools, "a model without tools"));
        }
        let choice = tools.choice.as_ref().unwrap_or(&ToolChoice::Auto);
        let family = match choice {
            ToolChoice::Off => families.always(),
            _ if as_text => Some(tools_as_text::FAMILY),
            _ => Some(families.tools.ok_or_else(|| {
                ApiError::unsupported(names.tools, "this model's format of tool calls")
            })?),
        };
        let callable = callable(tools, choice, names)?;
        let shown = tools.list.iter().filter(|tool| !tool.deferred);
        let restricted = *choice != ToolChoice::Off && callable.len() < tools.list.len();
        Ok(Self {
            definitions: shown.map(|tool| tool.definition.clone()).collect(),
            telling: if as_text { Telling::Text } else { Telling::Template },
            family,
            restricted,
            required: matches!(
                choice,
                ToolChoice::Required | ToolChoice::Allowed(_, true) | ToolChoice::Named(_)
            ),
            callable,
            single_call: tools.single_call || matches!(choice, ToolChoice::Named(_)),
            names,
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

/// The functions that the choice leaves.
fn callable(
    tools: &Tools,
    choice: &ToolChoice,
    names: &FieldNames,
) -> Result<Vec<Function>, ApiError> {
    let left = tools.list.iter().filter(|tool| !tool.removed);
    let functions = left.map(|tool| &tool.function);
    let allowed = match choice {
        ToolChoice::Off => return Ok(Vec::new()),
        ToolChoice::Auto | ToolChoice::Required => return Ok(functions.cloned().collect()),
        ToolChoice::Allowed(allowed, _) => allowed.as_slice(),
        ToolChoice::Named(name) => std::slice::from_ref(name),
    };
    for name in allowed {
        if !functions.clone().any(|function| function.name == *name) {
            let (field, tools) = (names.tool_choice, names.tools);
            let message = format!("{field} names {name:?}, which is not among {tools}");
            return Err(ApiError::field(field, message));
        }
    }
    Ok(functions.filter(|function| allowed.contains(&function.name)).cloned().collect())
}

fn without_tools(
    state: &AppState,
    tools: &Tools,
    names: &'static FieldNames,
) -> Result<ToolSetup, ApiError> {
    match &tools.choice {
        Some(choice) if *choice != ToolChoice::Off => {
            let (field, tools) = (names.tool_choice, names.tools);
            Err(ApiError::field(field, format!("{field} needs {tools}")))
        }
        _ => {
            let none = ToolSetup::none(names, state.families(false).always());
            let telling = if knows_tools(state) { Telling::Template } else { Telling::Text };
            Ok(ToolSetup { telling, ..none })
        }
    }
}

fn knows_tools(state: &AppState) -> bool {
    state.chat_template(true).is_some_and(|template| template.source().contains("tools"))
}
