//! What a request asks of the engine, checked against the model: the only way from wire fields to
//! [`SamplingParams`] and [`StopConditions`].
//!
//! The length bound needs the prompt, so it is resolved last, by
//! [`GenerationOptions::stop_conditions`].

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::bad_words;
use super::demand::Demand;
use super::dry::DryOptions;
use super::field_names::FieldNames;
use super::service_tier::ServiceTier;
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::error::{ApiError, ContextExceeded};
use crate::http::request::arrival::Arrival;
use crate::http::state::AppState;
use crate::http::wire::bounds::{MAX_CACHE_SALT_CHARS, MAX_LOGPROB_TOKENS};
use crate::http::wire::logit_bias::{Bias, LogitBiasField};
use crate::http::wire::number::{Int, integer, to_usize, token_id, token_ids};
use crate::http::wire::sampling::CommonFields;
use crate::http::wire::scalars::ScalarFields;
use crate::sampling::params::{BeamParams, GREEDY_TEMPERATURE, SCALARS, SamplingParams};
use crate::scheduler::stop::StopConditions;
use crate::text::tokenizer::CutSide;

/// What a protocol asks for under names of its own, checked by it.
#[derive(Debug)]
pub(crate) struct OwnOptions {
    pub(crate) names: &'static FieldNames,
    /// What the request calls itself.
    pub(crate) request_id: Option<String>,
    /// What the answer must be like, tools aside.
    pub(crate) demand: Option<Demand>,
    /// Choices per prompt.
    pub(crate) n: usize,
    /// Sequences per prompt, of which the `n` best are the choices.
    pub(crate) best_of: usize,
    /// How to search the choices instead of drawing them.
    pub(crate) beams: Option<BeamParams>,
    /// Most likely tokens to report beside each token of the answer.
    pub(crate) logprobs: Option<u32>,
    /// Most likely tokens to report at each position of the prompt.
    pub(crate) prompt_logprobs: Option<u32>,
    /// The same, for a prompt that is repeated with logprobs before the answer.
    pub(crate) echoed_logprobs: Option<u32>,
    /// Texts that end the answer.
    pub(crate) stop_strings: Vec<String>,
    pub(crate) max_tokens: Option<usize>,
    /// Most tokens of prompt and answer together, where the request wants fewer than the model has.
    pub(crate) context: Option<usize>,
    /// What is kept of the prompt, if not all.
    pub(crate) cut: Option<PromptCut>,
    /// A text that the answer may be like.
    pub(crate) prediction: Option<String>,
    /// Most tokens to draft at a time.
    pub(crate) max_drafts: Option<usize>,
    pub(crate) return_token_ids: bool,
    pub(crate) tokens_as_token_ids: bool,
}

impl OwnOptions {
    /// What a request asks for that has none of these: one answer, drawn, to the whole prompt.
    pub(crate) fn of(names: &'static FieldNames) -> Self {
        Self {
            names,
            request_id: None,
            demand: None,
            n: 1,
            best_of: 1,
            beams: None,
            logprobs: None,
            prompt_logprobs: None,
            echoed_logprobs: None,
            stop_strings: Vec::new(),
            max_tokens: None,
            context: None,
            cut: None,
            prediction: None,
            max_drafts: None,
            return_token_ids: false,
            tokens_as_token_ids: false,
        }
    }
}

/// What is kept of a prompt that may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PromptCut {
    /// Most tokens.
    pub(crate) most: usize,
    /// Which end is cut.
    pub(crate) side: CutSide,
}

/// What a request asks for, in range.
#[derive(Debug)]
pub(crate) struct GenerationOptions {
    /// What the protocol has names of its own for.
    pub(crate) own: OwnOptions,
    /// For choice 0, without what needs the prompt; the others differ in the seed.
    pub(crate) sampling: SamplingParams,
    /// As it stands in the answer.
    pub(crate) seed: i64,
    pub(crate) dry: Option<DryOptions>,
    /// Texts that the answer may not hold, which are not tokens yet.
    pub(crate) bad_words: Vec<String>,
    pub(crate) include_stop_str_in_output: bool,
    pub(crate) skip_special_tokens: bool,
    pub(crate) priority: i32,
    pub(crate) tier: ServiceTier,
    pub(crate) cache_salt: Option<String>,
    /// For the whole request, from its arrival.
    pub(crate) deadline: Option<Duration>,
    pub(crate) ignore_eos: bool,
    min_tokens: usize,
    stop_token_ids: Vec<u32>,
    max_model_len: usize,
}

