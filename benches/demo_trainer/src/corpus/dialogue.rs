//! A conversation with what each answer must be, and its rendering. Refuses to know topics.
//!
//! The rendering is written out here, because training needs to know which stretches are answers; a test
//! holds it against the chat template that the model's folder ships.

use super::form::Bindings;
use serde_json::Value;
#[cfg(test)]
use serde_json::json;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Message {
    System(String),
    User(String),
    Assistant(String),
    /// A call the assistant makes.
    Call {
        name: String,
        arguments: Value,
    },
    /// What the called function gave back.
    Tool(String),
}

/// What an answer must be to count as right.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// A story the templates can produce with these slots.
    Story(Bindings),
    /// One of these texts.
    OneOf(Vec<String>),
    /// JSON that reads as this value, keys in this order.
    Json(Value),
    /// This call and nothing else.
    Call { name: String, arguments: Value },
}

/// Functions on offer, messages, and one expectation for each message of the assistant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dialogue {
    pub(crate) tools: Vec<Value>,
    pub(crate) messages: Vec<Message>,
    expects: Vec<Expect>,
}

/// A stretch of a rendered conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) text: String,
    /// Whether the model is to say this itself.
    pub(crate) spoken: bool,
}

impl Dialogue {
    pub(crate) fn ask(
        &mut self,
        question: impl Into<String>,
        answer: impl Into<String>,
        expect: Expect,
    ) {
        self.messages.push(Message::User(question.into()));
        self.answer(answer, expect);
    }

    /// A question with one right answer.
    pub(crate) fn ask_exactly(&mut self, question: impl Into<String>, answer: impl Into<String>) {
        let answer = answer.into();
        self.ask(question, answer.clone(), Expect::OneOf(vec![answer]));
    }

    pub(crate) fn answer(&mut self, answer: impl Into<String>, expect: Expect) {
        self.messages.push(Message::Assistant(answer.into()));
        self.expects.push(expect);
    }

    pub(crate) fn call(&mut self, question: impl Into<String>, name: &str, arguments: Value) {
        self.messages.push(Message::User(question.into()));
        self.messages.push(Message::Call { name: name.to_owned(), arguments: arguments.clone() });
        self.expects.push(Expect::Call { name: name.to_owned(), arguments });
    }

    /// Appends another conversation's messages.
    pub(crate) fn follow_with(&mut self, next: Self) {
        self.messages.extend(next.messages);
        self.expects.extend(next.expects);
    }

    #[cfg(test)]
    /// Each answer with what it must be.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (String, &Expect)> {
        let spoken = self.messages.iter().filter_map(Message::spoken);
        spoken.zip(&self.expects)
    }

    /// The rendered conversation, cut where the speaker changes.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut heard = String::new();
        let mut messages = self.messages.as_slice();
        if !self.tools.is_empty() {
            heard.push_str("<|im_start|>system\n");
            if let [Message::System(text), rest @ ..] = messages {
                heard.push_str(text);
                heard.push_str("\n\n");
                messages = rest;
            }
            heard.push_str("You may call these functions:\n<tools>");
            for tool in &self.tools {
                heard.push('\n');
                heard.push_str(&spaced(tool));
            }
            heard.push_str(
                "\n</tools>\nTo call one, answer with its name and arguments as JSON in tool_call tags.<|im_end|>\n",
            );
        }
        for message in messages {
            match message {
                Message::System(text) => {
                    heard.extend(["<|im_start|>system\n", text, "<|im_end|>\n"]);
                }
                Message::User(text) => {
                    heard.extend(["<|im_start|>user\n", text, "<|im_end|>\n"]);
                }
                Message::Tool(text) => {
                    let (opening, closing) =
                        ("<tool_response>\n", "\n</tool_response><|im_end|>\n");
                    heard.extend(["<|im_start|>tool\n", opening, text, closing]);
                }
                Message::Assistant(_) | Message::Call { .. } => {
                    heard.push_str("<|im_start|>assistant\n");
                    stretches.push(Stretch { text: std::mem::take(&mut heard), spoken: false });
                    stretches.push(Stretch {
                        text: message.spoken().expect("the assistant speaks") + "<|im_end|>",
                        spoken: true,
                    });
                    heard.push('\n');
                }
            }
        }
        stretches
    }

    /// The prompt of the last answer, and what that answer must be.
    pub(crate) fn last_prompt(&self) -> (String, &Expect) {
        let mut stretches = self.stretches();
        stretches.pop();
        let expect = self.expects.last().expect("a dialogue has an answer");
        (stretches.into_iter().map(|s| s.text).collect(), expect)
    }

    #[cfg(test)]
    /// The conversation as an OpenAI client would send it.
    pub(crate) fn to_json(&self) -> Value {
        let messages: Vec<Value> = self.messages.iter().map(Message::to_json).collect();
        json!({"messages": messages, "tools": self.tools})
    }
}

