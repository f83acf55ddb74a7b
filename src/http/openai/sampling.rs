//! The fields that shape what is generated, under OpenAI's names.

use super::synonyms::{self, N_PREDICT, either};
use crate::http::error::ApiError;
use crate::http::generate::beams::beam_params;
use crate::http::generate::demand::Demand;
use crate::http::generate::field_names::FieldNames;
use crate::http::generate::options::{GenerationOptions, OwnOptions, PromptCut};
use crate::http::generate::stop_strings::stop_strings;
use crate::http::request::arrival::Arrival;
use crate::http::request::fields::BodyReader;
use crate::http::request::id::{MAX_REQUEST_ID_BYTES, is_request_id};
use crate::http::state::AppState;
use crate::http::wire::bounds::{EFFORTS, MAX_CHOICES};
use crate::http::wire::number::{Int, integer, to_usize};
use crate::http::wire::prediction::PredictionField;
use crate::http::wire::response_format::StructuredAliases;
use crate::http::wire::sampling::{CommonFields, SamplingFields};
use crate::http::wire::scalars::ScalarFields;
use crate::http::wire::stop::StopField;
use crate::http::wire::synonyms::Synonyms;
use crate::text::tokenizer::CutSide;

/// llama.cpp's name of the bound of drafts.
const MAX_DRAFTS: &str = "speculative.n_max";

/// All the fields of a body that shape what is generated.
#[derive(Debug)]
pub(crate) struct SamplingBody {
    pub(crate) own: SamplingFields,
    pub(crate) common: CommonFields,
    pub(crate) scalars: ScalarFields,
    pub(crate) aliases: StructuredAliases,
    /// Read, but for those of a single protocol and of the answer's length.
    pub(crate) synonyms: Synonyms,
}

impl SamplingBody {
    pub(crate) fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        let mut fields = Self {
            own: body.take()?,
            common: body.take()?,
            scalars: body.take()?,
            aliases: body.take()?,
            synonyms: body.take()?,
        };
        synonyms::rename_shared(&fields.synonyms, &mut fields.own, &mut fields.scalars)?;
        Ok(fields)
    }
}

/// What each of the routes spells in its own way.
pub(crate) struct Spelled {
    pub(crate) names: &'static FieldNames,
    pub(crate) demand: Option<Demand>,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) best_of: Option<Int>,
    pub(crate) logprobs: Option<u32>,
    pub(crate) echoed_logprobs: Option<u32>,
}

/// The options of a request.
pub(crate) fn options(
    fields: &SamplingBody,
    spelled: Spelled,
    arrival: &Arrival,
    state: &AppState,
) -> Result<GenerationOptions, ApiError> {
    let SamplingBody { own, common, scalars, .. } = fields;
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
        request_id: request_id(own.request_id.as_deref())?,
        demand: spelled.demand,
        n,
        best_of,
        beams,
        logprobs: spelled.logprobs,
        prompt_logprobs: top_logprobs("prompt_logprobs", own.prompt_logprobs, state)?,
        echoed_logprobs: spelled.echoed_logprobs,
        stop_strings: stop_strings("stop", own.stop.as_ref().map(|StopField(texts)| &texts[..]))?,
        max_tokens: spelled.max_tokens,
        context: None,
        cut: prompt_cut(own, spelled.max_tokens, state)?,
        prediction: prediction(own)?,
        max_drafts: integer(MAX_DRAFTS, own.max_drafts, 0, i64::MAX)?.map(to_usize),
        return_token_ids: own.return_token_ids.unwrap_or(false),
        tokens_as_token_ids: own.return_tokens_as_token_ids.unwrap_or(false),
    };
    GenerationOptions::new(options, scalars, common, arrival, state)
}

/// The text that the answer may be like, which a search can't follow.
fn prediction(fields: &SamplingFields) -> Result<Option<String>, ApiError> {
    let text = fields.prediction.as_ref().map(PredictionField::text);
    if text.is_some() && fields.use_beam_search == Some(true) {
        let message = "prediction can't be kept together with use_beam_search: a search follows \
                       several texts at once";
        return Err(ApiError::field("prediction", message));
    }
    Ok(text)
}

