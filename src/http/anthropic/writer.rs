//! Answers of `/v1/messages` as JSON.
//!
//! One state machine makes blocks of the deltas: a stream sends its events, and the whole message
//! is put together from the same events. Whitespace between blocks of other kinds is not a text
//! block. A tool's input that is no JSON object, cut short or broken by the model, is sent as it
//! comes in a stream; in a whole message it is `{"INVALID_JSON": text}`, which is how Anthropic's
//! documentation wraps such input.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::error as messages_error;
use crate::http::answer::arguments::arguments_object;
use crate::http::answer::carried_text;
use crate::http::answer::delta::{
    ChoiceDelta, CompletedChoice, Delta, Finish, FinishKind, StopCause, ToolCallDelta,
};
use crate::http::answer::writer::{AnswerWriter, SseEvent, UsageAndTimings};
use crate::http::error::ApiError;
use crate::http::wire::messages::{
    BlockDelta, Message, MessageEnd, MessageUsage, OutputBlock, OutputTokensDetails, StreamEvent,
};
use crate::http::wire::usage::Usage;

/// Writes the answer to one Messages request.
#[derive(Debug)]
pub(crate) struct MessagesWriter {
    pub(super) id: String,
    /// Why the prompt was not in the cache, if the request asks.
    pub(super) diagnostics: Option<Value>,
    model: String,
    /// For errors in a stream.
    request_id: String,
    /// What the request allowed; an answer that ends before for want of room met the context.
    max_tokens: usize,
    started: bool,
    blocks: Blocks,
    /// The content of a message that isn't streamed.
    content: Content,
    finish: Option<Finish>,
}

impl MessagesWriter {
    /// A writer that does not show reasoning if it `omits_reasoning`, but has the client carry it.
    pub(crate) fn new(
        model: String,
        request_id: String,
        max_tokens: usize,
        omits_reasoning: bool,
    ) -> Self {
        Self {
            id: format!("msg_{}", Uuid::new_v4().simple()),
            diagnostics: None,
            model,
            request_id,
            max_tokens,
            started: false,
            blocks: Blocks { omits_reasoning, ..Blocks::default() },
            content: Content::default(),
            finish: None,
        }
    }

    /// `message_start`, before anything else. It comes as late as possible, since what the cache
    /// held is known only once the prompt is computed.
    fn start(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        if std::mem::replace(&mut self.started, true) {
            return Vec::new();
        }
        let message = self.message(Vec::new(), MessageEnd::default(), totals.usage);
        vec![sse_event(&StreamEvent::MessageStart { message })]
    }

