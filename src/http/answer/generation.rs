//! A request while it runs: all its sequences in the engine, their outputs merged into one stream
//! of deltas. Dropping it aborts whatever still runs.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::stream::{SelectAll, Stream, StreamExt};
use tokio::sync::watch;

use super::decoder::ChoiceDecoder;
use super::delta::{ChoiceDelta, Delta};
use super::meter::{Figures, Meter};
use crate::engine::output::{EngineError, EngineOutput, OutputStream};
use crate::http::error::ApiError;
use crate::http::state::admission::Permit;
use crate::http::wire::usage::{
    CompletionTokensDetails, Phases, PromptTokensDetails, Timings, Usage,
};
use crate::scheduler::stop::FinishReason;

/// One sequence of a request.
#[derive(Debug)]
pub(crate) struct Choice {
    index: usize,
    /// Gone once the choice has ended.
    output: Option<OutputStream>,
    decoder: ChoiceDecoder,
    meter: Meter,
    /// Only the prompt is wanted; what is drawn behind it is dropped.
    prewarms: bool,
}

/// A delta, and what its sequence has cost with it.
#[derive(Debug)]
pub(crate) struct Progress {
    delta: ChoiceDelta,
    figures: Figures,
}

impl Choice {
    /// A sequence that was just submitted.
    pub(crate) fn new(
        index: usize,
        output: OutputStream,
        decoder: ChoiceDecoder,
        meter: Meter,
    ) -> Self {
        Self { index, output: Some(output), decoder, meter, prewarms: false }
    }

    /// Of a request that only wants its prompt to be computed.
    pub(crate) fn prewarming(self) -> Self {
        Self { prewarms: true, ..self }
    }

    fn take(&mut self, output: EngineOutput) -> Option<Result<Progress, EngineError>> {
        match output {
            EngineOutput::Started { cached_tokens, queue } => {
                self.meter.started(cached_tokens, queue);
                None
            }
            EngineOutput::PromptLogprobs(logprobs) => {
                self.decoder.push_prompt_logprobs(logprobs);
                None
            }
            EngineOutput::Token { .. } if self.prewarms => None,
            EngineOutput::Token { token_id, logprobs, foreseen } => {
                self.meter.token(foreseen);
                let delta = self.decoder.push(token_id, logprobs);
                self.meter.reasoning(self.decoder.num_reasoning_tokens());
                let delta = delta?;
                Some(Ok(self.give(delta)))
            }
            EngineOutput::Finished { reason, stats } => {
                self.meter.finished(&stats);
                let reason = if self.prewarms { FinishReason::Length } else { reason };
                let delta = self.decoder.finish(reason);
                self.meter.reasoning(self.decoder.num_reasoning_tokens());
                Some(Ok(self.give(delta)))
            }
            EngineOutput::Embedded { .. } => {
                self.output = None;
                self.meter.failed();
                Some(Err(EngineError::StepFailed("an embedding came for a token".to_owned())))
            }
            EngineOutput::Failed(error) => {
                self.output = None;
                self.meter.failed();
                Some(Err(error))
            }
        }
    }

    fn give(&mut self, delta: Delta) -> Progress {
        if !delta.tool_calls.is_empty() {
            self.meter.calls_tools();
        }
        if let Some(finish) = &delta.finish {
            self.output = None;
            self.meter.end(finish.reason);
        }
        let delta = ChoiceDelta { index: self.index, delta };
        Progress { delta, figures: self.meter.figures() }
    }
}

impl Stream for Choice {
    type Item = Result<Progress, EngineError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let choice = self.get_mut();
        while let Some(stream) = &mut choice.output {
            match stream.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => choice.output = None,
                Poll::Ready(Some(output)) => {
                    if let Some(progress) = choice.take(output) {
                        return Poll::Ready(Some(progress));
                    }
                }
            }
        }
        Poll::Ready(None)
    }
}

/// What ends a request from outside.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// When the request began.
    pub(crate) arrival: Instant,
    /// How long it may take.
    pub(crate) deadline: Option<Duration>,
    /// Turns true when the server cuts what runs.
    pub(crate) cut: watch::Receiver<bool>,
    /// Keeps the request's place until it ends.
    pub(crate) permit: Permit,
}

/// A running request.
#[derive(Debug)]
pub(crate) struct Generation {
    choices: SelectAll<Choice>,
    figures: Vec<Figures>,
    /// Deltas that are due before the choices are asked for more.
    due: VecDeque<ChoiceDelta>,
    bounds: Bounds,
    /// Most tokens of each choice, if fewer than were asked for fit the context.
    pub(crate) shortened: Option<usize>,
    failed: bool,
}

impl Generation {
    /// A request of all its choices, in the order of their indices.
    pub(crate) fn new(choices: Vec<Choice>, bounds: Bounds, shortened: Option<usize>) -> Self {
        let figures = choices.iter().map(|choice| choice.meter.figures()).collect();
        let choices = choices.into_iter().collect();
        Self { choices, figures, due: VecDeque::new(), bounds, shortened, failed: false }
    }

    /// How many choices the request has.
    pub(crate) fn num_choices(&self) -> usize {
        self.figures.len()
    }

