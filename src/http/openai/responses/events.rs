//! Deltas to items, and to the events that tell how the items grow: their order, and the numbers
//! they carry.
//!
//! Items stand in the order in which the model made them. Both ways to answer take the same deltas
//! through here, so that the events of a stream add up to the items of the whole answer.

use serde::Serialize;

use super::tools::{CalledTool, CalledTools, custom_input};
use crate::http::answer::carried_text;
use crate::http::answer::delta::ToolCallDelta;
use crate::http::answer::writer::SseEvent;
use crate::http::openai::envelope::{item_id, tool_call_id};
use crate::http::wire::chat::{TokenChoice, TokenLogprob};
use crate::http::wire::responses::{
    CustomToolCallItem, FunctionCallItem, Item, ItemStatus, MessageItem, Part, ReasoningItem,
    ResponseObject, Role,
};

/// Something that happened to a response.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) body: EventBody,
}

impl Event {
    /// One about the response as it stands.
    pub(super) fn response(kind: &'static str, response: &ResponseObject) -> Self {
        Self { kind, body: EventBody::Response { response: Box::new(response.clone()) } }
    }
}

/// What an event tells, beside its kind and number.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum EventBody {
    Response { response: Box<ResponseObject> },
    Item { output_index: usize, item: Item },
    Part { item_id: String, output_index: usize, content_index: usize, part: Part },
    Text(TextEvent),
    Arguments(ArgumentsEvent),
    Error { code: String, message: String, param: Option<String> },
}

/// More of a text, or all of it.
#[derive(Debug, Serialize)]
pub(super) struct TextEvent {
    item_id: String,
    output_index: usize,
    content_index: usize,
    #[serde(flatten)]
    gained: Gained,
    /// Absent where the text is reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<EventLogprob>>,
}

/// More of a call's arguments, or all of them.
#[derive(Debug, Serialize)]
pub(super) struct ArgumentsEvent {
    item_id: String,
    output_index: usize,
    #[serde(flatten)]
    gained: Gained,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Gained {
    Delta(String),
    Text(String),
    Arguments(String),
    Input(String),
}

/// As [`TokenLogprob`], which in events has no bytes.
#[derive(Debug, Serialize)]
struct EventLogprob {
    token: String,
    logprob: f64,
    top_logprobs: Vec<EventTopLogprob>,
}

#[derive(Debug, Serialize)]
struct EventTopLogprob {
    token: String,
    logprob: f64,
}

/// Numbers the events of one stream.
#[derive(Debug, Default)]
pub(super) struct Numbering(u64);

impl Numbering {
    pub(super) fn sse_event(&mut self, event: &Event) -> SseEvent {
        #[derive(Serialize)]
        struct Numbered<'a> {
            #[serde(rename = "type")]
            kind: &'static str,
            sequence_number: u64,
            #[serde(flatten)]
            body: &'a EventBody,
        }
        let Event { kind, body } = event;
        let sse_event = SseEvent::event(kind, &Numbered { kind, sequence_number: self.0, body });
        self.0 += 1;
        sse_event
    }
}

/// The items of an answer while it grows.
#[derive(Debug, Default)]
pub(super) struct Output {
    called: CalledTools,
    done: Vec<Item>,
    open: Option<Open>,
    /// White space that no message has begun with: what stands between calls is no message.
    blank: Spoken,
    /// Whether the prompt alone is wanted.
    silent: bool,
    /// Whether reasoning comes in an opaque form too.
    carries_reasoning: bool,
}

/// What is added to the answer.
#[derive(Debug, Default)]
pub(super) struct Addition {
    pub(super) reasoning: String,
    pub(super) spoken: Spoken,
    pub(super) tool_calls: Vec<ToolCallDelta>,
}

/// Text, and the logprobs of its tokens.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    pub(super) text: String,
    pub(super) logprobs: Vec<TokenLogprob>,
}

impl Output {
    /// An answer of no items, in which tools are called so.
    pub(super) fn new(called: CalledTools) -> Self {
        Self { called, ..Self::default() }
    }

    /// The same, with reasoning in a form besides that clients can send back in place of it.
    pub(super) fn carrying_reasoning(self, carries_reasoning: bool) -> Self {
        Self { carries_reasoning, ..self }
    }

