//! Answers of `/v1/completions` as JSON.

use serde_json::Value;

use crate::http::answer::delta::{ChoiceDelta, CompletedChoice};
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::openai::envelope::{Envelope, UsageReporting, finish_reason, stop_reason};
use crate::http::wire::completions::{Completion, CompletionChoice, CompletionLogprobs};
use crate::http::wire::usage::ChunkUsage;

/// Writes the answer to one completion request.
#[derive(Debug)]
pub(crate) struct CompletionWriter {
    pub(crate) envelope: Envelope,
    pub(crate) usage: UsageReporting,
    pub(crate) spelling: LogprobSpelling,
    /// Most likely tokens at each place of the answer, if logprobs were asked for.
    pub(crate) logprobs: Option<u32>,
    /// The same for the prompt.
    pub(crate) prompt_logprobs: Option<u32>,
    /// Sequences of each prompt, and how many of them are choices.
    pub(crate) best_of: usize,
    pub(crate) n: usize,
    /// Per choice.
    pub(crate) choices: Vec<ChoiceState>,
    pub(crate) return_token_ids: bool,
    pub(crate) seed: i64,
    /// Choices that have not finished.
    pub(crate) unfinished: usize,
}

/// What the writer keeps about a choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChoiceState {
    /// The prompt, if it is to be repeated before the answer.
    pub(crate) echo: Option<Echo>,
    /// Present if token ids were asked for.
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    /// Where the next token begins, in characters.
    pub(crate) offset: usize,
}

/// A prompt that is repeated before the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo {
    pub(crate) text: String,
    pub(crate) token_ids: Vec<u32>,
}

impl CompletionWriter {
    /// What a choice gained, behind the prompt if that is to come first.
    fn choice(&mut self, index: usize, gained: &CompletedChoice) -> CompletionChoice {
        let echo = self.choices[index].echo.take();
        let logprobs = self.columns(index, echo.as_ref(), gained);
        let ids = || gained.tokens.iter().map(|record| record.id).collect();
        let scores = self.prompt_logprobs.filter(|_| gained.finish.is_some());
        CompletionChoice {
            index,
            text: echo.map(|echo| echo.text).unwrap_or_default() + &gained.content,
            logprobs,
            finish_reason: gained.finish.as_ref().map(finish_reason),
            stop_reason: gained.finish.as_ref().map(stop_reason),
            prompt_token_ids: self.choices[index].prompt_token_ids.take(),
            prompt_logprobs: scores.map(|most| self.spelling.prompt(&gained.prompt_logprobs, most)),
            token_ids: self.return_token_ids.then(ids),
        }
    }

    fn columns(
        &mut self,
        index: usize,
        echo: Option<&Echo>,
        gained: &CompletedChoice,
    ) -> Option<CompletionLogprobs> {
        let most = self.logprobs?;
        let Self { spelling, choices, .. } = self;
        let mut columns = echo.map_or_else(CompletionLogprobs::default, |echo| {
            choices[index].offset = echo.text.chars().count();
            spelling.echo(&echo.token_ids, &gained.prompt_logprobs, &echo.text, most)
        });
        columns.append(spelling.completion(&gained.tokens, &mut choices[index].offset));
        Some(columns)
    }

    /// The `n` sequences of each prompt that the model found most likely, best first.
    fn keep_best(&self, sequences: Vec<CompletedChoice>) -> Vec<CompletedChoice> {
        if self.best_of == self.n {
            return sequences;
        }
        let mut sequences = sequences.into_iter();
        let mut kept = Vec::with_capacity(self.choices.len());
        while sequences.len() > 0 {
            let mut prompt: Vec<CompletedChoice> = sequences.by_ref().take(self.best_of).collect();
            // Stable: of equally likely ones the earlier.
            prompt.sort_by(|a, b| cumulative_logprob(b).total_cmp(&cumulative_logprob(a)));
            kept.extend(prompt.into_iter().take(self.n));
        }
        kept
    }

    fn chunk(&self, choice: CompletionChoice, totals: UsageAndTimings) -> Completion<'_> {
        Completion {
            id: &self.envelope.id,
            object: "text_completion",
            created: self.envelope.created,
            model: &self.envelope.model,
            system_fingerprint: &self.envelope.fingerprint,
            service_tier: self.envelope.tier.name(),
            choices: vec![choice],
            usage: self.usage.in_chunk(totals.usage),
            timings: self.usage.timings.then_some(totals.timings),
            seed: None,
        }
    }
}

impl AnswerWriter for CompletionWriter {
    fn opening(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        if self.logprobs.is_some() {
            // The prompt's logprobs come with the first delta.
            return Vec::new();
        }
        let echoing = (0..self.choices.len()).filter(|index| self.choices[*index].echo.is_some());
        let echoing: Vec<usize> = echoing.collect();
        let chunks = echoing.into_iter().map(|index| {
            let choice = self.choice(index, &CompletedChoice::default());
            SseEvent::data(&self.chunk(choice, totals))
        });
        chunks.collect()
    }

    fn delta(
        &mut self,
        ChoiceDelta { index, delta }: ChoiceDelta,
        totals: UsageAndTimings,
    ) -> Vec<SseEvent> {
        if delta.finish.is_none() && delta.content.is_empty() {
            return Vec::new();
        }
        let mut gained = CompletedChoice::default();
        gained.add(delta);
        let finished = gained.finish.is_some();
        let choice = self.choice(index, &gained);
        self.unfinished = self.unfinished.saturating_sub(usize::from(finished));
        let last = finished && self.unfinished == 0 && !self.usage.at_end;
        vec![SseEvent::data(&Completion {
            seed: finished.then_some(self.seed),
            timings: (last || self.usage.timings).then_some(totals.timings),
            ..self.chunk(choice, totals)
        })]
    }

    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        if !self.usage.at_end {
            return vec![SseEvent::done()];
        }
        let usage = SseEvent::data(&Completion {
            id: &self.envelope.id,
            object: "text_completion",
            created: self.envelope.created,
            model: &self.envelope.model,
            system_fingerprint: &self.envelope.fingerprint,
            service_tier: self.envelope.tier.name(),
            choices: Vec::new(),
            usage: Some(ChunkUsage::Now(totals.usage)),
            timings: Some(totals.timings),
            seed: None,
        });
        vec![usage, SseEvent::done()]
    }

    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        let choices = self.keep_best(choices).into_iter().enumerate();
        let written = choices.map(|(index, choice)| self.choice(index, &choice)).collect();
        let answer = Completion {
            id: &self.envelope.id,
            object: "text_completion",
            created: self.envelope.created,
            model: &self.envelope.model,
            system_fingerprint: &self.envelope.fingerprint,
            service_tier: self.envelope.tier.name(),
            choices: written,
            usage: Some(ChunkUsage::Now(totals.usage)),
            timings: Some(totals.timings),
            seed: Some(self.seed),
        };
        serde_json::to_value(answer).expect("answers have string keys and finite numbers")
    }
}

fn cumulative_logprob(sequence: &CompletedChoice) -> f64 {
    let logprobs = sequence.tokens.iter().filter_map(|token| token.logprobs.as_ref());
    logprobs.map(|entry| f64::from(entry.logprob)).sum()
}
