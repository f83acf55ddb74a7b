//! Counts and times of one sequence as its client sees them, and their way into the metrics.

use std::time::{Duration, Instant};

use tracing::Span;

use super::delta::FinishKind;
use crate::engine::output::{Foreseen, SequenceStats};
use crate::http::state::caller::{Caller, Payer, Spent};
use crate::metrics::{Finished, MetricsHandle, SequenceTimes};
use crate::telemetry;

/// What a sequence has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Prompt tokens that count for this sequence; 0 for the further choices of one prompt.
    pub(crate) prompt_tokens: usize,
    /// How many of them came from the prefix cache.
    pub(crate) cached_tokens: usize,
    /// Tokens sampled.
    pub(crate) output_tokens: usize,
    /// How many of them were reasoning.
    pub(crate) reasoning_tokens: usize,
    /// How many of them a predicted text had, and in place of how many it had others.
    pub(crate) predicted: usize,
    pub(crate) mispredicted: usize,
    /// Tokens that were drafted, and how many of those were sampled.
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
    /// From submission to the first scheduled step.
    pub(crate) queue: Duration,
    /// From the first scheduled step to the first token.
    pub(crate) prefill: Duration,
    /// From the first token to the last.
    pub(crate) decode: Duration,
}

/// Measures one sequence. Dropped before its end, it counts as aborted.
#[derive(Debug)]
pub(crate) struct Meter {
    metrics: MetricsHandle,
    arrival: Instant,
    submitted: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    figures: Figures,
    /// Whoever asked.
    payer: Option<Payer>,
    /// The request's.
    span: Span,
    /// When the answer began to call tools.
    tools: Option<Instant>,
    ended: bool,
}

impl Meter {
    /// `arrival` is the request's; the sequence is submitted now, by whoever asks in this task.
    pub(crate) fn new(metrics: MetricsHandle, arrival: Instant, prompt_tokens: usize) -> Self {
        let figures = Figures { prompt_tokens, ..Figures::default() };
        Self {
            metrics,
            arrival,
            submitted: Instant::now(),
            first_token: None,
            last_token: None,
            figures,
            payer: Caller::current().map(|caller| caller.payer()),
            span: Span::current(),
            tools: None,
            ended: false,
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        self.figures
    }

    /// The engine scheduled the sequence.
    pub(crate) fn started(&mut self, cached_tokens: usize, queue: Duration) {
        self.figures.cached_tokens = if self.figures.prompt_tokens > 0 { cached_tokens } else { 0 };
        self.figures.queue = queue;
    }

    /// A token came.
    pub(crate) fn token(&mut self, foreseen: Foreseen) {
        let now = Instant::now();
        self.figures.output_tokens += 1;
        if let Some(payer) = &self.payer {
            payer.take_token();
        }
        self.figures.predicted += usize::from(foreseen.predicted == Some(true));
        self.figures.mispredicted += usize::from(foreseen.predicted == Some(false));
        self.figures.drafted += foreseen.drafted as usize;
        self.figures.accepted += usize::from(foreseen.accepted);
        if let (Some(first), Some(last)) = (self.first_token, self.last_token.replace(now)) {
            self.figures.decode = now - first;
            self.metrics.next_token(now - last);
        } else {
            self.first_token = Some(now);
            self.figures.prefill = (now - self.submitted).saturating_sub(self.figures.queue);
            let trace = telemetry::sampled_trace(&self.span);
            let tokens = self.figures.prompt_tokens;
            self.metrics.first_token(now - self.arrival, tokens, trace.as_deref());
        }
    }

    /// Sets how many of the tokens were reasoning.
    pub(crate) fn reasoning(&mut self, tokens: usize) {
        self.figures.reasoning_tokens = tokens;
    }

    /// The engine's own figures, which are better than those measured from here.
    pub(crate) fn finished(&mut self, stats: &SequenceStats) {
        self.started(stats.cached_tokens, stats.queue);
        self.figures.prefill = stats.prefill;
        self.figures.decode = stats.decode;
    }

    /// The sequence has its answer.
    pub(crate) fn end(&mut self, kind: FinishKind) {
        self.ended = true;
        self.pay();
        let reason = match kind {
            FinishKind::Stop | FinishKind::ToolCalls => Finished::Stop,
            FinishKind::Length => Finished::Length,
        };
        let times = SequenceTimes {
            total: self.arrival.elapsed(),
            queue: self.figures.queue,
            prefill: self.figures.prefill,
            decode: self.figures.decode,
            output_tokens: self.figures.output_tokens,
        };
        let trace = telemetry::sampled_trace(&self.span);
        self.metrics.sequence_ended(reason, times, trace.as_deref());
    }

    /// The text has its embedding.
    pub(crate) fn embedded(&mut self, stats: &SequenceStats) {
        self.ended = true;
        self.finished(stats);
        self.pay();
        let times = SequenceTimes {
            total: self.arrival.elapsed(),
            queue: stats.queue,
            prefill: stats.prefill,
            decode: Duration::ZERO,
            output_tokens: 0,
        };
        let trace = telemetry::sampled_trace(&self.span);
        self.metrics.text_embedded(self.figures.prompt_tokens, times, trace.as_deref());
    }

    /// The engine gave up.
    pub(crate) fn failed(&mut self) {
        self.ended = true;
        self.pay_begun();
        self.metrics.sequence_failed();
    }

    /// Charges what usage says of the sequence.
    fn pay(&mut self) {
        let Figures { prompt_tokens, cached_tokens, output_tokens, .. } = self.figures;
        let Figures { queue, prefill, decode, .. } = self.figures;
        let cost = Spent { prompt_tokens, cached_tokens, output_tokens, queue, prefill, decode };
        if let Some(payer) = self.payer.take() {
            payer.pay(cost);
        }
        self.trace();
    }

    /// Tells the parts of the sequence that are over.
    fn trace(&self) {
        let Figures { prompt_tokens, cached_tokens, output_tokens, .. } = self.figures;
        let Figures { queue, prefill, decode, .. } = self.figures;
        let scheduled = self.submitted + queue;
        telemetry::phase(&self.span, "queue", self.submitted, queue, &[]);
        let prompt = [
            ("gen_ai.usage.input_tokens", signed(prompt_tokens)),
            ("gen_ai.usage.cache_read.input_tokens", signed(cached_tokens)),
        ];
        telemetry::phase(&self.span, "prefill", scheduled, prefill, &prompt);
        if output_tokens > 0 {
            let answer = [("gen_ai.usage.output_tokens", signed(output_tokens))];
            telemetry::phase(&self.span, "decode", scheduled + prefill, decode, &answer);
        }
        if let (Some(begin), Some(end)) = (self.tools, self.last_token) {
            telemetry::phase(&self.span, "tools", begin, end.saturating_duration_since(begin), &[]);
        }
    }

    /// The answer begins to call a tool, or goes on with it.
    pub(crate) fn calls_tools(&mut self) {
        self.tools.get_or_insert_with(Instant::now);
    }

    /// Charges what was computed of a sequence that ends too early, if its first token came.
    fn pay_begun(&mut self) {
        if self.first_token.is_some() {
            self.pay();
        }
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Drop for Meter {
    fn drop(&mut self) {
        if !self.ended {
            self.pay_begun();
            self.metrics.sequence_aborted();
        }
    }
}