    /// Lets the items grow.
    pub(super) fn add(&mut self, addition: Addition) -> Vec<Event> {
        let mut events = Vec::new();
        let Addition { reasoning, spoken, tool_calls } = addition;
        if !reasoning.is_empty() {
            self.think(reasoning, &mut events);
        }
        // The rest of a call stands before what follows the call.
        let going_on = tool_calls.iter().take_while(|call| call.name.is_none()).count();
        let mut calls = tool_calls.into_iter();
        for call in calls.by_ref().take(going_on) {
            self.argue(call.arguments, &mut events);
        }
        if !spoken.text.is_empty() {
            self.say(spoken, &mut events);
        }
        for call in calls {
            if let Some(name) = call.name {
                self.blank = Spoken::default();
                let tool = self.called.find(&name);
                let id = item_id(if tool.custom { "ctc" } else { "fc" });
                let (call_id, arguments) = (call.id.unwrap_or_else(tool_call_id), String::new());
                self.begin(Open::Call { id, call_id, tool, arguments }, &mut events);
            }
            self.argue(call.arguments, &mut events);
        }
        events
    }

    /// For an answer that is not wanted: there is no message of nothing.
    pub(super) fn silent(self) -> Self {
        Self { silent: true, ..self }
    }

    /// Ends the last item, `status` being how; an answer of nothing is a message of nothing.
    pub(super) fn end(&mut self, status: ItemStatus) -> Vec<Event> {
        let mut events = Vec::new();
        if self.done.is_empty() && self.open.is_none() && !self.silent {
            let blank = std::mem::take(&mut self.blank);
            self.message(&mut events);
            self.grow(blank, &mut events);
        }
        self.close(status, &mut events);
        events
    }

    /// The items that have ended.
    pub(super) fn items(&self) -> &[Item] {
        &self.done
    }

    fn think(&mut self, text: String, events: &mut Vec<Event>) {
        if !matches!(self.open, Some(Open::Reasoning { .. })) {
            let (id, text) = (item_id("rs"), String::new());
            let carried = self.carries_reasoning;
            self.begin(Open::Reasoning { id, text, carried }, events);
        }
        self.grow(Spoken { text, logprobs: Vec::new() }, events);
    }

    fn say(&mut self, spoken: Spoken, events: &mut Vec<Event>) {
        if matches!(self.open, Some(Open::Message { .. })) {
            self.grow(spoken, events);
            return;
        }
        self.blank.text.push_str(&spoken.text);
        self.blank.logprobs.extend(spoken.logprobs);
        if !self.blank.text.trim().is_empty() {
            let spoken = std::mem::take(&mut self.blank);
            self.message(events);
            self.grow(spoken, events);
        }
    }

    fn message(&mut self, events: &mut Vec<Event>) {
        let (id, text, logprobs) = (item_id("msg"), String::new(), Vec::new());
        self.begin(Open::Message { id, text, logprobs }, events);
    }

    /// Appends to the open item's text.
    fn grow(&mut self, spoken: Spoken, events: &mut Vec<Event>) {
        let output_index = self.done.len();
        let (kind, item_id, logprobs) = match &mut self.open {
            Some(Open::Reasoning { id, text, .. }) => {
                text.push_str(&spoken.text);
                ("response.reasoning_text.delta", id.clone(), None)
            }
            Some(Open::Message { id, text, logprobs }) => {
                text.push_str(&spoken.text);
                let told = for_event(&spoken.logprobs);
                logprobs.extend(spoken.logprobs);
                ("response.output_text.delta", id.clone(), Some(told))
            }
            Some(Open::Call { .. }) | None => return,
        };
        if !spoken.text.is_empty() {
            let gained = Gained::Delta(spoken.text);
            let event = TextEvent { item_id, output_index, content_index: 0, gained, logprobs };
            events.push(Event { kind, body: EventBody::Text(event) });
        }
    }

    /// Appends to the arguments of the open call.
    fn argue(&mut self, more: String, events: &mut Vec<Event>) {
        let output_index = self.done.len();
        if let Some(Open::Call { id, arguments, tool, .. }) = &mut self.open
            && !more.is_empty()
        {
            arguments.push_str(&more);
            // The text of a custom tool is inside of its arguments, and told with their end.
            if tool.custom {
                return;
            }
            let (item_id, gained) = (id.clone(), Gained::Delta(more));
            let event = ArgumentsEvent { item_id, output_index, gained, name: None };
            let kind = "response.function_call_arguments.delta";
            events.push(Event { kind, body: EventBody::Arguments(event) });
        }
    }

    fn begin(&mut self, open: Open, events: &mut Vec<Event>) {
        self.close(ItemStatus::Completed, events);
        let output_index = self.done.len();
        let item = open.item(ItemStatus::InProgress);
        events.push(Event {
            kind: "response.output_item.added",
            body: EventBody::Item { output_index, item },
        });
        if let Some(part) = open.part() {
            let item_id = open.id().to_owned();
            let body = EventBody::Part { item_id, output_index, content_index: 0, part };
            events.push(Event { kind: "response.content_part.added", body });
        }
        self.open = Some(open);
    }

