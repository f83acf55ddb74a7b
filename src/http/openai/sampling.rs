//! The fields that shape what is generated, under OpenAI's names.

use crate::http::error::ApiError;
use crate::http::generate::beams::beam_params;
use crate::http::generate::demand::Demand;
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::{GenerationOptions, OwnOptions};
use crate::http::generate::stop_strings::stop_strings;
use crate::http::request::arrival::Arrival;
use crate::http::request::fields::BodyReader;
use crate::http::state::AppState;
use crate::http::wire::bounds::{EFFORTS, MAX_CHOICES, MAX_TOP_LOGPROBS};
use crate::http::wire::number::{Int, integer, to_usize};
use crate::http::wire::sampling::{CommonFields, SamplingFields};
use crate::http::wire::scalars::ScalarFields;
use crate::http::wire::stop::StopField;

/// All the fields of a body that shape what is generated.
#[derive(Debug)]
pub(crate) struct SamplingBody {
    pub(crate) own: SamplingFields,
    pub(crate) common: CommonFields,
    pub(crate) scalars: ScalarFields,
}

impl SamplingBody {
    pub(crate) fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        Ok(Self { own: body.take()?, common: body.take()?, scalars: body.take()? })
    }
}

/// What each of the routes spells in its own way.
pub(crate) struct Spelled {
    pub(crate) names: &'static FieldNames,
    pub(crate) demand: Option<Demand>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) best_of: Option<Int>,
    pub(crate) logprobs: Option<u8>,
    pub(crate) echoed_logprobs: Option<u8>,
}

/// The options of a request.
pub(crate) fn options(
    fields: &SamplingBody,
    spelled: Spelled,
    arrival: &Arrival,
    state: &AppState,
) -> Result<GenerationOptions, ApiError> {
    let SamplingBody { own, common, scalars } = fields;
    let n = integer("n", own.n, 1, MAX_CHOICES)?.map_or(1, to_usize);
    let best_of = integer("best_of", spelled.best_of, 1, MAX_CHOICES)?.map(to_usize);
    let beams = beam_params(own, common, scalars, n, best_of)?;
    let best_of = best_of.filter(|_| beams.is_none()).unwrap_or(n);
    if best_of < n {
        let message = format!("best_of must be at least n ({n}), got {best_of}");
        return Err(ApiError::field("best_of", message));
    }
    let options = OwnOptions {
        names: spelled.names,
        demand: spelled.demand,
        n,
        best_of,
        beams,
        logprobs: spelled.logprobs,
        prompt_logprobs: top_logprobs("prompt_logprobs", own.prompt_logprobs)?,
        echoed_logprobs: spelled.echoed_logprobs,
        stop_strings: stop_strings("stop", own.stop.as_ref().map(|StopField(texts)| &texts[..]))?,
        max_tokens: spelled.max_tokens,
        return_token_ids: own.return_token_ids.unwrap_or(false),
        tokens_as_token_ids: own.return_tokens_as_token_ids.unwrap_or(false),
    };
    GenerationOptions::new(options, scalars, common, arrival, state)
}

/// `max_tokens`, or its newer name.
pub(crate) fn max_tokens(fields: &SamplingFields) -> Result<Option<usize>, ApiError> {
    let completion = integer("max_completion_tokens", fields.max_completion_tokens, 1, i64::MAX)?;
    let plain = integer("max_tokens", fields.max_tokens, 1, i64::MAX)?;
    Ok(completion.or(plain).map(to_usize))
}

/// Most tokens of reasoning; -1 is no bound.
pub(crate) fn reasoning_budget(fields: &SamplingFields) -> Result<Option<usize>, ApiError> {
    let budget = integer("thinking_token_budget", fields.thinking_token_budget, -1, i64::MAX)?;
    Ok(budget.and_then(|budget| usize::try_from(budget).ok()))
}

/// Checks the number of alternatives that logprobs list; `name` is the field's.
pub(crate) fn top_logprobs(name: &str, value: Option<Int>) -> Result<Option<u8>, ApiError> {
    let value = integer(name, value, 0, MAX_TOP_LOGPROBS)?;
    Ok(value.map(|value| u8::try_from(value).expect("20 fits")))
}

/// Checks how much reasoning the model is asked for; `name` is the field's.
pub(crate) fn effort(name: &str, effort: Option<&String>) -> Result<Option<String>, ApiError> {
    match effort {
        Some(effort) if !EFFORTS.contains(&effort.as_str()) => {
            let message = format!("{name} must be one of {}, got {effort:?}", EFFORTS.join(", "));
            Err(ApiError::field(name, message))
        }
        effort => Ok(effort.cloned()),
    }
}
