//! A request with everything that the engine is told, and its way there: one engine request per
//! choice, whose outputs become one generation.

use std::sync::Arc;
use std::time::Instant;

use super::bad_words::token_sequences;
use super::options::{GenerationOptions, Shortening};
use crate::engine::adapter::Adapter;
use crate::engine::output::OutputStream;
use crate::engine::request::{BeamRequest, EngineRequest, RequestId};
use crate::http::answer::decoder::{ChoiceDecoder, DecodingOptions};
use crate::http::answer::generation::{Bounds, Choice, Generation};
use crate::http::answer::meter::Meter;
use crate::http::answer::reader::ReadingPlan;
use crate::http::error::ApiError;
use crate::http::request::blocking::off_thread;
use crate::http::state::AppState;
use crate::http::state::admission::Permit;
use crate::http::state::caller;
use crate::pictures::picture::PlacedPicture;
use crate::sampling::params::SamplingParams;
use crate::sampling::reasoning::ReasoningParams;
use crate::scheduler::stop::StopConditions;
use crate::sounds::sound::PlacedSound;
use crate::structured::grammar::Grammar;

/// A request that passed every check, complete.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What the request's model adds to the served one.
    adapter: Option<Adapter>,
    pub(crate) options: GenerationOptions,
    /// For choice 0; the others differ in the seed.
    sampling: SamplingParams,
    /// The text that the answer may be, as tokens.
    prediction: Option<Vec<u32>>,
    /// How the tokens become text.
    pub(crate) decoding: DecodingOptions,
    arrival: Instant,
}

/// What binds the tokens of an answer.
#[derive(Debug, Default)]
pub(crate) struct Constraints {
    pub(crate) grammar: Option<Arc<Grammar>>,
    pub(crate) reasoning: Option<ReasoningParams>,
}

/// What a prompt has beside its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Media<'a> {
    pub(crate) pictures: &'a [PlacedPicture],
    pub(crate) sounds: &'a [PlacedSound],
}

impl Plan {
    /// Completes the options of a request that arrived at `arrival`.
    pub(crate) async fn new(
        state: &AppState,
        mut options: GenerationOptions,
        constraints: Constraints,
        reading: ReadingPlan,
        adapter: Option<Adapter>,
        arrival: Instant,
    ) -> Result<Self, ApiError> {
        let Constraints { grammar, reasoning } = constraints;
        if grammar.is_some() && options.ignore_eos {
            let message = "ignore_eos can't be kept together with a grammar, which says where the \
                           answer ends";
            return Err(ApiError::field("ignore_eos", message));
        }
        if grammar.is_some() && options.sampling.allowed_token_ids.is_some() {
            let message = "allowed_token_ids can't be kept together with a grammar, which needs \
                           tokens of its own";
            return Err(ApiError::field("allowed_token_ids", message));
        }
        let decoding = DecodingOptions {
            stop_strings: std::mem::take(&mut options.own.stop_strings),
            include_stop_str_in_output: options.include_stop_str_in_output,
            skip_special_tokens: options.skip_special_tokens,
            reading,
        };
        let mut sampling = SamplingParams { grammar, reasoning, ..options.sampling.clone() };
        if let Some(dry) = options.dry.take() {
            let state = state.clone();
            sampling.dry = Some(
                off_thread(move || {
                    let tokens = state.breakers.tokens(&dry.breakers, &state.tokenizer);
                    Ok(dry.with_tokens(tokens))
                })
                .await?,
            );
        }
        if !options.bad_words.is_empty() {
            let words = std::mem::take(&mut options.bad_words);
            let tokenizer = Arc::clone(&state.tokenizer);
            sampling.bad_words = off_thread(move || token_sequences(&words, &tokenizer)).await?;
        }
        let prediction = match options.own.prediction.take() {
            Some(text) => Some(predicted_tokens(state, text).await?),
            None => None,
        };
        Ok(Self { adapter, options, sampling, prediction, decoding, arrival })
    }

    /// Queues `best_of` sequences per prompt; sequence `i` of prompt `p` has the index
    /// `p * best_of + i`.
    pub(crate) fn submit(
        &self,
        state: &AppState,
        permit: Permit,
        prompts: &[Vec<u32>],
    ) -> Result<Generation, ApiError> {
        self.submit_with(state, permit, prompts, Media::default())
    }

