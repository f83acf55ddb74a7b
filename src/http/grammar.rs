//! What a request says its answer must be like: a schema, a pattern, a grammar, or its tools' calls.
//!
//! Whatever the field, it becomes a [`GrammarSpec`], and that a compiled grammar, off the async
//! threads and within a time and a size. Thoughts stand before all of it.

use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::prompt::off_thread;
use super::state::AppState;
use super::tools::ToolSetup;
use crate::structured::error::GrammarError;
use crate::structured::grammar::Grammar;
use crate::structured::spec::{GrammarSpec, StructuralTag, Tag};
use crate::text::tool_calls::{self, CallRules, FunctionRule};

/// What an answer must be like, and the field that says so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) spec: GrammarSpec,
    pub(crate) param: &'static str,
}

impl Demand {
    /// What the two fields ask for.
    pub(crate) fn of_fields(
        response_format: Option<&Value>,
        structured_outputs: Option<&Value>,
    ) -> Result<Option<Self>, ApiError> {
        let format = response_format.map(format_spec).transpose()?.flatten();
        let structured = structured_outputs.map(structured_spec).transpose()?;
        match (format, structured) {
            (Some(_), Some(_)) => {
                let message = "response_format and structured_outputs can't both be given";
                Err(ApiError::field("structured_outputs", message))
            }
            (format, structured) => {
                Ok(format.or(structured).map(|(spec, param)| Self { spec, param }))
            }
        }
    }

    /// What the tools ask for beside `other`, which the rest of the request does.
    fn with_tools(
        other: Option<Self>,
        tools: &ToolSetup,
        state: &AppState,
    ) -> Result<Option<Self>, ApiError> {
        if tools.callable.is_empty() {
            return Ok(other);
        }
        // Calls that have to be made leave no room for another answer.
        let answer = other.filter(|_| !tools.required);
        if answer.is_none() && !tools.needs_grammar() {
            return Ok(None);
        }
        let param = match &answer {
            Some(answer) => answer.param,
            None if tools.required => "tool_choice",
            None => "tools",
        };
        let answer = answer.map(|answer| answer.nested(state)).transpose()?;
        let lark = call_grammar(tools, answer, state).ok_or_else(|| {
            ApiError::unsupported(param, "enforcing this model's format of tool calls")
        })?;
        Ok(Some(Self { spec: GrammarSpec::Lark(lark), param }))
    }

    /// As a part of the tools' grammar.
    fn nested(&self, state: &AppState) -> Result<String, ApiError> {
        let nested = state.grammars().nested(&self.spec);
        nested.map_err(|error| refusal(self.param, &error))?.ok_or_else(|| {
            let message = format!(
                "{} can't be kept together with tools that may be called: set tool_choice to \
                 \"none\", or leave one of them out",
                self.param
            );
            ApiError::field(self.param, message)
        })
    }
}

/// The grammar of all that the answer must be, if there is anything. It is an equal request's of
/// before, as long as that is remembered.
pub(crate) async fn compile(
    demand: Option<Demand>,
    tools: &ToolSetup,
    state: &AppState,
) -> Result<Option<Arc<Grammar>>, ApiError> {
    if demand.is_none() && tools.callable.is_empty() {
        return Ok(None);
    }
    let (tools, state) = (tools.clone(), state.clone());
    off_thread(move || {
        let Some(demand) = Demand::with_tools(demand, &tools, &state)? else { return Ok(None) };
        let compiled = state.grammars().compile(&demand.spec);
        compiled.map(Some).map_err(|error| refusal(demand.param, &error))
    })
    .await
}

fn refusal(param: &str, error: &GrammarError) -> ApiError {
    match error {
        GrammarError::Busy(_) => ApiError::Unavailable(error.to_string()),
        GrammarError::Internal(_) => ApiError::Internal(error.to_string()),
        _ => ApiError::Invalid {
            message: format!("{param}: {error}"),
            param: Some(param.to_owned()),
            code: Some("unsupported_grammar"),
        },
    }
}

/// The grammar of the calls that the tools allow, or of `answer` instead of them.
fn call_grammar(tools: &ToolSetup, answer: Option<String>, state: &AppState) -> Option<String> {
    let vocabulary = state.grammars().vocabulary();
    let functions: Vec<FunctionRule> = tools
        .callable
        .iter()
        .map(|function| FunctionRule {
            name: function.name.clone(),
            // Where a call is the model's own idea, only strict functions bind its arguments.
            schema: if tools.required || function.strict {
                function.parameters.clone()
            } else {
                Value::Null
            },
        })
        .collect();
    let rules = CallRules {
        functions: &functions,
        required: tools.required,
        preamble: false,
        parallel: !tools.single_call,
        answer,
        reasoning: None,
        token_id: &|text| vocabulary.special(text),
    };
    tool_calls::grammar(tools.family?, &rules)
}

