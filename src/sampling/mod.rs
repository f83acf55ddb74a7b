//! Which token comes next: logits and one sequence's state in, one token id out.
//!
//! The stages run in one fixed order: bias, suppressed tokens, grammar, penalties, repetitions,
//! top-n-sigma, temperature, top-k, typical-p, top-p, min-p, xtc, draw. Knows neither requests nor text.

mod bad_words;
pub mod beams;
mod constraint;
mod dry;
pub mod error;
pub mod filters;
mod kept_counts;
pub mod logprobs;
pub mod most_likely;
pub mod on_device;
pub mod params;
pub mod penalties;
pub mod reasoning;

use std::sync::{Mutex, PoisonError};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::kernels::pool;
use crate::kernels::sample::logits::{self, Scan};
use bad_words::BadWords;
use beams::Continuation;
use constraint::Constraint;
use dry::Dry;
pub use error::SamplingError;
use filters::Candidates;
use logprobs::TokenLogprobs;
pub use params::GREEDY_TEMPERATURE;
use params::SamplingParams;
use penalties::TokenCounts;

/// One drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// Its id.
    pub token_id: u32,
    /// Present when the parameters ask for logprobs.
    pub logprobs: Option<TokenLogprobs>,
    /// Tokens that follow without a choice: no other text is allowed.
    pub forced: Vec<u32>,
}

/// The tokens that a sequence gets in one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledTokens {
    /// In order; all but the last were drafted.
    pub tokens: Vec<SampledToken>,
    /// Why there are no more; `None` if there is a token at least.
    pub error: Option<SamplingError>,
}

impl From<Result<SampledToken, SamplingError>> for SampledTokens {
    fn from(sampled: Result<SampledToken, SamplingError>) -> Self {
        match sampled {
            Ok(token) => Self { tokens: vec![token], error: None },
            Err(error) => Self { tokens: Vec::new(), error: Some(error) },
        }
    }
}

/// A sequence's sampler, its drafts, and the logits behind its last token and behind each draft, each
/// `[vocab_size]`, overwritten.
pub type DraftedRows<'a> = (&'a mut SamplerState, &'a [u32], Vec<&'a mut [f32]>);

/// What one sequence carries from token to token. Survives preemption, so a token that was drawn
/// is never drawn again.
#[derive(Clone, Debug)]
pub struct SamplerState {
    params: SamplingParams,
    rng: ChaCha8Rng,
    counts: TokenCounts,
    dry: Option<Dry>,
    bad_words: Option<BadWords>,
    constraint: Option<Constraint>,
    // Ids that can't be drawn while fewer than `min_tokens` were.
    suppressed: Vec<u32>,
    min_tokens: usize,
    num_output: usize,
}