    /// The same for prompts that all have these pictures and sounds.
    pub(crate) fn submit_with(
        &self,
        state: &AppState,
        permit: Permit,
        prompts: &[Vec<u32>],
        media: Media<'_>,
    ) -> Result<Generation, ApiError> {
        let shortening = match &state.config {
            config if config.clamp_max_tokens => Shortening::Always,
            config if config.strict => Shortening::Never,
            _ => Shortening::WithinContext,
        };
        let options = &self.options;
        let stop = |prompt: &Vec<u32>| {
            options.stop_conditions(prompt.len(), shortening, &state.eos_token_ids)
        };
        let stops = prompts.iter().map(stop).collect::<Result<Vec<StopConditions>, _>>()?;
        let least = stops.iter().map(|stop| stop.max_tokens).min();
        let shortened =
            least.filter(|least| options.own.max_tokens.is_some_and(|own| own > *least));
        state.queue_tokens(&permit, prompts.iter().map(Vec::len).sum())?;
        let copies = self.options.own.best_of;
        let mut choices = Vec::with_capacity(prompts.len() * copies);
        for (prompt, stop) in prompts.iter().zip(stops) {
            state.metrics.request_submitted(copies, stop.max_tokens);
            for (copy, output) in self.outputs(state, prompt, media, &stop).into_iter().enumerate()
            {
                // The prompt counts once.
                let counted = if copy == 0 { prompt.len() } else { 0 };
                let meter = Meter::new(state.metrics.clone(), self.arrival, counted);
                let tokenizer = Arc::clone(&state.tokenizer);
                let decoder = ChoiceDecoder::new(tokenizer, &self.decoding, stop.clone());
                let choice = Choice::new(choices.len(), output, decoder, meter);
                choices.push(if options.prewarms() { choice.prewarming() } else { choice });
            }
        }
        let deadline = self.options.deadline;
        let cut = state.cut_signal();
        let bounds = Bounds { arrival: self.arrival, deadline, cut, permit };
        Ok(Generation::new(choices, bounds, shortened))
    }

    /// Queues a prompt; what comes of each of its sequences, or of each answer of its search.
    fn outputs(
        &self,
        state: &AppState,
        prompt: &[u32],
        media: Media<'_>,
        stop: &StopConditions,
    ) -> Vec<OutputStream> {
        let options = &self.options;
        let request = |copy| EngineRequest {
            id: RequestId::next(),
            prompt_token_ids: prompt.to_vec(),
            sampling: SamplingParams {
                seed: derive_seed(self.sampling.seed, copy),
                ..self.sampling.clone()
            },
            stop: stop.clone(),
            prompt_logprobs: options.scored_prompt(),
            priority: options.priority,
            share: caller::share(),
            prediction: self.prediction.clone(),
            max_drafts: options.own.max_drafts,
            cache_salt: options.cache_salt.clone(),
            adapter: self.adapter.clone(),
            pictures: media.pictures.to_vec(),
            sounds: media.sounds.to_vec(),
        };
        match options.own.beams {
            Some(beams) => state.engine.search(BeamRequest { request: request(0), beams }),
            None => {
                (0..options.own.best_of).map(|copy| state.engine.submit(request(copy))).collect()
            }
        }
    }
}

/// Checks that a request for the prompt's logprobs neither streams nor searches.
pub(crate) fn check_prompt_logprobs(
    options: &GenerationOptions,
    streams: bool,
) -> Result<(), ApiError> {
    if streams && options.own.prompt_logprobs.is_some() {
        let message =
            "prompt_logprobs are told with the whole answer; they need stream to be false";
        return Err(ApiError::field("prompt_logprobs", message));
    }
    if options.own.beams.is_some() && options.scored_prompt().is_some() {
        let name = if options.own.prompt_logprobs.is_some() { "prompt_logprobs" } else { "echo" };
        let message = format!("{name}: a beam search doesn't tell the prompt's logprobs");
        return Err(ApiError::field(name, message));
    }
    Ok(())
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

/// The tokens of a text that the answer may be like; an answer can't have more than the context.
async fn predicted_tokens(state: &AppState, text: String) -> Result<Vec<u32>, ApiError> {
    let tokenizer = Arc::clone(&state.tokenizer);
    let most = state.engine.limits().max_model_len;
    off_thread(move || {
        let refused = |message| ApiError::field("prediction", message);
        let tokens = tokenizer.encode_plain(&text).map_err(|error| refused(error.to_string()))?;
        if tokens.len() > most {
            let count = tokens.len();
            return Err(refused(format!("prediction has {count} tokens, the context {most}")));
        }
        Ok(tokens)
    })
    .await
}
