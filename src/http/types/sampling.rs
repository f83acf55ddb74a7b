//! The only conversion from wire fields to [`SamplingParams`] and [`StopConditions`].
//!
//! Every range is checked here; whatever comes out is valid for this model. The length bound needs
//! the prompt, so it is resolved last, by [`GenerationOptions::stop_conditions`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::beams::{EarlyStoppingField, beam_params};
use super::dry::{DryOptions, dry_options};
use super::number::Int;
use super::schema::chat::{
    EarlyStopping, LogitBias, ResponseFormat, SequenceBreakers, Stop, StructuredOutputs,
};
use super::schema::served::TokenId;
use super::stop::{StopField, stop_strings};
use crate::engine::EngineLimits;
use crate::http::delta::DecodingOptions;
use crate::http::error::ApiError;
use crate::http::grammar::Demand;
use crate::http::reader::ReadingPlan;
use crate::http::state::GenerationDefaults;
use crate::sampling::params::{BeamParams, Breakers, DryParams, SamplingParams};
use crate::sampling::thoughts::ThoughtParams;
use crate::scheduler::stop::StopConditions;
use crate::structured::grammar::Grammar;

/// Below this, a temperature means greedy.
const GREEDY_BELOW: f64 = 1e-5;
/// Most alternatives that logprobs may list.
const MAX_TOP_LOGPROBS: i64 = 20;
/// Most choices of a prompt.
pub(super) const MAX_CHOICES: i64 = 128;
/// A day.
pub(crate) const MAX_DEADLINE_MS: i64 = 86_400_000;
/// `xtc_threshold` of a request that doesn't say.
const DEFAULT_XTC: f64 = 0.1;
const MAX_CACHE_SALT_CHARS: usize = 128;

/// The fields that chat and text completions share.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
    #[schema(minimum = 0.0, maximum = 2.0)]
    pub(crate) temperature: Option<f64>,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub(crate) top_p: Option<f64>,
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) top_k: Option<Int>,
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub(crate) min_p: Option<f64>,
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub(crate) typical_p: Option<f64>,
    #[schema(minimum = -1.0, maximum = 100.0)]
    pub(crate) top_n_sigma: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub(crate) xtc_probability: Option<f64>,
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub(crate) xtc_threshold: Option<f64>,
    #[schema(minimum = 0.0, maximum = 100.0)]
    pub(crate) dry_multiplier: Option<f64>,
    #[schema(minimum = 1.0, maximum = 100.0)]
    pub(crate) dry_base: Option<f64>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) dry_allowed_length: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) dry_penalty_last_n: Option<Int>,
    #[schema(value_type = Option<SequenceBreakers>)]
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    #[schema(minimum = 1.175_494_4e-38, maximum = 3.402_823_4e38)]
    pub(crate) repetition_penalty: Option<f64>,
    #[schema(minimum = -2.0, maximum = 2.0)]
    pub(crate) frequency_penalty: Option<f64>,
    #[schema(minimum = -2.0, maximum = 2.0)]
    pub(crate) presence_penalty: Option<f64>,
    #[schema(value_type = Option<LogitBias>)]
    pub(crate) logit_bias: Option<HashMap<String, f64>>,
    #[schema(value_type = Option<i64>)]
    pub(crate) seed: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) n: Option<Int>,
    #[schema(value_type = Option<Stop>)]
    pub(crate) stop: Option<StopField>,
    #[schema(value_type = Option<Vec<TokenId>>)]
    pub(crate) stop_token_ids: Option<Vec<Int>>,
    pub(crate) include_stop_str_in_output: Option<bool>,
    pub(crate) skip_special_tokens: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) min_tokens: Option<Int>,
    pub(crate) ignore_eos: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) max_tokens: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) max_completion_tokens: Option<Int>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    pub(crate) return_token_ids: Option<bool>,
    pub(crate) return_tokens_as_token_ids: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) prompt_logprobs: Option<Int>,
    #[schema(value_type = Option<ResponseFormat>)]
    pub(crate) response_format: Option<Value>,
    #[schema(value_type = Option<StructuredOutputs>)]
    pub(crate) structured_outputs: Option<Value>,
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) thinking_token_budget: Option<Int>,
    pub(crate) use_beam_search: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) beam_width: Option<Int>,
    #[schema(minimum = -10.0, maximum = 10.0)]
    pub(crate) length_penalty: Option<f64>,
    #[schema(value_type = Option<EarlyStopping>)]
    pub(crate) early_stopping: Option<EarlyStoppingField>,
}