    fn message(&self, content: Vec<OutputBlock>, end: MessageEnd, usage: Usage) -> Message<'_> {
        Message {
            id: &self.id,
            kind: "message",
            role: "assistant",
            model: &self.model,
            content,
            end,
            usage: message_usage(usage),
            diagnostics: self.diagnostics.clone(),
        }
    }

    fn end(&self, usage: Usage) -> MessageEnd {
        let Some(finish) = &self.finish else { return MessageEnd::default() };
        let stop_sequence = match &finish.cause {
            Some(StopCause::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let stop_reason = match (finish.reason, &finish.cause) {
            (FinishKind::ToolCalls, _) => "tool_use",
            (FinishKind::Stop, _) if stop_sequence.is_some() => "stop_sequence",
            (FinishKind::Stop, _) => "end_turn",
            (FinishKind::Length, None) if usage.completion_tokens < self.max_tokens => {
                "model_context_window_exceeded"
            }
            // Anthropic's API has no deadlines; the answer was cut as if by the other bound.
            (FinishKind::Length, _) => "max_tokens",
        };
        MessageEnd { stop_reason: Some(stop_reason), stop_sequence }
    }
}

impl AnswerWriter for MessagesWriter {
    fn opening(&mut self, _totals: UsageAndTimings) -> Vec<SseEvent> {
        Vec::new()
    }

    fn delta(
        &mut self,
        ChoiceDelta { delta, .. }: ChoiceDelta,
        totals: UsageAndTimings,
    ) -> Vec<SseEvent> {
        let mut sse_events = self.start(totals);
        sse_events.extend(self.blocks.push(&delta).iter().map(sse_event));
        self.finish = delta.finish.or(self.finish.take());
        sse_events
    }

    fn keep_alive(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        let mut sse_events = self.start(totals);
        sse_events.push(sse_event(&StreamEvent::Ping));
        sse_events
    }

    fn closing(&mut self, totals: UsageAndTimings) -> Vec<SseEvent> {
        let mut sse_events = self.start(totals);
        let usage = message_usage(totals.usage);
        sse_events
            .push(sse_event(&StreamEvent::MessageDelta { delta: self.end(totals.usage), usage }));
        sse_events.push(sse_event(&StreamEvent::MessageStop));
        sse_events
    }

    fn failed(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![SseEvent::event("error", &messages_error::object(error, &self.request_id))]
    }

    fn note(&mut self, ChoiceDelta { delta, .. }: &ChoiceDelta) {
        for event in self.blocks.push(delta) {
            self.content.add(event);
        }
    }

    fn whole(&mut self, choices: Vec<CompletedChoice>, totals: UsageAndTimings) -> Value {
        self.finish = choices.into_iter().next().and_then(|choice| choice.finish);
        let content = std::mem::take(&mut self.content.blocks);
        let message = self.message(content, self.end(totals.usage), totals.usage);
        serde_json::to_value(message).expect("messages have string keys")
    }
}

fn sse_event(event: &StreamEvent<'_>) -> SseEvent {
    SseEvent::event(event.name(), event)
}

fn message_usage(usage: Usage) -> MessageUsage {
    let cached = usage.prompt_tokens_details.cached_tokens;
    MessageUsage {
        input_tokens: usage.prompt_tokens.saturating_sub(cached),
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        output_tokens: usage.completion_tokens,
        output_tokens_details: OutputTokensDetails {
            thinking_tokens: usage.completion_tokens_details.reasoning_tokens,
        },
    }
}

/// The kind of the block that is growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growing {
    Thinking,
    Text,
    ToolUse,
}

/// Deltas to blocks.
#[derive(Debug, Default)]
struct Blocks {
    omits_reasoning: bool,
    /// Reasoning of the open block that is not shown.
    omitted: String,
    growing: Option<Growing>,
    /// Blocks begun.
    count: usize,
    /// Whitespace that is part of a text if more of it comes.
    held: String,
    /// The block of each tool call.
    calls: Vec<usize>,
}

type Events = Vec<StreamEvent<'static>>;

impl Blocks {
    /// The events of a delta. Within it, what goes on with the last call comes before the rest,
    /// and calls that begin come last.
    fn push(&mut self, delta: &Delta) -> Events {
        let mut events = Events::new();
        let going_on = delta.tool_calls.iter().take_while(|call| call.name.is_none()).count();
        let (going_on, begun) = delta.tool_calls.split_at(going_on);
        for call in going_on {
            self.call(call, &mut events);
        }
        self.thinking(&delta.reasoning, &mut events);
        self.text(&delta.content, &mut events);
        for call in begun {
            self.call(call, &mut events);
        }
        if delta.finish.is_some() {
            self.finish(&mut events);
        }
        events
    }

    fn thinking(&mut self, thinking: &str, events: &mut Events) {
        if thinking.is_empty() {
            return;
        }
        if self.growing != Some(Growing::Thinking) {
            let empty = OutputBlock::Thinking { thinking: String::new(), signature: String::new() };
            self.begin(Growing::Thinking, empty, events);
        }
        if self.omits_reasoning {
            self.omitted.push_str(thinking);
        } else {
            self.grow(BlockDelta::Thinking { thinking: thinking.to_owned() }, events);
        }
    }