impl SamplerState {
    /// The state before the first token. `suppressed` can't be drawn among the first
    /// `min_tokens` tokens.
    pub fn new(
        params: SamplingParams,
        prompt: &[u32],
        min_tokens: usize,
        suppressed: Vec<u32>,
    ) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(params.seed),
            counts: TokenCounts::new(&params, prompt),
            dry: params.dry.clone().map(|params| Dry::new(params, prompt)),
            bad_words: BadWords::new(&params.bad_words),
            constraint: Constraint::new(&params),
            params,
            suppressed,
            min_tokens,
            num_output: 0,
        }
    }

    /// Draws the next token from `logits` (`[vocab_size]`, overwritten).
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<SampledToken, SamplingError> {
        let scan = check(logits)?;
        // Of the model's own distribution, before anything below changes it.
        let raw = self.params.logprobs.map(|_| logits.to_vec());
        let token_id = if self.alters_logits() {
            self.alter(logits)?;
            self.draw(logits, &logits::scan(logits))?
        } else {
            self.draw(logits, &scan)?
        };
        self.count(token_id);
        let forced = self.advance(token_id)?;
        let logprobs = match (raw, self.params.logprobs) {
            (Some(raw), Some(top)) => {
                let listed = self.params.logprob_token_ids.as_deref();
                Some(TokenLogprobs::of(&raw, &scan, token_id, top as usize, listed))
            }
            _ => None,
        };
        Ok(SampledToken { token_id, logprobs, forced })
    }

    /// Draws tokens one by one as long as they are the drafted ones; `rows` has the logits behind the
    /// last token and behind each of the drafts. The tokens, and the state behind them, are those of
    /// drawing each when all before it are known.
    pub fn sample_along(&mut self, drafts: &[u32], rows: Vec<&mut [f32]>) -> SampledTokens {
        let mut sampled = SampledTokens::default();
        let (mut computed, mut drafts) = (0, drafts);
        for (row, logits) in rows.into_iter().enumerate() {
            // What follows without a choice has logits as well, that nobody asks for.
            if row < computed {
                continue;
            }
            match self.sample(logits) {
                Ok(token) => sampled.tokens.push(token),
                Err(error) => return SampledTokens { error: Some(error), ..sampled },
            }
            let SampledToken { token_id, forced, .. } = &sampled.tokens[sampled.tokens.len() - 1];
            let rest = drafts.strip_prefix(&[*token_id]);
            let Some(rest) = rest.and_then(|rest| rest.strip_prefix(&forced[..])) else { break };
            computed += 1 + forced.len();
            drafts = rest;
        }
        sampled
    }

    /// Tokens that can only follow, where [`sample`](Self::sample) doesn't give them since each is to be
    /// drawn. What is drawn may be the same text in other tokens.
    pub fn required(&mut self) -> Vec<u32> {
        match &mut self.constraint {
            Some(constraint) if self.params.logprobs.is_some() => constraint.required(),
            _ => Vec::new(),
        }
    }

    /// The `count` most likely continuations, best first, instead of a draw from `logits`
    /// (`[vocab_size]`, overwritten); fewer where no more are allowed. Bias, grammar and penalties
    /// change log-probabilities, temperature and filters nothing. [`take`](Self::take) tells which
    /// one it was.
    pub fn expand(
        &mut self,
        logits: &mut [f32],
        count: usize,
    ) -> Result<Vec<Continuation>, SamplingError> {
        let scan = check(logits)?;
        let raw = self.params.logprobs.map(|_| logits.to_vec());
        logprobs::normalize(logits, &scan);
        if self.alters_logits() {
            self.alter(logits)?;
        }
        let mut ids = logprobs::most_likely(logits, &logits::scan(logits).maxima, count);
        ids.retain(|id| logits[*id as usize] > f32::NEG_INFINITY);
        let mut reported = match (raw, self.params.logprobs) {
            (Some(raw), Some(top)) => {
                let listed = self.params.logprob_token_ids.as_deref();
                TokenLogprobs::of_each(&raw, &scan, &ids, top as usize, listed)
            }
            _ => Vec::new(),
        }
        .into_iter();
        let continuations = ids.into_iter().map(|token_id| Continuation {
            token_id,
            logprob: f64::from(logits[token_id as usize]),
            reported: reported.next(),
        });
        Ok(continuations.collect())
    }

    /// Takes the token that a search chose to go on with.
    pub fn take(&mut self, token_id: u32) -> Result<(), SamplingError> {
        self.count(token_id);
        self.constraint.as_mut().map_or(Ok(()), |constraint| constraint.push(token_id))
    }

    /// Computes what the next draw needs and no logits, ahead of time.
    pub fn prepare(&mut self) {
        if let Some(constraint) = &mut self.constraint {
            constraint.prepare();
        }
    }

    /// Whether [`prepare`](Self::prepare) has anything to do.
    pub fn is_constrained(&self) -> bool {
        self.constraint.is_some()
    }

    /// Takes the drawn token, and those that can only follow it.
    fn advance(&mut self, token_id: u32) -> Result<Vec<u32>, SamplingError> {
        let Some(constraint) = &mut self.constraint else { return Ok(Vec::new()) };
        constraint.push(token_id)?;
        // Tokens that nobody draws have no logprobs.
        if self.params.logprobs.is_some() {
            return Ok(Vec::new());
        }
        let forced = constraint.force()?;
        for token in &forced {
            self.count(*token);
        }
        Ok(forced)
    }

    fn count(&mut self, token_id: u32) {
        self.counts.push(token_id);
        if let Some(dry) = &mut self.dry {
            dry.push(token_id);
        }
        if let Some(words) = &mut self.bad_words {
            words.push(token_id);
        }
        self.num_output += 1;
    }

    /// All stages before the temperature.
    fn alter(&mut self, logits: &mut [f32]) -> Result<(), SamplingError> {
        self.apply_bias(logits);
        if let Some(allowed) = &self.params.allowed_token_ids {
            filters::keep_only(logits, allowed);
        }
        if let Some(words) = &self.bad_words {
            words.apply(logits);
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.apply(logits)?;
        }
        self.counts.apply(&self.params, logits);
        if let Some(dry) = &self.dry {
            dry.apply(logits);
        }
        if self.params.top_n_sigma > 0.0 {
            filters::keep_top_n_sigma(logits, self.params.top_n_sigma);
        }
        Ok(())
    }

    fn alters_logits(&self) -> bool {
        !self.params.logit_bias.is_empty()
            || self.num_output < self.min_tokens
            || !self.counts.is_empty()
            || self.dry.is_some()
            || self.bad_words.is_some()
            || self.params.top_n_sigma > 0.0
            || self.params.allowed_token_ids.is_some()
            || self.constraint.as_ref().is_some_and(Constraint::binds)
    }

    fn apply_bias(&self, logits: &mut [f32]) {
        for (token, bias) in &self.params.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        if self.suppresses() {
            for token in &self.suppressed {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }

    /// Whether the next token may not be one of those that a least length excludes.
    fn suppresses(&self) -> bool {
        // A grammar that allows nothing more weighs heavier than a length.
        let complete = self.constraint.as_ref().is_some_and(Constraint::is_complete);
        self.num_output < self.min_tokens && !complete
    }

    fn draw(&mut self, logits: &mut [f32], scan: &Scan) -> Result<u32, SamplingError> {
        if scan.max == f32::NEG_INFINITY {
            return Err(SamplingError::BadLogits("every token is excluded".to_owned()));
        }
        let best = u32::try_from(logits::first_largest(logits, scan));
        let best = best.expect("vocabularies are below 2^32");
        if self.params.temperature < GREEDY_TEMPERATURE {
            return Ok(best);
        }
        let mut candidates = Candidates::new(&self.params, logits, scan);
        if filters::excludes_top(&self.params) {
            candidates.exclude_top(&self.params, self.rng.random());
        }
        Ok(candidates.at(self.rng.random()).unwrap_or(best))
    }
}

/// Draws the next tokens of several sequences, in parallel. What is drawn doesn't depend on the others.
pub fn sample_rows<'a>(rows: impl Iterator<Item = DraftedRows<'a>>) -> Vec<SampledTokens> {
    in_parallel(rows, |(state, drafts, logits)| state.sample_along(drafts, std::mem::take(logits)))
}

