//! The tools of a request for a response, as functions that a model can call, and back: what a call
//! of each is in the answer.
//!
//! A namespace's functions have its name before theirs, joined by two underscores. A custom tool
//! takes one text, which is the argument of a function. What a provider would run itself is left
//! out and named as ignored, as there is nobody to run it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::generate::chat_request::{Function, TextArgument, Tool};
use crate::http::openai::tools;
use crate::http::request::fields::{FieldReader, required, text_member};
use crate::http::wire::bounds::HOSTED_TOOLS;
use crate::http::wire::response_input::{CustomFormat, CustomTool, FunctionTool, NamespaceTool};
use crate::structured::spec::GrammarSpec;

/// The argument of a custom tool's function.
const INPUT: &str = "input";

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct ResponseTools {
    pub(super) list: Vec<Tool>,
    /// With all the keys they have in a response.
    pub(super) shown: Vec<Value>,
    /// What calls are named in the answer.
    pub(super) called: CalledTools,
}

/// The tools that are not called by the names that a model knows, by those.
#[derive(Debug, Default)]
pub(super) struct CalledTools(HashMap<String, CalledTool>);

/// A tool as calls name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CalledTool {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Whether it takes a text and not arguments.
    pub(super) custom: bool,
}

impl CalledTools {
    /// The tool that a model calls `name`.
    pub(super) fn find(&self, name: &str) -> CalledTool {
        let plain = || CalledTool { name: name.to_owned(), ..CalledTool::default() };
        self.0.get(name).cloned().unwrap_or_else(plain)
    }
}

/// The name that a model knows a function of a namespace by.
pub(super) fn joined(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}__{name}"))
}

/// The arguments of the function that stands for a custom tool.
pub(super) fn custom_arguments(input: &str) -> Value {
    json!({ INPUT: input })
}

/// The text in the arguments of the function that stands for a custom tool; the arguments as they
/// are if they were cut short.
pub(super) fn custom_input(arguments: &str) -> String {
    let object: Option<Value> = serde_json::from_str(arguments).ok();
    let input = object.as_ref().and_then(|object| text_member(object, INPUT));
    input.unwrap_or(arguments).to_owned()
}

impl ResponseTools {
    /// Reads the list.
    pub(super) fn read(list: &[Value], fields: &mut FieldReader) -> Result<Self, ApiError> {
        let mut tools = Self::default();
        for (at, value) in list.iter().enumerate() {
            tools.add(value, &format!("tools[{at}]"), fields)?;
        }
        Ok(tools)
    }

    fn add(&mut self, value: &Value, path: &str, fields: &mut FieldReader) -> Result<(), ApiError> {
        match text_member(value, "type").unwrap_or("nothing") {
            "function" => {
                let tool: FunctionTool = fields.variant(value, path)?;
                let shown = self.function(tool, None, path)?;
                self.shown.push(shown);
            }
            "namespace" => {
                let shown = self.namespace(fields.variant(value, path)?, path, fields)?;
                self.shown.push(shown);
            }
            "custom" => {
                let shown = self.custom(fields.variant(value, path)?, path, fields)?;
                self.shown.push(shown);
            }
            kind if HOSTED_TOOLS.iter().any(|hosted| kind.starts_with(hosted)) => {
                fields.ignore(path);
            }
            kind => {
                let param = format!("{path}.type");
                let message = format!(
                    "{param}: tools of the type {kind:?} are not supported, only function, \
                     namespace and custom"
                );
                return Err(ApiError::field(param, message));
            }
        }
        Ok(())
    }

    /// Adds a function; how the response repeats it.
    fn function(
        &mut self,
        tool: FunctionTool,
        namespace: Option<&str>,
        path: &str,
    ) -> Result<Value, ApiError> {
        let name = required(tool.name.filter(|name| !name.is_empty()), path, "name")?;
        let function = Function {
            name: joined(namespace, &name),
            parameters: tool.parameters.map_or(Value::Null, Value::Object),
            // Enforced where it is asked for; a schema that was written without it may say more
            // than can be enforced.
            strict: tool.strict.unwrap_or(false),
            text: None,
        };
        let shown = json!({
            "type": "function",
            "name": name,
            "description": tool.description,
            "parameters": function.parameters,
            "strict": function.strict,
        });
        if let Some(namespace) = namespace {
            let called = CalledTool { namespace: Some(namespace.to_owned()), name, custom: false };
            self.called.0.insert(function.name.clone(), called);
        }
        self.push(function, tool.description, path)?;
        Ok(shown)
    }