/// What a request asks for, in range.
#[derive(Clone, Debug)]
pub(crate) struct GenerationOptions {
    /// For choice 0; the others differ in the seed.
    sampling: SamplingParams,
    /// As it stands in the answer.
    pub(crate) seed: i64,
    /// What the answer must be like, tools aside.
    pub(crate) demand: Option<Demand>,
    /// What repetitions cost, until its texts are tokens.
    dry: Option<DryOptions>,
    /// Most tokens of thoughts.
    pub(crate) thought_budget: Option<usize>,
    /// Choices per prompt.
    pub(crate) n: usize,
    /// Sequences per prompt, of which the `n` best are the choices.
    pub(crate) best_of: usize,
    /// How to search the choices instead of drawing them.
    pub(crate) beams: Option<BeamParams>,
    /// Most likely tokens to report at each position of the prompt.
    pub(crate) prompt_logprobs: Option<u8>,
    /// The same, for a prompt that is repeated with logprobs before the answer.
    pub(crate) echoed_logprobs: Option<u8>,
    /// How the tokens become text.
    pub(crate) decoding: DecodingOptions,
    pub(crate) priority: i32,
    pub(crate) cache_salt: Option<String>,
    pub(crate) return_token_ids: bool,
    pub(crate) tokens_as_token_ids: bool,
    /// For the whole request, from its arrival.
    pub(crate) deadline: Option<Duration>,
    max_tokens: Option<usize>,
    min_tokens: usize,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    max_model_len: usize,
}

impl GenerationOptions {
    /// Checks every field against its range. `logprobs` comes from the caller, since the two
    /// endpoints spell it differently; so does `best_of`, which only one of them has.
    pub(crate) fn new(
        fields: &SamplingFields,
        logprobs: Option<u8>,
        best_of: Option<Int>,
        defaults: &GenerationDefaults,
        limits: &EngineLimits,
    ) -> Result<Self, ApiError> {
        let seed = fields.seed.map_or_else(draw_seed, |seed| seed.0);
        let n = integer("n", fields.n, 1, MAX_CHOICES)?.map_or(1, to_usize);
        let best_of = integer("best_of", best_of, 1, MAX_CHOICES)?.map(to_usize);
        let beams = beam_params(fields, n, best_of)?;
        let best_of = best_of.filter(|_| beams.is_none()).unwrap_or(n);
        if best_of < n {
            let message = format!("best_of must be at least n ({n}), got {best_of}");
            return Err(ApiError::field("best_of", message));
        }
        // Logprobs rank what is drawn.
        let ranking = logprobs.or((best_of > n).then_some(0));
        let demand =
            Demand::of_fields(fields.response_format.as_ref(), fields.structured_outputs.as_ref())?;
        let budget = integer("thinking_token_budget", fields.thinking_token_budget, -1, i64::MAX)?;
        let thought_budget = budget.and_then(|budget| usize::try_from(budget).ok());
        let max_tokens = max_tokens(fields)?;
        let min_tokens = integer("min_tokens", fields.min_tokens, 0, i64::MAX)?.unwrap_or(0);
        Ok(Self {
            sampling: sampling_params(fields, seed, ranking, defaults, limits.vocab_size)?,
            seed,
            dry: dry_options(fields)?,
            demand,
            thought_budget,
            n,
            best_of,
            beams,
            prompt_logprobs: top_logprobs("prompt_logprobs", fields.prompt_logprobs)?,
            echoed_logprobs: None,
            decoding: DecodingOptions {
                stop_strings: stop_strings(fields.stop.as_ref())?,
                include_stop_str_in_output: fields.include_stop_str_in_output.unwrap_or(false),
                skip_special_tokens: fields.skip_special_tokens.unwrap_or(true),
                reading: ReadingPlan::default(),
            },
            priority: priority(fields.priority)?,
            cache_salt: cache_salt(fields.cache_salt.as_deref())?,
            return_token_ids: fields.return_token_ids.unwrap_or(false),
            tokens_as_token_ids: fields.return_tokens_as_token_ids.unwrap_or(false),
            deadline: deadline(fields.deadline_ms)?,
            max_tokens,
            min_tokens: to_usize(min_tokens),
            stop_token_ids: token_ids("stop_token_ids", fields.stop_token_ids.as_deref(), limits)?,
            ignore_eos: fields.ignore_eos.unwrap_or(false),
            max_model_len: limits.max_model_len,
        })
    }