/// A beam to continue: its sampler, its logits (`[vocab_size]`, overwritten), and how many
/// continuations are wanted.
pub type BeamRow<'a> = (&'a mut SamplerState, &'a mut [f32], usize);

/// The continuations of several beams, in parallel.
pub fn expand_rows<'a>(
    rows: impl Iterator<Item = BeamRow<'a>>,
) -> Vec<Result<Vec<Continuation>, SamplingError>> {
    in_parallel(rows, |(state, logits, count)| state.expand(logits, *count))
}

fn in_parallel<I: Send, O: Send>(
    inputs: impl Iterator<Item = I>,
    work: impl Fn(&mut I) -> O + Sync,
) -> Vec<O> {
    // Each one is taken by one thread; the locks are never waited for.
    let rows: Vec<_> = inputs.map(|input| Mutex::new((input, None))).collect();
    pool::for_each_chunk(rows.len(), |index| {
        let mut row = rows[index].lock().unwrap_or_else(PoisonError::into_inner);
        let (input, output) = &mut *row;
        *output = Some(work(input));
    });
    let outputs = rows.into_iter().map(|row| {
        let (_, output) = row.into_inner().unwrap_or_else(PoisonError::into_inner);
        output.expect("every chunk ran")
    });
    outputs.collect()
}

/// A row of logits, `[vocab_size]`, that predicts a token which is there already.
#[derive(Debug)]
pub struct ScoredRow<'a> {
    /// What the model expects.
    pub logits: &'a [f32],
    /// What came.
    pub token_id: u32,
    /// Most likely tokens to report beside it.
    pub top: u32,
}

/// The logprobs of tokens that are there already, in parallel.
pub fn score_rows(rows: &[ScoredRow<'_>]) -> Result<Vec<TokenLogprobs>, SamplingError> {
    let scores = in_parallel(rows.iter(), |ScoredRow { logits, token_id, top }| {
        check(logits).map(|scan| TokenLogprobs::of(logits, &scan, *token_id, *top as usize, None))
    });
    scores.into_iter().collect()
}

fn check(row: &[f32]) -> Result<Scan, SamplingError> {
    let scan = logits::scan(row);
    if scan.has_nan
        && let Some(index) = row.iter().position(|logit| logit.is_nan())
    {
        return Err(SamplingError::BadLogits(format!("logit {index} is NaN")));
    }
    if scan.max.is_infinite() {
        return Err(SamplingError::BadLogits("logits are not finite".to_owned()));
    }
    Ok(scan)
}

#[cfg(test)]
mod tests;
