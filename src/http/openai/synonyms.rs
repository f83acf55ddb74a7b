//! Fields under llama.cpp's names for them, put under the names that they have here. A field may be
//! given under two names if both say the same.

use std::fmt::Display;

use crate::http::error::ApiError;
use crate::http::wire::chat::ChatCompletionRequest;
use crate::http::wire::completions::CompletionRequest;
use crate::http::wire::number::Int;
use crate::http::wire::sampling::SamplingFields;
use crate::http::wire::scalars::ScalarFields;
use crate::http::wire::synonyms::Synonyms;

/// llama.cpp's name of `max_tokens`.
pub(crate) const N_PREDICT: &str = "n_predict";
/// llama.cpp's name of the number of alternatives that logprobs list.
pub(crate) const N_PROBS: &str = "n_probs";

/// Renames what chat completions and completions share. The length of an answer is read where it is
/// checked, since only llama.cpp's name has a value for no bound.
pub(crate) fn rename_shared(
    synonyms: &Synonyms,
    own: &mut SamplingFields,
    scalars: &mut ScalarFields,
) -> Result<(), ApiError> {
    const PENALTY: &str = "repetition_penalty";
    const BUDGET: &str = "thinking_token_budget";
    own.n = either(("n", own.n), ("n_cmpl", synonyms.n_cmpl))?;
    let penalty = (PENALTY, scalars.get(PENALTY));
    scalars.set(PENALTY, either(penalty, ("repeat_penalty", synonyms.repeat_penalty))?);
    for (name, budget) in [
        ("reasoning_budget_tokens", synonyms.reasoning_budget_tokens),
        ("thinking_budget_tokens", synonyms.thinking_budget_tokens),
    ] {
        own.thinking_token_budget = either((BUDGET, own.thinking_token_budget), (name, budget))?;
    }
    Ok(())
}

/// Renames what only chat completions have. With `n_probs` of 0 the other names say whether there
/// are logprobs.
pub(crate) fn rename_in_chat(
    synonyms: &Synonyms,
    request: &mut ChatCompletionRequest,
) -> Result<(), ApiError> {
    request.separate_reasoning = either(
        ("separate_reasoning", request.separate_reasoning),
        ("reasoning_format", separates(request.reasoning_format.as_deref())?),
    )?;
    let Some(asked) = alternatives(synonyms) else { return Ok(()) };
    if request.logprobs == Some(false) {
        let message = format!("{N_PROBS} asks for logprobs, and logprobs is false");
        return Err(ApiError::field(N_PROBS, message));
    }
    request.logprobs = Some(true);
    request.top_logprobs = either(("top_logprobs", request.top_logprobs), (N_PROBS, Some(asked)))?;
    Ok(())
}

/// Whether a format tells reasoning apart from the answer.
fn separates(format: Option<&str>) -> Result<Option<bool>, ApiError> {
    match format {
        None | Some("auto") => Ok(None),
        Some("deepseek") => Ok(Some(true)),
        Some("none") => Ok(Some(false)),
        Some(other) => {
            let message =
                format!("reasoning_format must be one of auto, deepseek, none, got {other:?}");
            Err(ApiError::field("reasoning_format", message))
        }
    }
}

/// The same of a completion.
pub(crate) fn rename_in_completion(
    synonyms: &Synonyms,
    request: &mut CompletionRequest,
) -> Result<(), ApiError> {
    let asked = alternatives(synonyms);
    request.logprobs = either(("logprobs", request.logprobs), (N_PROBS, asked))?;
    Ok(())
}

fn alternatives(synonyms: &Synonyms) -> Option<Int> {
    synonyms.n_probs.filter(|asked| *asked != Int(0))
}

/// The value of a field under one name or the other.
pub(crate) fn either<T: Copy + PartialEq + Display>(
    (name, value): (&str, Option<T>),
    (synonym, given): (&str, Option<T>),
) -> Result<Option<T>, ApiError> {
    match (value, given) {
        (Some(value), Some(given)) if value != given => {
            let message = format!(
                "{synonym} is another name of {name}; they say different things: {given} and {value}"
            );
            Err(ApiError::field(synonym, message))
        }
        (value, given) => Ok(value.or(given)),
    }
}