    /// Sets what `max_tokens` is when the request doesn't say.
    pub(crate) fn with_default_max_tokens(mut self, max_tokens: usize) -> Self {
        self.max_tokens.get_or_insert(max_tokens);
        self
    }

    /// Most likely tokens that the engine looks up at each position of the prompt.
    pub(crate) fn scored_prompt(&self) -> Option<u8> {
        self.prompt_logprobs.max(self.echoed_logprobs)
    }

    /// Sequences that each prompt takes in the engine.
    pub(crate) fn num_sequences(&self) -> usize {
        self.beams.map_or(self.best_of, |beams| beams.width)
    }

    /// Sets what repetitions cost; `tokens_of` finds the tokens of the texts that cut them.
    pub(crate) fn break_repetitions(&mut self, tokens_of: impl Fn(&[String]) -> Arc<Breakers>) {
        if let Some(DryOptions { params, breakers }) = self.dry.take() {
            self.sampling.dry = Some(DryParams { breakers: tokens_of(&breakers), ..params });
        }
    }

    /// Whether [`Self::break_repetitions`] has anything to do.
    pub(crate) fn minds_repetitions(&self) -> bool {
        self.dry.is_some()
    }

    /// Sets what the answer must be like, and the thoughts before it.
    pub(crate) fn constrain(
        &mut self,
        grammar: Option<Arc<Grammar>>,
        thoughts: Option<ThoughtParams>,
    ) -> Result<(), ApiError> {
        if grammar.is_some() && self.ignore_eos {
            let message = "ignore_eos can't be kept together with a grammar, which says where the \
                           answer ends";
            return Err(ApiError::field("ignore_eos", message));
        }
        self.sampling.grammar = grammar;
        self.sampling.thoughts = thoughts;
        Ok(())
    }

    /// How choice `index` of a prompt draws: choice 0 with the request's seed, the others with
    /// seeds derived from it.
    pub(crate) fn sampling(&self, index: usize) -> SamplingParams {
        SamplingParams { seed: derive_seed(self.sampling.seed, index), ..self.sampling.clone() }
    }

    /// When to end after a prompt of `prompt_tokens`. Without `clamp`, a `max_tokens` that doesn't
    /// fit the context is an error.
    pub(crate) fn stop_conditions(
        &self,
        prompt_tokens: usize,
        clamp: bool,
        eos_token_ids: &Arc<[u32]>,
    ) -> Result<StopConditions, ApiError> {
        let context = self.max_model_len;
        if prompt_tokens >= context {
            return Err(context_exceeded(format!(
                "the prompt has {prompt_tokens} tokens, which leaves no room to answer in a \
                 context of {context} tokens"
            )));
        }
        let room = context - prompt_tokens;
        let max_tokens = match self.max_tokens {
            Some(asked) if asked > room && !clamp => {
                return Err(context_exceeded(format!(
                    "the prompt has {prompt_tokens} tokens and max_tokens is {asked}, together \
                     {}, but the context holds {context} tokens",
                    prompt_tokens.saturating_add(asked)
                )));
            }
            Some(asked) => asked.min(room),
            None => room,
        };
        if self.min_tokens > max_tokens {
            let message = format!(
                "min_tokens must be at most max_tokens ({max_tokens}), got {}",
                self.min_tokens
            );
            return Err(ApiError::field("min_tokens", message));
        }
        Ok(StopConditions {
            max_tokens,
            min_tokens: self.min_tokens,
            eos_token_ids: Arc::clone(eos_token_ids),
            stop_token_ids: self.stop_token_ids.clone(),
            ignore_eos: self.ignore_eos,
        })
    }
}