impl GenerationOptions {
    /// Checks every field against its range.
    pub(crate) fn new(
        own: OwnOptions,
        scalars: &ScalarFields,
        common: &CommonFields,
        arrival: &Arrival,
        state: &AppState,
    ) -> Result<Self, ApiError> {
        let limits = state.engine.limits();
        let tier = ServiceTier::of(common.service_tier.as_deref())?;
        let seed =
            common.seed.filter(|seed| *seed != Int(-1)).map_or_else(draw_seed, |seed| seed.0);
        let min_tokens = integer("min_tokens", common.min_tokens, 0, i64::MAX)?.unwrap_or(0);
        let stop_ids = common.stop_token_ids.as_deref().unwrap_or_default();
        Ok(Self {
            sampling: sampling_params(&own, scalars, common, seed, state)?,
            seed,
            dry: DryOptions::new(common)?,
            bad_words: bad_words::checked(common.bad_words.as_deref())?,
            include_stop_str_in_output: common.include_stop_str_in_output.unwrap_or(false),
            skip_special_tokens: common.skip_special_tokens.unwrap_or(true),
            priority: arrival.priority(priority(common.priority)?.unwrap_or(tier.priority())),
            tier,
            cache_salt: unshared_or(common.cache_prompt, cache_salt(common.cache_salt.as_deref())?),
            deadline: arrival.deadline(common.deadline_ms)?,
            ignore_eos: common.ignore_eos.unwrap_or(false),
            min_tokens: to_usize(min_tokens),
            stop_token_ids: token_ids("stop_token_ids", stop_ids, limits.vocab_size)?,
            max_model_len: limits.max_model_len,
            own,
        })
    }

    /// Whether the prompt is only computed, for the cache.
    pub(crate) fn prewarms(&self) -> bool {
        self.own.max_tokens == Some(0)
    }

    /// Most likely tokens that the engine looks up at each position of the prompt.
    pub(crate) fn scored_prompt(&self) -> Option<u32> {
        self.own.prompt_logprobs.max(self.own.echoed_logprobs)
    }

    /// How the tokens of logprobs are spelled.
    pub(crate) fn logprob_spelling(&self, state: &AppState) -> LogprobSpelling {
        let as_token_ids = self.own.tokens_as_token_ids;
        LogprobSpelling::new(state.tokenizer.clone(), as_token_ids, self.skip_special_tokens)
    }

    /// Sequences that each prompt takes in the engine.
    pub(crate) fn num_sequences(&self) -> usize {
        self.own.beams.map_or(self.own.best_of, |beams| beams.width)
    }

    /// When to end after a prompt of `prompt_tokens`, with a `max_tokens` that doesn't fit behind it
    /// shortened or refused.
    pub(crate) fn stop_conditions(
        &self,
        prompt_tokens: usize,
        shortening: Shortening,
        eos_token_ids: &Arc<[u32]>,
    ) -> Result<StopConditions, ApiError> {
        let FieldNames { prompt: param, max_tokens: name, .. } = *self.own.names;
        let context = self.own.context.unwrap_or(usize::MAX).min(self.max_model_len);
        let exceeded = |answer| {
            let exceeded = ContextExceeded { context, prompt: prompt_tokens, param, answer };
            Err(ApiError::ContextExceeded(exceeded))
        };
        if prompt_tokens >= context {
            return exceeded(None);
        }
        let room = context - prompt_tokens;
        let max_tokens = match self.own.max_tokens {
            Some(asked) if asked > shortening.longest(context, room) => {
                return exceeded(Some((name, asked)));
            }
            // The engine computes a prompt to draw a token; the answer drops it.
            Some(asked) => asked.max(1).min(room),
            None => room,
        };
        if self.min_tokens > max_tokens {
            let message = format!(
                "min_tokens must be at most {name} ({max_tokens}), got {}",
                self.min_tokens
            );
            return Err(ApiError::field("min_tokens", message));
        }
        let stop = StopConditions {
            max_tokens,
            min_tokens: self.min_tokens,
            eos_token_ids: Arc::clone(eos_token_ids),
            stop_token_ids: self.stop_token_ids.clone(),
            ignore_eos: self.ignore_eos,
        };
        self.check_first_tokens(&stop)?;
        Ok(stop)
    }

