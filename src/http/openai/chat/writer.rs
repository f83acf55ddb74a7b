//! Answers of `/v1/chat/completions` as JSON.

use serde_json::Value;

use super::stored::StoringChat;
use crate::http::answer::delta::{
    ChoiceDelta, CompletedChoice, Finish, FinishKind, TokenRecord, ToolCallDelta,
};
use crate::http::answer::logprobs::LogprobSpelling;
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::openai::envelope::{
    Envelope, UsageReporting, finish_reason, stop_reason, tool_call_id,
};
use crate::http::wire::chat::{
    AssistantMessage, ChatChoice, ChatChunkChoice, ChatCompletion, ChatCompletionChunk, ChatDelta,
    ChatLogprobs, FunctionCall, FunctionCallChunk, ReasoningText, StopReason, ToolCall,
    ToolCallChunk,
};
use crate::http::wire::usage::ChunkUsage;

/// Writes the answer to one chat request.
#[derive(Debug)]
pub(crate) struct ChatWriter {
    pub(crate) envelope: Envelope,
    pub(crate) num_choices: usize,
    pub(crate) usage: UsageReporting,
    /// Present if logprobs were asked for.
    pub(crate) logprobs: Option<LogprobSpelling>,
    /// Present if the prompt's logprobs were asked for: most likely tokens at each place.
    pub(crate) prompt_logprobs: Option<(LogprobSpelling, u32)>,
    /// Present if token ids were asked for.
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    /// Whether reasoning is told apart from the answer.
    pub(crate) reasons: bool,
    pub(crate) seed: i64,
    /// Choices that have not finished.
    pub(crate) unfinished: usize,
    /// Whether the request named the tool to call: its answer just stops, as in OpenAI's API.
    pub(crate) calls_named: bool,
    /// Present if the completion is to be stored.
    pub(crate) storing: Option<StoringChat>,
}

impl ChatWriter {
    fn finish_reason(&self, finish: &Finish) -> &'static str {
        let called = finish.reason == FinishKind::ToolCalls;
        if called && self.calls_named { "stop" } else { finish_reason(finish) }
    }

    fn logprobs(&self, tokens: &[TokenRecord]) -> Option<ChatLogprobs> {
        self.logprobs.as_ref().map(|spelling| spelling.chat(tokens))
    }

    fn token_ids(&self, tokens: &[TokenRecord]) -> Option<Vec<u32>> {
        self.prompt_token_ids.as_ref().map(|_| tokens.iter().map(|record| record.id).collect())
    }

    fn chunk(&self, choice: ChatChunkChoice, totals: UsageAndTimings) -> ChatCompletionChunk<'_> {
        ChatCompletionChunk {
            id: &self.envelope.id,
            object: "chat.completion.chunk",
            created: self.envelope.created,
            model: &self.envelope.model,
            system_fingerprint: &self.envelope.fingerprint,
            service_tier: self.envelope.tier.name(),
            choices: vec![choice],
            usage: self.usage.in_chunk(totals.usage),
            timings: self.usage.timings.then_some(totals.timings),
            seed: None,
            prompt_token_ids: None,
        }
    }
}

impl AnswerWriter for ChatWriter {
    fn note(&mut self, delta: &ChoiceDelta) {
        if let Some(storing) = &mut self.storing {
            storing.note(delta);
        }
    }

    async fn settle(&mut self, totals: UsageAndTimings) {
        if let Some(mut storing) = self.storing.take() {
            let choices = std::mem::take(&mut storing.choices);
            let completion = self.whole(choices, totals);
            storing.store(completion).await;
        }
    }