/// Checks the number of alternatives that logprobs list; `name` is the field's.
pub(crate) fn top_logprobs(name: &str, value: Option<Int>) -> Result<Option<u8>, ApiError> {
    let value = integer(name, value, 0, MAX_TOP_LOGPROBS)?;
    Ok(value.map(|value| u8::try_from(value).expect("20 fits")))
}

/// Checks that a token id is one of the model's.
pub(crate) fn token_id(name: &str, value: Int, vocab_size: usize) -> Result<u32, ApiError> {
    let id = u32::try_from(value.0).ok().filter(|id| (*id as usize) < vocab_size);
    id.ok_or_else(|| {
        let message = format!("{name}: token ids must be in 0..{vocab_size}, got {}", value.0);
        ApiError::field(name, message)
    })
}

fn sampling_params(
    fields: &SamplingFields,
    seed: i64,
    logprobs: Option<u8>,
    defaults: &GenerationDefaults,
    vocab_size: usize,
) -> Result<SamplingParams, ApiError> {
    let temperature = fields.temperature.or(defaults.temperature);
    let temperature = within("temperature", temperature, 0.0, 2.0)?.unwrap_or(1.0);
    let top_k = integer("top_k", fields.top_k, -1, i64::MAX)?.or(defaults.top_k);
    Ok(SamplingParams {
        temperature: if temperature < GREEDY_BELOW { 0.0 } else { to_f32(temperature) },
        top_p: to_f32(above_zero("top_p", fields.top_p.or(defaults.top_p), 1.0)?.unwrap_or(1.0)),
        top_k: resolve_top_k(top_k.unwrap_or(0), vocab_size),
        min_p: to_f32(within("min_p", fields.min_p.or(defaults.min_p), 0.0, 1.0)?.unwrap_or(0.0)),
        typical_p: to_f32(above_zero("typical_p", fields.typical_p, 1.0)?.unwrap_or(1.0)),
        top_n_sigma: to_f32(top_n_sigma(fields.top_n_sigma)?),
        xtc_probability: to_f32(
            within("xtc_probability", fields.xtc_probability, 0.0, 1.0)?.unwrap_or(0.0),
        ),
        xtc_threshold: to_f32(
            within("xtc_threshold", fields.xtc_threshold, 0.0, 1.0)?.unwrap_or(DEFAULT_XTC),
        ),
        dry: None,
        repetition_penalty: repetition_penalty(
            fields.repetition_penalty.or(defaults.repetition_penalty),
        )?,
        frequency_penalty: penalty("frequency_penalty", fields.frequency_penalty)?,
        presence_penalty: penalty("presence_penalty", fields.presence_penalty)?,
        logit_bias: logit_bias(fields.logit_bias.as_ref(), vocab_size)?,
        seed: seed.cast_unsigned(),
        logprobs,
        grammar: None,
        thoughts: None,
    })
}

pub(super) fn within(
    name: &str,
    value: Option<f64>,
    low: f64,
    high: f64,
) -> Result<Option<f64>, ApiError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            let message = format!("{name} must be in [{low}, {high}], got {value}");
            Err(ApiError::field(name, message))
        }
        value => Ok(value),
    }
}

fn above_zero(name: &str, value: Option<f64>, high: f64) -> Result<Option<f64>, ApiError> {
    match value {
        Some(value) if !(value > 0.0 && value <= high) => {
            Err(ApiError::field(name, format!("{name} must be in (0, {high}], got {value}")))
        }
        value => Ok(value),
    }
}

fn penalty(name: &str, value: Option<f64>) -> Result<f32, ApiError> {
    within(name, value, -2.0, 2.0).map(|value| to_f32(value.unwrap_or(0.0)))
}

/// Below 0 it is off, as 0 is.
fn top_n_sigma(value: Option<f64>) -> Result<f64, ApiError> {
    within("top_n_sigma", value, -1.0, 100.0).map(|value| value.unwrap_or(0.0).max(0.0))
}