    /// Checks that something can be drawn while nothing may end the answer.
    fn check_first_tokens(&self, stop: &StopConditions) -> Result<(), ApiError> {
        let Some(allowed) = &self.sampling.allowed_token_ids else { return Ok(()) };
        let suppressed = stop.suppressed_before_min_tokens();
        if stop.min_tokens == 0 || !allowed.iter().all(|id| suppressed.contains(id)) {
            return Ok(());
        }
        let message = format!(
            "allowed_token_ids has only tokens that end an answer, which min_tokens ({}) keeps \
             from ending",
            stop.min_tokens
        );
        Err(ApiError::field("allowed_token_ids", message))
    }
}

/// Which `max_tokens` are shortened that don't fit behind the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortening {
    /// None.
    Never,
    /// Those that fit the context without a prompt.
    WithinContext,
    /// All.
    Always,
}

impl Shortening {
    /// The longest answer that may be asked for.
    fn longest(self, context: usize, room: usize) -> usize {
        match self {
            Self::Never => room,
            Self::WithinContext => context,
            Self::Always => usize::MAX,
        }
    }
}

/// Checks the place in the queue.
pub(crate) fn priority(value: Option<Int>) -> Result<Option<i32>, ApiError> {
    let value = integer("priority", value, i32::MIN.into(), i32::MAX.into())?;
    Ok(value.map(|value| i32::try_from(value).expect("in the range just checked")))
}

/// Checks what keeps prefixes of requests apart.
pub(crate) fn cache_salt(salt: Option<&str>) -> Result<Option<String>, ApiError> {
    match salt.map(|salt| salt.chars().count()) {
        Some(length) if !(1..=MAX_CACHE_SALT_CHARS).contains(&length) => {
            let message = format!(
                "cache_salt must have 1 to {MAX_CACHE_SALT_CHARS} characters, got {length}"
            );
            Err(ApiError::field("cache_salt", message))
        }
        _ => Ok(salt.map(str::to_owned)),
    }
}

/// What keeps the prefixes of a request apart: one that nobody else has, if it is to share none.
fn unshared_or(cache_prompt: Option<bool>, salt: Option<String>) -> Option<String> {
    if cache_prompt == Some(false) { Some(Uuid::new_v4().to_string()) } else { salt }
}

fn sampling_params(
    own: &OwnOptions,
    scalars: &ScalarFields,
    common: &CommonFields,
    seed: i64,
    state: &AppState,
) -> Result<SamplingParams, ApiError> {
    let vocab_size = state.engine.limits().vocab_size;
    let mut params = SamplingParams {
        top_k: top_k(common.top_k, state)?,
        repeat_last_n: repeat_last_n(common)?,
        logit_bias: logit_bias(common.logit_bias.as_ref(), vocab_size)?,
        allowed_token_ids: allowed_token_ids(common.allowed_token_ids.as_deref(), vocab_size)?,
        seed: seed.cast_unsigned(),
        // The choices with the best logprobs are kept.
        logprobs: own.logprobs.or((own.best_of > own.n).then_some(0)),
        logprob_token_ids: logprob_token_ids(common, own, vocab_size)?,
        ..SamplingParams::default()
    };
    for (scalar, value) in SCALARS.iter().zip(scalars.values()) {
        let Some(value) = value.or_else(|| state.defaults.scalar(scalar.name)) else { continue };
        let checked = scalar.check(value).map_err(|bound| {
            let message = format!("{} must be {bound}, got {value}", scalar.name);
            ApiError::field(scalar.name, message)
        })?;
        (scalar.set)(&mut params, checked);
    }
    if params.temperature < GREEDY_TEMPERATURE {
        params.temperature = 0.0;
    }
    Ok(params)
}