    fn close(&mut self, status: ItemStatus, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else { return };
        let output_index = self.done.len();
        events.extend(open.custom_input_delta(output_index));
        events.push(open.done(output_index));
        if let Some(part) = open.part() {
            let item_id = open.id().to_owned();
            let body = EventBody::Part { item_id, output_index, content_index: 0, part };
            events.push(Event { kind: "response.content_part.done", body });
        }
        let item = open.item(status);
        self.done.push(item.clone());
        events.push(Event {
            kind: "response.output_item.done",
            body: EventBody::Item { output_index, item },
        });
    }
}

/// The item that grows.
#[derive(Debug)]
enum Open {
    Reasoning { id: String, text: String, carried: bool },
    Message { id: String, text: String, logprobs: Vec<TokenLogprob> },
    Call { id: String, call_id: String, tool: CalledTool, arguments: String },
}

impl Open {
    fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. } | Self::Message { id, .. } | Self::Call { id, .. } => id,
        }
    }

    /// The text so far, where that is a part of the item.
    fn part(&self) -> Option<Part> {
        match self {
            Self::Reasoning { text, .. } => Some(Part::ReasoningText { text: text.clone() }),
            Self::Message { text, logprobs, .. } => {
                Some(Part::output(text.clone(), logprobs.clone()))
            }
            Self::Call { .. } => None,
        }
    }

    /// The item; while it is in progress, its parts have events of their own.
    fn item(&self, status: ItemStatus) -> Item {
        let begins = status == ItemStatus::InProgress;
        let content: Vec<Part> = self.part().filter(|_| !begins).into_iter().collect();
        let id = self.id().to_owned();
        match self {
            Self::Reasoning { text, carried, .. } => Item::Reasoning(ReasoningItem {
                id,
                status,
                summary: Vec::new(),
                content,
                encrypted_content: (*carried && !begins).then(|| carried_text::carry(text)),
            }),
            Self::Message { .. } => {
                Item::Message(MessageItem { id, status, role: Role::Assistant, content })
            }
            Self::Call { call_id, tool, arguments, .. } => {
                let (call_id, CalledTool { namespace, name, custom }) =
                    (call_id.clone(), tool.clone());
                if custom {
                    let input = custom_input(arguments);
                    Item::CustomToolCall(CustomToolCallItem { id, call_id, name, input, status })
                } else {
                    let arguments = arguments.clone();
                    let item = FunctionCallItem { id, call_id, namespace, name, arguments, status };
                    Item::FunctionCall(item)
                }
            }
        }
    }

    /// The text of a custom tool's call, which comes at once.
    fn custom_input_delta(&self, output_index: usize) -> Option<Event> {
        let Self::Call { id, tool, arguments, .. } = self else { return None };
        let (item_id, gained) = (id.clone(), Gained::Delta(custom_input(arguments)));
        let event = ArgumentsEvent { item_id, output_index, gained, name: None };
        let kind = "response.custom_tool_call_input.delta";
        tool.custom.then_some(Event { kind, body: EventBody::Arguments(event) })
    }

    /// All of the text or the arguments.
    fn done(&self, output_index: usize) -> Event {
        let item_id = self.id().to_owned();
        let text = |kind, item_id, text: &String, logprobs| {
            let gained = Gained::Text(text.clone());
            let event = TextEvent { item_id, output_index, content_index: 0, gained, logprobs };
            Event { kind, body: EventBody::Text(event) }
        };
        match self {
            Self::Reasoning { text: all, .. } => {
                text("response.reasoning_text.done", item_id, all, None)
            }
            Self::Message { text: all, logprobs, .. } => {
                let logprobs = Some(for_event(logprobs));
                text("response.output_text.done", item_id, all, logprobs)
            }
            Self::Call { tool, arguments, .. } if tool.custom => {
                let gained = Gained::Input(custom_input(arguments));
                let event = ArgumentsEvent { item_id, output_index, gained, name: None };
                let kind = "response.custom_tool_call_input.done";
                Event { kind, body: EventBody::Arguments(event) }
            }
            Self::Call { tool, arguments, .. } => {
                let gained = Gained::Arguments(arguments.clone());
                let name = Some(tool.name.clone());
                let event = ArgumentsEvent { item_id, output_index, gained, name };
                let kind = "response.function_call_arguments.done";
                Event { kind, body: EventBody::Arguments(event) }
            }
        }
    }
}

fn for_event(logprobs: &[TokenLogprob]) -> Vec<EventLogprob> {
    let told = logprobs.iter().map(|entry| EventLogprob {
        token: entry.token.token.clone(),
        logprob: entry.token.logprob,
        top_logprobs: entry.top_logprobs.iter().map(top).collect(),
    });
    told.collect()
}

fn top(choice: &TokenChoice) -> EventTopLogprob {
    EventTopLogprob { token: choice.token.clone(), logprob: choice.logprob }
}
