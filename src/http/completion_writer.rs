//! Answers of `/v1/completions` as JSON.

use serde_json::Value;

use super::answer::{
    AnswerWriter, Cost, Head, UsageReporting, finish_reason, stop_reason, to_json,
};
use super::delta::{Finish, Folded, TokenRecord};
use super::generation::ChoiceDelta;
use super::logprobs::LogprobSpelling;
use super::types::completions::{Completion, CompletionChoice, CompletionLogprobs};
use super::types::usage::ChunkUsage;

/// Writes the answer to one completion request.
#[derive(Debug)]
pub(crate) struct CompletionWriter {
    pub(crate) head: Head,
    pub(crate) usage: UsageReporting,
    /// Present if logprobs were asked for.
    pub(crate) logprobs: Option<LogprobSpelling>,
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
    /// The prompt's text, if it is to be repeated before the answer.
    pub(crate) echo: Option<String>,
    /// Present if token ids were asked for.
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    /// Where the next token begins, in characters.
    pub(crate) offset: usize,
}

impl CompletionWriter {
    fn logprobs(&mut self, index: usize, tokens: &[TokenRecord]) -> Option<CompletionLogprobs> {
        let spelling = self.logprobs.as_ref()?;
        Some(spelling.completion(tokens, &mut self.choices[index].offset))
    }

    fn choice(
        &mut self,
        index: usize,
        text: String,
        tokens: &[TokenRecord],
        finish: Option<&Finish>,
    ) -> CompletionChoice {
        let ids = || tokens.iter().map(|record| record.id).collect();
        CompletionChoice {
            index,
            text,
            logprobs: self.logprobs(index, tokens),
            finish_reason: finish.map(finish_reason),
            stop_reason: finish.map(stop_reason),
            prompt_token_ids: self.choices[index].prompt_token_ids.take(),
            token_ids: self.return_token_ids.then(ids),
        }
    }

    fn chunk(&self, choice: CompletionChoice, cost: Cost) -> Completion<'_> {
        Completion {
            id: &self.head.id,
            object: "text_completion",
            created: self.head.created,
            model: &self.head.model,
            choices: vec![choice],
            usage: self.usage.in_chunk(cost.usage),
            timings: None,
            seed: None,
        }
    }

    fn take_echo(&mut self, index: usize) -> Option<String> {
        let state = &mut self.choices[index];
        let echo = state.echo.take()?;
        state.offset += echo.chars().count();
        Some(echo)
    }
}

impl AnswerWriter for CompletionWriter {
    fn opening(&mut self, cost: Cost) -> Vec<String> {
        let mut chunks = Vec::new();
        for index in 0..self.choices.len() {
            if let Some(echo) = self.take_echo(index) {
                let choice = self.choice(index, echo, &[], None);
                chunks.push(to_json(&self.chunk(choice, cost)));
            }
        }
        chunks
    }

    fn delta(&mut self, ChoiceDelta { index, delta }: ChoiceDelta, cost: Cost) -> Vec<String> {
        let finish = delta.finish;
        if finish.is_none() && delta.content.is_empty() {
            return Vec::new();
        }
        let choice = self.choice(index, delta.content, &delta.tokens, finish.as_ref());
        self.unfinished = self.unfinished.saturating_sub(usize::from(finish.is_some()));
        let last = finish.is_some() && self.unfinished == 0 && !self.usage.at_end;
        vec![to_json(&Completion {
            seed: finish.map(|_| self.seed),
            timings: last.then_some(cost.timings),
            ..self.chunk(choice, cost)
        })]
    }

    fn closing(&mut self, cost: Cost) -> Vec<String> {
        if !self.usage.at_end {
            return Vec::new();
        }
        vec![to_json(&Completion {
            id: &self.head.id,
            object: "text_completion",
            created: self.head.created,
            model: &self.head.model,
            choices: Vec::new(),
            usage: Some(ChunkUsage::Now(cost.usage)),
            timings: Some(cost.timings),
            seed: None,
        })]
    }

    fn whole(&mut self, choices: Vec<Folded>, cost: Cost) -> Value {
        let mut written = Vec::with_capacity(choices.len());
        for (index, folded) in choices.into_iter().enumerate() {
            let mut text = self.take_echo(index).unwrap_or_default();
            text.push_str(&folded.content);
            written.push(self.choice(index, text, &folded.tokens, folded.finish.as_ref()));
        }
        let answer = Completion {
            id: &self.head.id,
            object: "text_completion",
            created: self.head.created,
            model: &self.head.model,
            choices: written,
            usage: Some(ChunkUsage::Now(cost.usage)),
            timings: Some(cost.timings),
            seed: Some(self.seed),
        };
        serde_json::to_value(answer).expect("answers have string keys and finite numbers")
    }
}
