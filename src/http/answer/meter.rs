//! Counts and times of one sequence as its client sees them, and their way into the metrics.

use std::time::{Duration, Instant};

use super::delta::FinishKind;
use crate::engine::output::{Foreseen, SequenceStats};
use crate::metrics::{Finished, MetricsHandle, SequenceTimes};

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
    ended: bool,
}

impl Meter {
    /// `arrival` is the request's; the sequence is submitted now.
    pub(crate) fn new(metrics: MetricsHandle, arrival: Instant, prompt_tokens: usize) -> Self {
        let figures = Figures { prompt_tokens, ..Figures::default() };
        Self {
            metrics,
            arrival,
            submitted: Instant::now(),
            first_token: None,
            last_token: None,
            figures,
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
            self.metrics.first_token(now - self.arrival, self.figures.prompt_tokens);
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
        self.metrics.sequence_ended(reason, times);
    }

    /// The text has its embedding.
    pub(crate) fn embedded(&mut self, stats: &SequenceStats) {
        self.ended = true;
        self.finished(stats);
        let times = SequenceTimes {
            total: self.arrival.elapsed(),
            queue: stats.queue,
            prefill: stats.prefill,
            decode: Duration::ZERO,
            output_tokens: 0,
        };
        self.metrics.text_embedded(self.figures.prompt_tokens, times);
    }

    /// The engine gave up.
    pub(crate) fn failed(&mut self) {
        self.ended = true;
        self.metrics.sequence_failed();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if !self.ended {
            self.metrics.sequence_aborted();
        }
    }
}
