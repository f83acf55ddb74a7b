//! What was said so far, and the request that continues it.

use serde::Serialize;
use serde_json::{Value, json};

/// One message of the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    role: &'static str,
    content: String,
}

impl Message {
    fn new(role: &'static str, content: String) -> Self {
        Self { role, content }
    }
}

/// Sampling flags; those that were not given are not sent, so that the server's defaults rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args)]
pub struct SamplingFlags {
    /// How freely the model chooses; 0 always takes the likeliest token.
    #[arg(long, value_name = "T")]
    pub temperature: Option<f64>,

    /// Choose only among the likeliest tokens that together have this probability.
    #[arg(long, value_name = "P")]
    pub top_p: Option<f64>,

    /// Choose only among this many of the likeliest tokens.
    #[arg(long, value_name = "K")]
    pub top_k: Option<i64>,

    /// Choose only among tokens at least this likely, relative to the likeliest one.
    #[arg(long, value_name = "P")]
    pub min_p: Option<f64>,

    /// Longest answer, in tokens.
    #[arg(long, value_name = "TOKENS")]
    pub max_tokens: Option<u32>,

    /// The same seed and the same conversation give the same answer.
    #[arg(long, value_name = "SEED")]
    pub seed: Option<i64>,
}

/// System prompt and turns, oldest first; turns alternate between user and assistant.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    system: Option<String>,
    turns: Vec<Message>,
}

impl Conversation {
    pub(super) fn new(system: Option<String>) -> Self {
        Self { system, turns: Vec::new() }
    }

    pub(super) fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    pub(super) fn set_system(&mut self, system: Option<String>) {
        self.system = system;
    }

    pub(super) fn clear(&mut self) {
        self.turns.clear();
    }

    pub(super) fn ask(&mut self, question: String) {
        self.turns.push(Message::new("user", question));
    }

    pub(super) fn answer(&mut self, answer: String) {
        self.turns.push(Message::new("assistant", answer));
    }

    /// Takes the question back that got no answer.
    pub(super) fn take_back_question(&mut self) {
        if self.turns.last().is_some_and(|turn| turn.role == "user") {
            self.turns.pop();
        }
    }

    /// Takes the last answer and its question out; `None` when nothing was asked.
    pub(super) fn take_last_question(&mut self) -> Option<String> {
        let last = self.turns.iter().rposition(|turn| turn.role == "user")?;
        self.turns.drain(last..).next().map(|turn| turn.content)
    }

    /// All messages, the system prompt first.
    pub(super) fn messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text.clone()));
        system.chain(self.turns.iter().cloned()).collect()
    }

    /// The body of the request for the next answer.
    pub(super) fn request(&self, model: &str, sampling: SamplingFlags) -> Value {
        let SamplingFlags { temperature, top_p, top_k, min_p, max_tokens, seed } = sampling;
        let mut body = json!({
            "model": model,
            "messages": self.messages(),
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let flags = [
            ("temperature", json!(temperature)),
            ("top_p", json!(top_p)),
            ("top_k", json!(top_k)),
            ("min_p", json!(min_p)),
            ("max_tokens", json!(max_tokens)),
            ("seed", json!(seed)),
        ];
        for (name, value) in flags {
            if !value.is_null() {
                body[name] = value;
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(conversation: &Conversation) -> Vec<&str> {
        conversation.messages().iter().map(|message| message.role).collect()
    }

    #[test]
    fn sends_the_system_prompt_first_and_all_turns() {
        let mut talk = Conversation::new(Some("be kind".to_owned()));
        talk.ask("a".to_owned());
        talk.answer("b".to_owned());
        talk.ask("c".to_owned());
        assert_eq!(roles(&talk), ["system", "user", "assistant", "user"]);
        let body = talk.request("m", SamplingFlags::default());
        assert_eq!(body["messages"][3], json!({"role": "user", "content": "c"}));
        assert_eq!(body["model"], "m");
    }

    #[test]
    fn sends_the_flags_that_were_given_and_no_others() {
        let sampling =
            SamplingFlags { temperature: Some(0.0), seed: Some(-3), ..Default::default() };
        let body = Conversation::default().request("m", sampling);
        assert_eq!(body["temperature"], json!(0.0));
        assert_eq!(body["seed"], json!(-3));
        for name in ["top_p", "top_k", "min_p", "max_tokens"] {
            assert!(body.get(name).is_none(), "{name}");
        }
    }

    #[test]
    fn retry_takes_the_last_question_with_or_without_its_answer() {
        let mut talk = Conversation::default();
        assert_eq!(talk.take_last_question(), None);
        talk.ask("a".to_owned());
        talk.answer("b".to_owned());
        talk.ask("c".to_owned());
        assert_eq!(talk.take_last_question().as_deref(), Some("c"));
        assert_eq!(talk.take_last_question().as_deref(), Some("a"));
        assert!(talk.messages().is_empty());
    }

    #[test]
    fn clear_keeps_the_system_prompt() {
        let mut talk = Conversation::new(Some("s".to_owned()));
        talk.ask("a".to_owned());
        talk.clear();
        assert_eq!(roles(&talk), ["system"]);
        talk.take_back_question();
        assert_eq!(roles(&talk), ["system"]);
    }
}
