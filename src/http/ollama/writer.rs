//! Answers of `/api/chat` and `/api/generate` as JSON: one object, or a line for each piece.
//!
//! A tool call is written when it is complete, since its arguments are an object here. The last
//! line has no text of its own; it says how the answer ended and what it cost.

use std::time::Instant;

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::http::answer::arguments::arguments_object;
use crate::http::answer::delta::{
    ChoiceDelta, CompletedChoice, CompletedToolCall, Finish, FinishKind, TokenRecord,
};
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::wire::ollama::{
    OllamaAnswerMessage, OllamaChatAnswer, OllamaEnd, OllamaError, OllamaFunctionCall,
    OllamaGenerateAnswer, OllamaToolCall,
};
use crate::http::wire::usage::Timings;

/// Writes the answer to one request.
#[derive(Debug)]
pub(super) struct OllamaWriter {
    model: String,
    arrival: Instant,
    shape: Shape,
    /// Present if logprobs were asked for.
    logprobs: Option<LogprobSpelling>,
    /// The answer so far, without its text, of one that streams.
    so_far: CompletedChoice,
    /// How many of its calls were written.
    calls_written: usize,
}

/// What an answer looks like.
#[derive(Debug)]
pub(super) enum Shape {
    /// A message.
    Chat,
    /// A text, with the tokens of prompt and answer where a later request may go on from them.
    Generate { context: Option<Vec<u32>> },
}

/// The object of either shape.
#[derive(Serialize)]
#[serde(untagged)]
enum Written<'a> {
    Chat(OllamaChatAnswer<'a>),
    Generate(OllamaGenerateAnswer<'a>),
}

impl OllamaWriter {
    /// A writer for a request that came at `arrival`.
    pub(super) fn new(
        model: String,
        arrival: Instant,
        shape: Shape,
        logprobs: Option<LogprobSpelling>,
    ) -> Self {
        let so_far = CompletedChoice::default();
        Self { model, arrival, shape, logprobs, so_far, calls_written: 0 }
    }

    /// The answer to a request that asks nothing: the model is there.
    pub(super) fn loaded(&self) -> Value {
        let end = OllamaEnd { done: true, done_reason: Some("load"), ..OllamaEnd::default() };
        to_value(&self.written(CompletedChoice::default(), Vec::new(), None, end))
    }

    fn written(
        &self,
        gained: CompletedChoice,
        tool_calls: Vec<OllamaToolCall>,
        context: Option<Vec<u32>>,
        end: OllamaEnd,
    ) -> Written<'_> {
        let CompletedChoice { reasoning: thinking, content, tokens, .. } = gained;
        let spelled = self.logprobs.as_ref().map(|spelling| spelling.chat(&tokens).content);
        let logprobs = spelled.filter(|entries| !entries.is_empty());
        let created_at = Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true);
        let model = &self.model;
        match self.shape {
            Shape::Chat => {
                let role = "assistant";
                let message = OllamaAnswerMessage { role, content, thinking, tool_calls };
                Written::Chat(OllamaChatAnswer { model, created_at, message, logprobs, end })
            }
            Shape::Generate { .. } => Written::Generate(OllamaGenerateAnswer {
                model,
                created_at,
                response: content,
                thinking,
                context,
                logprobs,
                end,
            }),
        }
    }

    /// The calls that are complete and not yet written; the last is only `at_end`.
    fn complete_calls(&mut self, at_end: bool) -> Vec<OllamaToolCall> {
        let calls = &self.so_far.tool_calls;
        let complete = if at_end { calls.len() } else { calls.len().saturating_sub(1) };
        let new = self.calls_written.min(complete)..complete;
        self.calls_written = complete;
        new.map(|index| tool_call(index, calls[index].clone())).collect()
    }

    /// The prompt's tokens and the answer's, if a later request may go on from them.
    fn context(&self, tokens: &[TokenRecord]) -> Option<Vec<u32>> {
        let Shape::Generate { context } = &self.shape else { return None };
        let answer = tokens.iter().map(|record| record.id);
        context.as_ref().map(|prompt| prompt.iter().copied().chain(answer).collect())
    }

    fn end(&self, finish: Option<&Finish>, totals: UsageAndTimings) -> OllamaEnd {
        let UsageAndTimings { usage, timings: Timings { prefill_ms, decode_ms, .. } } = totals;
        let reason = finish.map(|finish| match finish.reason {
            FinishKind::Stop | FinishKind::ToolCalls => "stop",
            FinishKind::Length => "length",
        });
        OllamaEnd {
            done: true,
            done_reason: reason,
            total_duration: Some(nanoseconds_since(self.arrival)),
            load_duration: Some(0),
            prompt_eval_count: Some(usage.prompt_tokens),
            prompt_eval_duration: Some(nanoseconds(prefill_ms)),
            eval_count: Some(usage.completion_tokens),
            eval_duration: Some(nanoseconds(decode_ms)),
        }
    }
}