fn repetition_penalty(value: Option<f64>) -> Result<f32, ApiError> {
    let value = value.unwrap_or(1.0);
    let narrow = to_f32(value);
    // A value too small or too large for f32 would divide by zero or erase every logit.
    if narrow.is_normal() && narrow > 0.0 {
        return Ok(narrow);
    }
    let message = format!("repetition_penalty must be above 0 and finite, got {value}");
    Err(ApiError::field("repetition_penalty", message))
}

fn resolve_top_k(top_k: i64, vocab_size: usize) -> u32 {
    // Keeping the whole vocabulary is the same as not filtering.
    match u32::try_from(top_k) {
        Ok(top_k) if (top_k as usize) < vocab_size => top_k,
        _ => 0,
    }
}

fn logit_bias(
    biases: Option<&HashMap<String, f64>>,
    vocab_size: usize,
) -> Result<Vec<(u32, f32)>, ApiError> {
    let mut result = Vec::new();
    for (key, &bias) in biases.into_iter().flatten() {
        let invalid = |message: String| ApiError::field("logit_bias", message);
        let id: i64 = key
            .parse()
            .map_err(|_| invalid(format!("logit_bias: the key {key:?} is not a token id")))?;
        let id = token_id("logit_bias", Int(id), vocab_size)?;
        if !(-100.0..=100.0).contains(&bias) {
            let message =
                format!("logit_bias: the bias of {id} must be in [-100, 100], got {bias}");
            return Err(invalid(message));
        }
        result.push((id, to_f32(bias)));
    }
    result.sort_by_key(|(id, _)| *id);
    Ok(result)
}

fn max_tokens(fields: &SamplingFields) -> Result<Option<usize>, ApiError> {
    let completion = integer("max_completion_tokens", fields.max_completion_tokens, 1, i64::MAX)?;
    let plain = integer("max_tokens", fields.max_tokens, 1, i64::MAX)?;
    Ok(completion.or(plain).map(to_usize))
}

/// Checks the place in the queue.
pub(crate) fn priority(value: Option<Int>) -> Result<i32, ApiError> {
    let value = integer("priority", value, i32::MIN.into(), i32::MAX.into())?;
    Ok(value.map_or(0, |value| i32::try_from(value).expect("in the range just checked")))
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

/// Checks how long a request may take.
pub(crate) fn deadline(value: Option<Int>) -> Result<Option<Duration>, ApiError> {
    let value = integer("deadline_ms", value, 1, MAX_DEADLINE_MS)?;
    Ok(value.map(|value| Duration::from_millis(value.unsigned_abs())))
}

fn token_ids(name: &str, ids: Option<&[Int]>, limits: &EngineLimits) -> Result<Vec<u32>, ApiError> {
    let ids = ids.unwrap_or_default().iter();
    ids.map(|id| token_id(name, *id, limits.vocab_size)).collect()
}

/// Checks that an integer is in a range.
pub(crate) fn integer(
    name: &str,
    value: Option<Int>,
    low: i64,
    high: i64,
) -> Result<Option<i64>, ApiError> {
    match value {
        Some(Int(value)) if !(low..=high).contains(&value) => {
            let bound = if high == i64::MAX {
                format!("at least {low}")
            } else {
                format!("in [{low}, {high}]")
            };
            Err(ApiError::field(name, format!("{name} must be {bound}, got {value}")))
        }
        value => Ok(value.map(|Int(value)| value)),
    }
}

/// A prompt that doesn't fit, alone or with its answer.
pub(crate) fn context_exceeded(message: String) -> ApiError {
    let param = Some("max_tokens".to_owned());
    ApiError::Invalid { message, param, code: Some("context_length_exceeded") }
}

/// A seed that JSON numbers carry without loss in every language.
fn draw_seed() -> i64 {
    i64::from(rand::random::<u32>())
}

/// `splitmix64` of the seed and the index (Steele, Lea, Flood 2014); index 0 keeps the seed.
fn derive_seed(seed: u64, index: usize) -> u64 {
    if index == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub(super) fn to_usize(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "the sampler works in f32")]
pub(super) fn to_f32(value: f64) -> f32 {
    value as f32
}