    fn namespace(
        &mut self,
        tool: NamespaceTool,
        path: &str,
        fields: &mut FieldReader,
    ) -> Result<Value, ApiError> {
        let name = required(tool.name.filter(|name| !name.is_empty()), path, "name")?;
        let functions = required(tool.tools, path, "tools")?;
        let mut shown = Vec::with_capacity(functions.len());
        for (at, function) in functions.iter().enumerate() {
            let path = format!("{path}.tools[{at}]");
            let kind = text_member(function, "type").unwrap_or("nothing");
            if kind != "function" {
                let param = format!("{path}.type");
                let message =
                    format!("{param}: a namespace has tools of the type function, got {kind:?}");
                return Err(ApiError::field(param, message));
            }
            shown.push(self.function(fields.variant(function, &path)?, Some(&name), &path)?);
        }
        let description = tool.description;
        Ok(json!({"type": "namespace", "name": name, "description": description, "tools": shown}))
    }

    fn custom(
        &mut self,
        tool: CustomTool,
        path: &str,
        fields: &mut FieldReader,
    ) -> Result<Value, ApiError> {
        let CustomTool { name, description, format } = tool;
        let name = required(name.filter(|name| !name.is_empty()), path, "name")?;
        let mut told = description.clone().unwrap_or_default();
        let format = format.unwrap_or_else(|| json!({"type": "text"}));
        let grammar = input_grammar(&format, &format!("{path}.format"), fields)?;
        if let Some(GrammarSpec::Lark(definition) | GrammarSpec::Regex(definition)) = &grammar {
            told += "\nThe input follows this grammar:\n";
            told += definition;
        }
        let parameters = json!({
            "type": "object",
            "properties": {INPUT: {"type": "string"}},
            "required": [INPUT],
            "additionalProperties": false,
        });
        let param = format!("{path}.format");
        let text = grammar.map(|grammar| TextArgument { name: INPUT, grammar, param });
        let function = Function { name: name.clone(), parameters, strict: true, text };
        let shown = json!({
            "type": "custom", "name": name, "description": description, "format": format,
        });
        let called = CalledTool { namespace: None, name: name.clone(), custom: true };
        self.called.0.insert(name, called);
        self.push(function, Some(told).filter(|told| !told.is_empty()), path)?;
        Ok(shown)
    }

    fn push(
        &mut self,
        function: Function,
        description: Option<String>,
        path: &str,
    ) -> Result<(), ApiError> {
        if self.list.iter().any(|tool| tool.function.name == function.name) {
            let message = format!("{path}.name: there are two tools {:?}", function.name);
            return Err(ApiError::field(format!("{path}.name"), message));
        }
        let definition = tools::definition(&for_template(&function, description));
        self.list.push(Tool { function, definition, deferred: false, removed: false });
        Ok(())
    }
}

/// What a custom tool's text has to follow: `{"type": "text"}`, which is nothing, or a grammar.
fn input_grammar(
    format: &Value,
    path: &str,
    fields: &mut FieldReader,
) -> Result<Option<GrammarSpec>, ApiError> {
    let refuse = |member: &str, wanted: &str, got: Option<&str>| {
        let param = format!("{path}.{member}");
        let message = format!("{param} must be {wanted}, got {:?}", got.unwrap_or("nothing"));
        Err(ApiError::field(param, message))
    };
    let CustomFormat { kind, syntax, definition } = fields.variant(format, path)?;
    match kind.as_deref() {
        Some("text") => return Ok(None),
        Some("grammar") => {}
        other => return refuse("type", "\"text\" or \"grammar\"", other),
    }
    let definition = required(definition, path, "definition")?;
    match syntax.as_deref() {
        Some("lark") => Ok(Some(GrammarSpec::Lark(definition))),
        Some("regex") => Ok(Some(GrammarSpec::Regex(definition))),
        other => refuse("syntax", "\"lark\" or \"regex\"", other),
    }
}

/// A function with what templates show of it.
fn for_template(function: &Function, description: Option<String>) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(function.name));
    if let Some(description) = description {
        shown.insert("description".to_owned(), Value::String(description));
    }
    if !function.parameters.is_null() {
        shown.insert("parameters".to_owned(), function.parameters.clone());
    }
    if function.strict {
        shown.insert("strict".to_owned(), Value::Bool(true));
    }
    shown
}