impl Message {
    fn spoken(&self) -> Option<String> {
        match self {
            Self::Assistant(text) => Some(text.clone()),
            Self::Call { name, arguments } => {
                let arguments = spaced(arguments);
                Some(format!(
                    "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
                ))
            }
            _ => None,
        }
    }

    #[cfg(test)]
    fn to_json(&self) -> Value {
        match self {
            Self::System(text) => json!({"role": "system", "content": text}),
            Self::User(text) => json!({"role": "user", "content": text}),
            Self::Assistant(text) => json!({"role": "assistant", "content": text}),
            Self::Tool(text) => json!({"role": "tool", "content": text}),
            Self::Call { name, arguments } => json!({"role": "assistant", "content": null,
                "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}),
        }
    }
}

/// JSON with a space behind every comma and colon, as `tojson` writes it in chat templates.
pub(crate) fn spaced(value: &Value) -> String {
    let text = |s: &str| Value::from(s).to_string();
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", text(key), spaced(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;
    use crate::corpus::dice::Dice;
    use crate::corpus::lexicon::Lexicon;
    use minijinja::Environment;
    use minijinja::syntax::SyntaxConfig;
    use minijinja::value::Kwargs;

    fn to_template(value: &Value) -> minijinja::Value {
        match value {
            Value::Null => minijinja::Value::from(()),
            Value::Bool(truth) => minijinja::Value::from(*truth),
            Value::Number(number) => {
                minijinja::Value::from(number.as_u64().expect("a small number"))
            }
            Value::String(text) => minijinja::Value::from(text.as_str()),
            Value::Array(items) => items.iter().map(to_template).collect(),
            Value::Object(fields) => minijinja::Value::from_pairs(
                fields.iter().map(|(key, value)| (key.clone(), to_template(value))),
            ),
        }
    }

    #[test]
    fn the_chat_template_renders_the_same() {
        let mut environment = Environment::new();
        let blocks = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(blocks.expect("the syntax is the usual one"));
        environment.add_filter("tojson", |value: minijinja::Value, options: Kwargs| {
            let json = minijinja::filters::tojson(&value, None, options).expect("it is JSON");
            let json = json.as_str().expect("JSON is text");
            spaced(&serde_json::from_str(json).expect("JSON parses"))
        });
        let template = include_str!("../../../../src/demo/model/chat_template.jinja");
        let template = environment.template_from_str(template).expect("the template parses");
        let mut dice = Dice::new(14);
        let mut with_calls = 0;
        for _ in 0..300 {
            let dialogue = corpus::draw(&mut dice, Lexicon::Known);
            let calls = dialogue.messages.iter().any(|m| matches!(m, Message::Call { .. }));
            with_calls += usize::from(calls);
            let mut written: String = dialogue.stretches().into_iter().map(|s| s.text).collect();
            written.push('\n');
            let rendered = template.render(to_template(&dialogue.to_json())).expect("it renders");
            assert_eq!(rendered, written);
        }
        assert!(with_calls > 10);
    }
}