    /// The next delta of any choice. `None` when all have finished, or after an error, which ends
    /// the whole request. Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Result<ChoiceDelta, ApiError>> {
        if let Some(delta) = self.due.pop_front() {
            return Some(Ok(delta));
        }
        if self.failed {
            return None;
        }
        let deadline = self.bounds.deadline.map(|after| self.bounds.arrival + after);
        let progress = tokio::select! {
            biased;
            () = cut(&mut self.bounds.cut) => {
                return Some(Err(self.fail(ApiError::Unavailable(
                    "the server is shutting down and could not finish the request".to_owned(),
                ))));
            }
            () = passed(deadline) => return self.end_at_deadline(),
            progress = self.choices.next() => progress?,
        };
        match progress {
            Ok(Progress { delta, figures }) => {
                self.bounds.permit.leave_queue();
                self.figures[delta.index] = figures;
                Some(Ok(delta))
            }
            Err(error) => Some(Err(self.fail(error.into()))),
        }
    }

    /// Token counts so far.
    pub(crate) fn usage(&self) -> Usage {
        let sum = |count: fn(&Figures) -> usize| self.figures.iter().map(count).sum::<usize>();
        let prompt_tokens = sum(|figures| figures.prompt_tokens);
        let completion_tokens = sum(|figures| figures.output_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: sum(|figures| figures.cached_tokens),
            },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: sum(|figures| figures.reasoning_tokens),
                accepted_prediction_tokens: sum(|figures| figures.predicted),
                rejected_prediction_tokens: sum(|figures| figures.mispredicted),
            },
        }
    }

    /// The fewest tokens of any prompt that were found in the cache.
    pub(crate) fn least_cached(&self) -> usize {
        self.figures.iter().map(|figures| figures.cached_tokens).min().unwrap_or(0)
    }

    /// How long the request may take.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.bounds.deadline
    }

    /// Times so far.
    pub(crate) fn timings(&self) -> Timings {
        let slowest = |time: fn(&Figures) -> Duration| {
            self.figures.iter().map(time).max().unwrap_or_default()
        };
        let (prefill, decode) =
            (slowest(|figures| figures.prefill), slowest(|figures| figures.decode));
        let later = self.figures.iter().map(|figures| figures.output_tokens.saturating_sub(1));
        let tokens_per_second = per_second(later.sum(), decode);
        let sum = |count: fn(&Figures) -> usize| self.figures.iter().map(count).sum::<usize>();
        let (drafted, accepted) = (sum(|figures| figures.drafted), sum(|figures| figures.accepted));
        let usage = self.usage();
        let cache_n = usage.prompt_tokens_details.cached_tokens;
        let prompt_n = usage.prompt_tokens.saturating_sub(cache_n);
        Timings {
            queue_ms: milliseconds(slowest(|figures| figures.queue)),
            prefill_ms: milliseconds(prefill),
            decode_ms: milliseconds(decode),
            tokens_per_second,
            phases: Phases {
                cache_n,
                prompt_n,
                prompt_ms: milliseconds(prefill),
                prompt_per_token_ms: per_token(prefill, prompt_n),
                prompt_per_second: per_second(prompt_n, prefill),
                predicted_n: usage.completion_tokens,
                predicted_ms: milliseconds(decode),
                predicted_per_token_ms: per_token(decode, usage.completion_tokens),
                predicted_per_second: tokens_per_second,
                draft_n: (drafted > 0).then_some(drafted),
                draft_n_accepted: (drafted > 0).then_some(accepted),
            },
        }
    }

    fn fail(&mut self, error: ApiError) -> ApiError {
        self.failed = true;
        self.choices.clear();
        error
    }

    /// With a token to show, an answer cut short; without, an error.
    fn end_at_deadline(&mut self) -> Option<Result<ChoiceDelta, ApiError>> {
        if self.figures.iter().all(|figures| figures.output_tokens == 0)
            && self.choices.iter().all(|choice| choice.meter.figures().output_tokens == 0)
        {
            let after = self.bounds.deadline.unwrap_or_default().as_millis();
            let after = u64::try_from(after).unwrap_or(u64::MAX);
            return Some(Err(self.fail(ApiError::DeadlineExceeded(after))));
        }
        for choice in self.choices.iter_mut().filter(|choice| choice.output.is_some()) {
            let delta = choice.decoder.finish_at_deadline();
            let Progress { delta, figures } = choice.give(delta);
            self.figures[delta.index] = figures;
            self.due.push_back(delta);
        }
        self.choices.clear();
        self.due.pop_front().map(Ok)
    }
}

/// Resolves when the server cuts what runs.
pub(crate) async fn cut(signal: &mut watch::Receiver<bool>) {
    if signal.wait_for(|cut| *cut).await.is_err() {
        // The server is gone and with it whoever could cut.
        std::future::pending::<()>().await;
    }
}

/// Resolves at the deadline, if there is one.
pub(crate) async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
fn per_token(duration: Duration, tokens: usize) -> f64 {
    if tokens == 0 { 0.0 } else { (duration.as_secs_f64() / tokens as f64 * 1e6).round() / 1e3 }
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
fn per_second(tokens: usize, duration: Duration) -> f64 {
    if tokens == 0 || duration.is_zero() {
        return 0.0;
    }
    (tokens as f64 / duration.as_secs_f64() * 1e3).round() / 1e3
}