/// Checks the request's own name, which ends up in ids.
fn request_id(id: Option<&str>) -> Result<Option<String>, ApiError> {
    match id {
        Some(id) if !is_request_id(id.as_bytes()) => {
            let message = format!(
                "request_id must have 1 to {MAX_REQUEST_ID_BYTES} visible ASCII characters"
            );
            Err(ApiError::field("request_id", message))
        }
        id => Ok(id.map(str::to_owned)),
    }
}

/// What is kept of the prompt: as many tokens as the request says, or as leave room for the answer.
fn prompt_cut(
    fields: &SamplingFields,
    max_tokens: Option<usize>,
    state: &AppState,
) -> Result<Option<PromptCut>, ApiError> {
    let context = state.engine.limits().max_model_len;
    let side = cut_side(fields.truncation_side.as_deref(), CutSide::Left)?;
    let most = i64::try_from(context).unwrap_or(i64::MAX);
    let asked = integer("truncate_prompt_tokens", fields.truncate_prompt_tokens, -1, most)?;
    let most = match asked {
        None => return Ok(None),
        Some(-1) => context.saturating_sub(max_tokens.unwrap_or(1)).max(1),
        Some(0) => {
            let message = "truncate_prompt_tokens must be -1 or at least 1, got 0";
            return Err(ApiError::field("truncate_prompt_tokens", message));
        }
        Some(asked) => to_usize(asked),
    };
    Ok(Some(PromptCut { most, side }))
}

/// Which end of a long prompt or text is cut.
pub(crate) fn cut_side(field: Option<&str>, default: CutSide) -> Result<CutSide, ApiError> {
    match field {
        None => Ok(default),
        Some("left") => Ok(CutSide::Left),
        Some("right") => Ok(CutSide::Right),
        Some(other) => {
            let message = format!("truncation_side must be left or right, got {other:?}");
            Err(ApiError::field("truncation_side", message))
        }
    }
}

/// Most tokens of an answer, under any of its names; `unsaid` if the request has none of them.
pub(crate) fn max_tokens(
    fields: &SamplingBody,
    unsaid: Option<usize>,
) -> Result<Option<usize>, ApiError> {
    let SamplingFields { max_tokens, max_completion_tokens, .. } = fields.own;
    let completion = integer("max_completion_tokens", max_completion_tokens, 0, i64::MAX)?;
    let plain = integer("max_tokens", max_tokens, 0, i64::MAX)?;
    let predicted = integer(N_PREDICT, fields.synonyms.n_predict, -1, i64::MAX)?;
    let named = if completion.is_some() { "max_completion_tokens" } else { "max_tokens" };
    let asked = either((named, completion.or(plain)), (N_PREDICT, predicted))?;
    Ok(prewarmed(&fields.own).or(match asked {
        None => unsaid,
        // Only llama.cpp's name has a value for no bound.
        Some(-1) => None,
        Some(asked) => Some(to_usize(asked)),
    }))
}

/// The length of an answer that is none: the prompt is only computed, for the cache.
pub(crate) fn prewarmed(fields: &SamplingFields) -> Option<usize> {
    let prewarm = fields.prompt_cache_options.as_ref().and_then(|options| options.prewarm);
    (prewarm == Some(true)).then_some(0)
}

/// Most tokens of reasoning; -1 is no bound.
pub(crate) fn reasoning_budget(fields: &SamplingFields) -> Result<Option<usize>, ApiError> {
    let budget = integer("thinking_token_budget", fields.thinking_token_budget, -1, i64::MAX)?;
    Ok(budget.and_then(|budget| usize::try_from(budget).ok()))
}

/// Checks the number of alternatives that logprobs list; `name` is the field's. -1 stands for the whole
/// vocabulary, where the server allows so many.
pub(crate) fn top_logprobs(
    name: &str,
    value: Option<Int>,
    state: &AppState,
) -> Result<Option<u32>, ApiError> {
    let vocabulary = u32::try_from(state.engine.limits().vocab_size).unwrap_or(u32::MAX);
    let most = state.config.max_logprobs.unwrap_or(vocabulary);
    let asked = match value {
        Some(Int(-1)) if most >= vocabulary => Some(Int(vocabulary.into())),
        value => value,
    };
    let value = integer(name, asked, 0, most.into())?;
    Ok(value.map(|value| u32::try_from(value).expect("in the range just checked")))
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
