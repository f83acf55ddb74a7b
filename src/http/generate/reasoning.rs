//! How the reasoning of an answer is read and bounded, once the prompt is known.

use super::chat_request::ReasoningOptions;
use super::field_names::FieldNames;
use super::tools::ToolSetup;
use crate::http::answer::reader::ReadingPlan;
use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::sampling::reasoning::ReasoningParams;
use crate::text::reasoning;

/// How the answer behind `prompt` is read; `continued` is the message that it goes on with.
pub(crate) fn reading(
    state: &AppState,
    tools: &ToolSetup,
    options: ReasoningOptions,
    continued: Option<&str>,
    prompt: &str,
) -> ReadingPlan {
    let family = state.families(!tools.definitions.is_empty()).reasoning;
    let reasoning = family.filter(|_| options.separate);
    let starts_inside = |name| {
        let ends_inside = |message| reasoning::continues_inside(name, message);
        reasoning::starts_inside(name, prompt) || continued.is_some_and(ends_inside)
    };
    ReadingPlan {
        reasoning,
        starts_inside: reasoning.is_some_and(starts_inside),
        hide_reasoning: options.hidden,
        tools: tools.family,
        functions: tools.functions(),
        single_call: tools.single_call,
    }
}

/// How the sampler tells reasoning from the answer behind `prompt`.
pub(crate) fn params(
    state: &AppState,
    options: ReasoningOptions,
    names: &FieldNames,
    reading: &ReadingPlan,
    prompt: &str,
) -> Result<Option<ReasoningParams>, ApiError> {
    let Some(name) = reading.reasoning else {
        if options.budget.is_some() {
            let what = "a budget of reasoning for a model that does none";
            return Err(ApiError::unsupported(names.reasoning_budget, what));
        }
        return Ok(None);
    };
    let Some(marks) = reasoning::marks(name) else { return Ok(None) };
    let tokenizer = &state.tokenizer;
    let close = tokenizer.encode(marks.close, false).unwrap_or_default();
    if close.is_empty() {
        return Ok(None);
    }
    let was_closed = prompt.trim_end().ends_with(marks.close);
    let open = marks.open.filter(|_| !was_closed).and_then(|open| tokenizer.token_id(open));
    let starts_inside = reading.starts_inside || marks.always;
    Ok(Some(ReasoningParams { close, starts_inside, open, budget: options.budget }))
}