/// How many of the last tokens penalties look at, if not at all.
fn repeat_last_n(common: &CommonFields) -> Result<Option<usize>, ApiError> {
    let last_n = integer("repeat_last_n", common.repeat_last_n, -1, i64::MAX)?;
    Ok(last_n.and_then(|last_n| usize::try_from(last_n).ok()))
}

/// Keeping the whole vocabulary is the same as not filtering, which is 0.
fn top_k(field: Option<Int>, state: &AppState) -> Result<u32, ApiError> {
    let top_k = integer("top_k", field, -1, i64::MAX)?.or(state.defaults.top_k).unwrap_or(0);
    let vocab_size = state.engine.limits().vocab_size;
    Ok(u32::try_from(top_k).ok().filter(|top_k| (*top_k as usize) < vocab_size).unwrap_or(0))
}

fn logit_bias(
    biases: Option<&LogitBiasField>,
    vocab_size: usize,
) -> Result<Vec<(u32, f32)>, ApiError> {
    let biases = biases.map_or(&[][..], |LogitBiasField(biases)| biases);
    let invalid = |message: String| ApiError::field("logit_bias", message);
    let not_ids: Vec<String> =
        biases.iter().filter_map(|(token, _)| Some(format!("{:?}", token.not_an_id()?))).collect();
    if !not_ids.is_empty() {
        let shown = not_ids[..not_ids.len().min(10)].join(", ");
        let (keys, ids) = if not_ids.len() == 1 {
            ("key", "is not a token id")
        } else {
            ("keys", "are not token ids")
        };
        return Err(invalid(format!("logit_bias: the {keys} {shown} {ids}")));
    }
    let mut result = Vec::new();
    for (token, bias) in biases {
        let id = token_id("logit_bias", Int(token.id()), vocab_size)?;
        let Bias::Number(bias) = *bias else {
            result.push((id, f32::NEG_INFINITY));
            continue;
        };
        if !(-100.0..=100.0).contains(&bias) {
            let message =
                format!("logit_bias: the bias of {id} must be in [-100, 100], got {bias}");
            return Err(invalid(message));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the sampler works in f32")]
        result.push((id, bias as f32));
    }
    result.sort_by_key(|(id, _)| *id);
    Ok(result)
}

/// The only tokens of an answer, ascending. A model that should be able to end has one for that
/// among them.
fn allowed_token_ids(
    field: Option<&[Int]>,
    vocab_size: usize,
) -> Result<Option<Arc<[u32]>>, ApiError> {
    const NAME: &str = "allowed_token_ids";
    let Some(ids) = field else { return Ok(None) };
    if ids.is_empty() {
        return Err(ApiError::field(NAME, format!("{NAME} must have at least one token id")));
    }
    let mut ids = token_ids(NAME, ids, vocab_size)?;
    ids.sort_unstable();
    Ok(Some(ids.into()))
}

/// The tokens whose logprobs are told.
fn logprob_token_ids(
    common: &CommonFields,
    own: &OwnOptions,
    vocab_size: usize,
) -> Result<Option<Arc<[u32]>>, ApiError> {
    const NAME: &str = "logprob_token_ids";
    let Some(ids) = common.logprob_token_ids.as_deref().filter(|ids| !ids.is_empty()) else {
        return Ok(None);
    };
    if own.logprobs.is_none() {
        return Err(ApiError::field(NAME, format!("{NAME} needs logprobs to be asked for")));
    }
    if ids.len() > MAX_LOGPROB_TOKENS {
        let message =
            format!("{NAME} must have at most {MAX_LOGPROB_TOKENS} ids, got {}", ids.len());
        return Err(ApiError::field(NAME, message));
    }
    Ok(Some(token_ids(NAME, ids, vocab_size)?.into()))
}

/// A seed that JSON numbers carry without loss in every language.
fn draw_seed() -> i64 {
    i64::from(rand::random::<u32>())
}