    fn text(&mut self, text: &str, events: &mut Events) {
        if self.growing != Some(Growing::Text) {
            self.held.push_str(text);
            if self.held.trim().is_empty() {
                return;
            }
            let text = std::mem::take(&mut self.held);
            self.begin_text(text, events);
        } else if !text.is_empty() {
            self.grow(BlockDelta::Text { text: text.to_owned() }, events);
        }
    }

    fn begin_text(&mut self, text: String, events: &mut Events) {
        self.begin(Growing::Text, OutputBlock::Text { text: String::new() }, events);
        self.grow(BlockDelta::Text { text }, events);
    }

    fn call(&mut self, call: &ToolCallDelta, events: &mut Events) {
        if let Some(name) = &call.name {
            let made = || format!("toolu_{}", Uuid::new_v4().simple());
            let id = call.id.clone().unwrap_or_else(made);
            let empty = OutputBlock::ToolUse { id, name: name.clone(), input: Map::new() };
            self.begin(Growing::ToolUse, empty, events);
            self.calls.resize(call.index, self.count - 1);
            self.calls.push(self.count - 1);
        }
        if !call.arguments.is_empty() {
            let index = self.calls.get(call.index).copied().unwrap_or(self.count - 1);
            let delta = BlockDelta::InputJson { partial_json: call.arguments.clone() };
            events.push(StreamEvent::ContentBlockDelta { index, delta });
        }
    }

    fn begin(&mut self, kind: Growing, content_block: OutputBlock, events: &mut Events) {
        self.stop(events);
        self.held.clear();
        self.growing = Some(kind);
        events.push(StreamEvent::ContentBlockStart { index: self.count, content_block });
        self.count += 1;
    }

    fn grow(&mut self, delta: BlockDelta, events: &mut Events) {
        events.push(StreamEvent::ContentBlockDelta { index: self.count - 1, delta });
    }

    fn stop(&mut self, events: &mut Events) {
        if self.growing == Some(Growing::Thinking) {
            let omitted = std::mem::take(&mut self.omitted);
            let signature =
                if omitted.is_empty() { String::new() } else { carried_text::carry(&omitted) };
            self.grow(BlockDelta::Signature { signature }, events);
        }
        if self.growing.take().is_some() {
            events.push(StreamEvent::ContentBlockStop { index: self.count - 1 });
        }
    }

    fn finish(&mut self, events: &mut Events) {
        if self.count == 0 && !self.held.is_empty() {
            let text = std::mem::take(&mut self.held);
            self.begin_text(text, events);
        }
        self.stop(events);
    }
}

/// The blocks of a whole message, from the events of a stream.
#[derive(Debug, Default)]
struct Content {
    blocks: Vec<OutputBlock>,
    /// The input so far of the tool in the last block.
    json: String,
}

impl Content {
    fn add(&mut self, event: StreamEvent<'static>) {
        match event {
            StreamEvent::ContentBlockStart { content_block, .. } => self.blocks.push(content_block),
            StreamEvent::ContentBlockDelta { delta, .. } => self.grow(delta),
            StreamEvent::ContentBlockStop { .. } => {
                if let Some(OutputBlock::ToolUse { input, .. }) = self.blocks.last_mut() {
                    *input = arguments_object(std::mem::take(&mut self.json));
                }
            }
            StreamEvent::MessageStart { .. }
            | StreamEvent::Ping
            | StreamEvent::MessageDelta { .. }
            | StreamEvent::MessageStop => {}
        }
    }

    fn grow(&mut self, delta: BlockDelta) {
        match (self.blocks.last_mut(), delta) {
            (
                Some(OutputBlock::Thinking { thinking, .. }),
                BlockDelta::Thinking { thinking: more },
            ) => thinking.push_str(&more),
            (
                Some(OutputBlock::Thinking { signature, .. }),
                BlockDelta::Signature { signature: all },
            ) => *signature = all,
            (Some(OutputBlock::Text { text }), BlockDelta::Text { text: more }) => {
                text.push_str(&more);
            }
            (_, BlockDelta::InputJson { partial_json }) => self.json.push_str(&partial_json),
            _ => {}
        }
    }
}