    fn opening(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        let role = |index| ChatChunkChoice {
            index,
            delta: ChatDelta {
                role: Some("assistant"),
                content: Some(String::new()),
                reasoning: None,
                tool_calls: Vec::new(),
            },
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        let chunk = |index| ChatCompletionChunk {
            prompt_token_ids: self.prompt_token_ids.clone().filter(|_| index == 0),
            timings: None,
            ..self.chunk(role(index), totals)
        };
        (0..self.num_choices).map(|index| SseEvent::data(&chunk(index))).collect()
    }

    fn delta(&mut self, delta: ChoiceDelta, totals: UsageAndTimings) -> Vec<SseEvent> {
        self.note(&delta);
        let ChoiceDelta { index, delta } = delta;
        let mut chunks = Vec::new();
        let tells = delta.tells_anything();
        let mut tokens = delta.tokens;
        if tells {
            let choice = ChatChunkChoice {
                index,
                delta: ChatDelta {
                    role: None,
                    content: Some(delta.content).filter(|text| !text.is_empty()),
                    reasoning: Some(delta.reasoning)
                        .filter(|text| !text.is_empty())
                        .map(ReasoningText::new),
                    tool_calls: delta.tool_calls.into_iter().map(tool_call_chunk).collect(),
                },
                logprobs: self.logprobs(&tokens),
                finish_reason: None,
                stop_reason: None,
                token_ids: self.token_ids(&tokens),
            };
            tokens.clear();
            chunks.push(SseEvent::data(&self.chunk(choice, totals)));
        }
        if let Some(finish) = delta.finish {
            self.unfinished = self.unfinished.saturating_sub(1);
            let choice = ChatChunkChoice {
                index,
                delta: ChatDelta::default(),
                logprobs: self.logprobs(&tokens).filter(|logprobs| !logprobs.content.is_empty()),
                finish_reason: Some(self.finish_reason(&finish)),
                stop_reason: Some(stop_reason(&finish)),
                token_ids: self.token_ids(&tokens),
            };
            let last = self.unfinished == 0 && !self.usage.at_end;
            chunks.push(SseEvent::data(&ChatCompletionChunk {
                seed: Some(self.seed),
                timings: (last || self.usage.timings).then_some(totals.timings),
                ..self.chunk(choice, totals)
            }));
        }
        chunks
    }

    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        if !self.usage.at_end {
            return vec![SseEvent::done()];
        }
        let usage = SseEvent::data(&ChatCompletionChunk {
            id: &self.envelope.id,
            object: "chat.completion.chunk",
            created: self.envelope.created,
            model: &self.envelope.model,
            system_fingerprint: &self.envelope.fingerprint,
            service_tier: self.envelope.tier.name(),
            choices: Vec::new(),
            usage: Some(ChunkUsage::Now(totals.usage)),
            timings: Some(totals.timings),
            seed: None,
            prompt_token_ids: None,
        });
        vec![usage, SseEvent::done()]
    }

    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        let prompt = choices.first().zip(self.prompt_logprobs.as_ref());
        let prompt_logprobs =
            prompt.map(|(first, (spelling, most))| spelling.prompt(&first.prompt_logprobs, *most));
        let choices = choices.into_iter().enumerate().map(|(index, choice)| ChatChoice {
            index,
            logprobs: self.logprobs(&choice.tokens),
            finish_reason: choice.finish.as_ref().map_or("length", |own| self.finish_reason(own)),
            stop_reason: choice.finish.as_ref().map_or(StopReason::Nothing, stop_reason),
            token_ids: self.token_ids(&choice.tokens),
            message: message(choice, self.reasons),
        });
        let answer = ChatCompletion {
            id: self.envelope.id.clone(),
            object: "chat.completion",
            created: self.envelope.created,
            model: self.envelope.model.clone(),
            system_fingerprint: self.envelope.fingerprint.clone(),
            service_tier: self.envelope.tier.name(),
            choices: choices.collect(),
            usage: totals.usage,
            timings: totals.timings,
            seed: self.seed,
            prompt_token_ids: self.prompt_token_ids.clone(),
            prompt_logprobs,
        };
        serde_json::to_value(answer).expect("answers have string keys and finite numbers")
    }
}

fn message(choice: CompletedChoice, reasons: bool) -> AssistantMessage {
    let calls = choice.tool_calls.into_iter().map(|call| ToolCall {
        id: call.id.unwrap_or_else(tool_call_id),
        kind: "function",
        function: FunctionCall { name: call.name, arguments: call.arguments },
    });
    let tool_calls: Vec<ToolCall> = calls.collect();
    let reasoning = Some(choice.reasoning).filter(|text| !text.is_empty());
    let says_nothing = choice.content.is_empty() && (reasoning.is_some() || !tool_calls.is_empty());
    AssistantMessage {
        role: "assistant",
        content: (!says_nothing).then_some(choice.content),
        refusal: None,
        reasoning: reasons.then(|| ReasoningText::new(reasoning)),
        tool_calls,
    }
}

fn tool_call_chunk(call: ToolCallDelta) -> ToolCallChunk {
    let begins = call.name.is_some();
    ToolCallChunk {
        index: call.index,
        id: begins.then(|| call.id.unwrap_or_else(tool_call_id)),
        kind: begins.then_some("function"),
        function: FunctionCallChunk { name: call.name, arguments: call.arguments },
    }
}
