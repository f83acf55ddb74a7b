//! A compiled grammar of all that an answer must be: what the request demands of it, and its tools'
//! calls.
//!
//! Compiled off the async threads, within a time and a size. Reasoning stands before all of it.

use std::sync::Arc;

use serde_json::Value;

use super::chat_request;
use super::demand::Demand;
use super::tools::ToolSetup;
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::structured::error::GrammarError;
use crate::structured::grammar::Grammar;
use crate::structured::spec::GrammarSpec;
use crate::text::tool_calls::{self, CallRules, FunctionRule, TextArgument};

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
        let Some(demand) = with_tools(demand, &tools, &state)? else { return Ok(None) };
        let compiled = state.grammars().compile(&demand.spec);
        compiled.map(Some).map_err(|error| refusal(demand.param, &error))
    })
    .await
}

/// What the tools ask for beside `other`, which the rest of the request does.
fn with_tools(
    other: Option<Demand>,
    tools: &ToolSetup,
    state: &AppState,
) -> Result<Option<Demand>, ApiError> {
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
        None if tools.required => tools.names.tool_choice,
        None => tools.names.tools,
    };
    let answer = answer.map(|answer| nested(&answer, state)).transpose()?;
    let lark = call_grammar(tools, answer, state)?.ok_or_else(|| {
        ApiError::unsupported(param, "enforcing this model's format of tool calls")
    })?;
    Ok(Some(Demand { spec: GrammarSpec::Lark(lark), param }))
}

/// As a part of the tools' grammar.
fn nested(demand: &Demand, state: &AppState) -> Result<String, ApiError> {
    let nested = state.grammars().nested(&demand.spec);
    nested.map_err(|error| refusal(demand.param, &error))?.ok_or_else(|| {
        let message = format!(
            "{} can't be kept together with tools that may be called: set tool_choice to \
             \"none\", or leave one of them out",
            demand.param
        );
        ApiError::field(demand.param, message)
    })
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
fn call_grammar(
    tools: &ToolSetup,
    answer: Option<String>,
    state: &AppState,
) -> Result<Option<String>, ApiError> {
    let vocabulary = state.grammars().vocabulary();
    let mut functions = Vec::with_capacity(tools.callable.len());
    for function in &tools.callable {
        functions.push(FunctionRule {
            name: function.name.clone(),
            // Where a call is the model's own idea, only strict functions bind its arguments.
            schema: if tools.required || function.strict {
                function.parameters.clone()
            } else {
                Value::Null
            },
            text: function.text.as_ref().map(|text| text_argument(text, state)).transpose()?,
        });
    }
    let rules = CallRules {
        functions: &functions,
        required: tools.required,
        preamble: false,
        parallel: !tools.single_call,
        answer,
        reasoning: None,
        token_id: &|text| vocabulary.special(text),
    };
    Ok(tools.family.and_then(|family| tool_calls::grammar(family, &rules)))
}

/// The grammar of a function's one argument, as it is and between the quotes of a JSON string.
fn text_argument(
    text: &chat_request::TextArgument,
    state: &AppState,
) -> Result<TextArgument, ApiError> {
    let refuse = |error: GrammarError| refusal(&text.param, &error);
    let plain = state.grammars().nested(&text.grammar).map_err(refuse)?;
    let plain =
        plain.ok_or_else(|| ApiError::unsupported(&text.param, "a text of tagged parts"))?;
    Ok(TextArgument {
        name: text.name.to_owned(),
        plain,
        quoted: state.grammars().nested_in_string(&text.grammar).map_err(refuse)?,
    })
}