impl AnswerWriter for OllamaWriter {
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    fn opening(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        Vec::new()
    }

    fn delta(
        &mut self,
        ChoiceDelta { delta, .. }: ChoiceDelta,
        _totals: UsageAndTimings,
    ) -> Vec<SseEvent> {
        let at_end = delta.finish.is_some();
        let mut gained = CompletedChoice {
            reasoning: delta.reasoning.clone(),
            content: delta.content.clone(),
            tokens: delta.tokens.clone(),
            ..CompletedChoice::default()
        };
        self.so_far.add(delta);
        self.so_far.content.clear();
        self.so_far.reasoning.clear();
        if !matches!(self.shape, Shape::Generate { context: Some(_) }) {
            self.so_far.tokens.clear();
        }
        let calls = self.complete_calls(at_end);
        let silent = gained.content.is_empty() && gained.reasoning.is_empty() && calls.is_empty();
        if self.logprobs.is_none() {
            gained.tokens.clear();
        }
        if silent && gained.tokens.is_empty() {
            return Vec::new();
        }
        vec![SseEvent::line(&self.written(gained, calls, None, OllamaEnd::default()))]
    }

    /// A line without text: its readers take nothing but objects.
    fn keep_alive(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        let nothing = CompletedChoice::default();
        vec![SseEvent::line(&self.written(nothing, Vec::new(), None, OllamaEnd::default()))]
    }

    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        let end = self.end(self.so_far.finish.as_ref(), totals);
        let context = self.context(&self.so_far.tokens);
        let nothing = CompletedChoice::default();
        vec![SseEvent::line(&self.written(nothing, Vec::new(), context, end))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![SseEvent::line(&OllamaError { error: error.to_string() })]
    }

    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        let mut answer = choices.into_iter().next().unwrap_or_default();
        let end = self.end(answer.finish.as_ref(), totals);
        let context = self.context(&answer.tokens);
        let calls = std::mem::take(&mut answer.tool_calls).into_iter().enumerate();
        let calls = calls.map(|(index, call)| tool_call(index, call)).collect();
        to_value(&self.written(answer, calls, context, end))
    }
}

fn to_value(written: &Written<'_>) -> Value {
    serde_json::to_value(written).expect("answers have string keys and finite numbers")
}

fn tool_call(index: usize, call: CompletedToolCall) -> OllamaToolCall {
    let CompletedToolCall { name, id, arguments } = call;
    OllamaToolCall {
        id: id.unwrap_or_else(|| format!("call_{}", Uuid::new_v4().simple())),
        function: OllamaFunctionCall { index, name, arguments: arguments_object(arguments) },
    }
}

/// From then until now.
pub(super) fn nanoseconds_since(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time that passed")]
fn nanoseconds(milliseconds: f64) -> u64 {
    (milliseconds * 1e6).round() as u64
}