type Asked = (GrammarSpec, &'static str);

fn format_spec(format: &Value) -> Result<Option<Asked>, ApiError> {
    const FIELD: &str = "response_format";
    const SCHEMA: &str = "response_format.json_schema.schema";
    let kind = format.get("type").and_then(Value::as_str);
    match kind {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some((GrammarSpec::JsonObject, FIELD))),
        Some("json_schema") => {
            let named = format.get("json_schema").and_then(Value::as_object).ok_or_else(|| {
                let message = "response_format.json_schema is required with the type json_schema";
                ApiError::field("response_format.json_schema", message)
            })?;
            if named.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
                let param = "response_format.json_schema.name";
                return Err(ApiError::field(param, format!("{param} is required")));
            }
            match named.get("schema") {
                None | Some(Value::Null) => Ok(Some((GrammarSpec::JsonObject, SCHEMA))),
                Some(schema) => Ok(Some((json_schema(schema, SCHEMA)?, SCHEMA))),
            }
        }
        Some("structural_tag") => Ok(Some((structural_tag(format, FIELD)?, FIELD))),
        _ => {
            let shown: String = format.to_string().chars().take(80).collect();
            let message = format!(
                "response_format.type must be text, json_object, json_schema or structural_tag, \
                 got {shown}"
            );
            Err(ApiError::field("response_format", message))
        }
    }
}

/// Checks that a value can be a schema at all; what it says is read where it is compiled.
fn json_schema(schema: &Value, param: &'static str) -> Result<GrammarSpec, ApiError> {
    if schema.is_object() || schema.is_boolean() {
        return Ok(GrammarSpec::JsonSchema(schema.clone()));
    }
    let message = format!("{param}: a JSON schema must be an object or a bool, got {schema}");
    Err(ApiError::field(param, message.chars().take(200).collect::<String>()))
}

fn structured_spec(asked: &Value) -> Result<Asked, ApiError> {
    const FIELD: &str = "structured_outputs";
    let invalid = |message: String| ApiError::field(FIELD, message);
    let object = asked.as_object();
    let object = object.ok_or_else(|| invalid(format!("{FIELD} must be an object")))?;
    let given: Vec<(&String, &Value)> =
        object.iter().filter(|(_, value)| !value.is_null()).collect();
    let [(name, value)] = given[..] else {
        let names: Vec<&str> = given.iter().map(|(name, _)| name.as_str()).collect();
        return Err(invalid(format!(
            "{FIELD} must have exactly one of json, json_object, regex, choice, grammar and \
             structural_tag, got {names:?}"
        )));
    };
    let text = || {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| invalid(format!("{FIELD}.{name} must be a string")))
    };
    match name.as_str() {
        "json" => {
            let schema = match value {
                Value::String(text) => serde_json::from_str(text)
                    .map_err(|error| invalid(format!("{FIELD}.json is no JSON: {error}")))?,
                schema => schema.clone(),
            };
            Ok((json_schema(&schema, "structured_outputs.json")?, "structured_outputs.json"))
        }
        "json_object" if value == &Value::Bool(true) => {
            Ok((GrammarSpec::JsonObject, "structured_outputs.json_object"))
        }
        "regex" => Ok((GrammarSpec::Regex(text()?), "structured_outputs.regex")),
        "choice" => {
            let choices = value.as_array().and_then(|choices| {
                choices.iter().map(|choice| choice.as_str().map(str::to_owned)).collect()
            });
            let choices: Vec<String> = choices
                .ok_or_else(|| invalid(format!("{FIELD}.choice must be a list of strings")))?;
            Ok((GrammarSpec::Choice(choices), "structured_outputs.choice"))
        }
        "grammar" => Ok((GrammarSpec::from_grammar_text(&text()?), "structured_outputs.grammar")),
        "structural_tag" => {
            let read: Value = match value {
                Value::String(text) => serde_json::from_str(text).map_err(|error| {
                    invalid(format!("{FIELD}.structural_tag is no JSON: {error}"))
                })?,
                value => value.clone(),
            };
            let spec = structural_tag(&read, "structured_outputs.structural_tag")?;
            Ok((spec, "structured_outputs.structural_tag"))
        }
        _ => Err(ApiError::unsupported(format!("{FIELD}.{name}"), "this value")),
    }
}

/// `{"structures": [{"begin", "schema", "end"}], "triggers": [...]}`
fn structural_tag(value: &Value, path: &'static str) -> Result<GrammarSpec, ApiError> {
    let invalid = |what: &str| ApiError::field(path, format!("{path}: {what}"));
    let structures = value.get("structures").and_then(Value::as_array);
    let structures = structures.ok_or_else(|| invalid("structures must be a list"))?;
    let triggers = value.get("triggers").and_then(Value::as_array);
    let triggers: Option<Vec<String>> = triggers.and_then(|triggers| {
        triggers.iter().map(|trigger| trigger.as_str().map(str::to_owned)).collect()
    });
    let triggers = triggers.ok_or_else(|| invalid("triggers must be a list of strings"))?;
    let tag = |structure: &Value| {
        let text = |key: &str| {
            let text = structure.get(key).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| invalid(&format!("structures must have a string {key}")))
        };
        let content = match structure.get("schema") {
            None | Some(Value::Null) => GrammarSpec::JsonObject,
            Some(schema) => json_schema(schema, path)?,
        };
        Ok(Tag { begin: text("begin")?, content: Box::new(content), end: text("end")? })
    };
    let tags: Result<Vec<Tag>, ApiError> = structures.iter().map(tag).collect();
    Ok(GrammarSpec::StructuralTag(StructuralTag {
        tags: tags?,
        triggers,
        at_least_one: false,
        stop_after_first: false,
    }))
}
