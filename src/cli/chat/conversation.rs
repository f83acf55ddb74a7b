//! What was said so far, and the request that continues it.

use std::path::Path;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::chat::settings::Settings;

/// One message of the conversation, as requests have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    role: Role,
    /// A text, or parts where there are pictures.
    content: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    User,
    Assistant,
}

impl Message {
    fn new(role: Role, text: String) -> Self {
        Self { role, content: Value::String(text) }
    }

    /// A message as a file has it; `at` is its place there.
    fn read(at: usize, message: &Value) -> anyhow::Result<Self> {
        let role = match message["role"].as_str() {
            Some("system") => Role::System,
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            _ => bail!("message {at} has no role: system, user or assistant"),
        };
        let content = message["content"].clone();
        let has_parts = role == Role::User && content.is_array();
        if !has_parts && !content.is_string() {
            bail!("message {at} has no content that is a text");
        }
        Ok(Self { role, content })
    }

    /// Its text, or that of its parts.
    fn text(&self) -> String {
        let parts = self.content.as_array().into_iter().flatten();
        let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
        self.content.as_str().map_or_else(|| texts.join("\n"), str::to_owned)
    }
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

    /// A conversation that was saved.
    ///
    /// # Errors
    /// The file can't be read, or is not a list of messages.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path);
        let bytes = bytes.with_context(|| format!("can't read {}", path.display()))?;
        let not_saved = || format!("{} is no conversation that /save wrote", path.display());
        let messages: Vec<Value> = serde_json::from_slice(&bytes).with_context(not_saved)?;
        let read = messages.iter().enumerate().map(|(at, message)| Message::read(at, message));
        let mut turns: Vec<Message> = read.collect::<Result<_, _>>().with_context(not_saved)?;
        let has_system = turns.first().is_some_and(|first| first.role == Role::System);
        let system = has_system.then(|| turns.remove(0).text());
        Ok(Self { system, turns })
    }

    /// Number of messages, the system prompt aside.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
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

    /// Adds a question; `pictures` are their URLs.
    pub(super) fn ask(&mut self, question: String, pictures: &[String]) {
        let mut message = Message::new(Role::User, question);
        if !pictures.is_empty() {
            let part = |url: &String| json!({"type": "image_url", "image_url": {"url": url}});
            let mut parts: Vec<Value> = pictures.iter().map(part).collect();
            if message.content != "" {
                parts.push(json!({"type": "text", "text": message.content}));
            }
            message.content = Value::Array(parts);
        }
        self.turns.push(message);
    }

    /// Adds a question that was taken out.
    pub(super) fn ask_again(&mut self, question: Message) {
        self.turns.push(question);
    }

    pub(super) fn answer(&mut self, answer: String) {
        self.turns.push(Message::new(Role::Assistant, answer));
    }

    /// Takes the question back that got no answer.
    pub(super) fn take_back_question(&mut self) {
        if self.turns.last().is_some_and(|turn| turn.role == Role::User) {
            self.turns.pop();
        }
    }

    /// Takes the last answer and its question out; `None` when nothing was asked.
    pub(super) fn take_last_question(&mut self) -> Option<Message> {
        let last = self.turns.iter().rposition(|turn| turn.role == Role::User)?;
        self.turns.drain(last..).next()
    }

    /// All messages, the system prompt first.
    pub(super) fn messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new(Role::System, text.clone()));
        system.chain(self.turns.iter().cloned()).collect()
    }

    /// The body of the request for the next answer.
    pub(super) fn request(&self, model: &str, settings: &Settings) -> Value {
        let mut body = json!({
            "model": model,
            "messages": self.messages(),
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        settings.add_to(&mut body);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(conversation: &Conversation) -> Vec<Role> {
        conversation.messages().iter().map(|message| message.role).collect()
    }

    fn asked(conversation: &mut Conversation, text: &str) {
        conversation.ask(text.to_owned(), &[]);
    }

    #[test]
    fn sends_the_system_prompt_first_and_all_turns() {
        let mut talk = Conversation::new(Some("be kind".to_owned()));
        asked(&mut talk, "a");
        talk.answer("b".to_owned());
        asked(&mut talk, "c");
        assert_eq!(roles(&talk), [Role::System, Role::User, Role::Assistant, Role::User]);
        let mut settings = Settings::default();
        settings.set("seed", "4").unwrap();
        let body = talk.request("m", &settings);
        assert_eq!(body["messages"][3], json!({"role": "user", "content": "c"}));
        assert_eq!((&body["model"], &body["seed"]), (&json!("m"), &json!(4)));
    }

    #[test]
    fn pictures_come_before_the_text() {
        let mut talk = Conversation::default();
        talk.ask("what?".to_owned(), &["data:1".to_owned()]);
        talk.answer("b".to_owned());
        talk.ask(String::new(), &["data:2".to_owned()]);
        let body = talk.request("m", &Settings::default());
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let text = json!({"type": "text", "text": "what?"});
        assert_eq!(body["messages"][0]["content"], json!([image("data:1"), text]));
        assert_eq!(body["messages"][2]["content"], json!([image("data:2")]));
    }

    #[test]
    fn retry_takes_the_last_question_with_or_without_its_answer() {
        let mut talk = Conversation::default();
        assert_eq!(talk.take_last_question(), None);
        asked(&mut talk, "a");
        talk.answer("b".to_owned());
        asked(&mut talk, "c");
        assert_eq!(talk.take_last_question().unwrap().text(), "c");
        assert_eq!(talk.take_last_question().unwrap().text(), "a");
        assert!(talk.messages().is_empty());
    }

    #[test]
    fn clear_keeps_the_system_prompt() {
        let mut talk = Conversation::new(Some("s".to_owned()));
        asked(&mut talk, "a");
        talk.clear();
        assert_eq!(roles(&talk), [Role::System]);
        talk.take_back_question();
        assert_eq!(roles(&talk), [Role::System]);
    }

    #[test]
    fn a_saved_conversation_is_loaded_and_nothing_else_is() {
        let mut talk = Conversation::new(Some("s".to_owned()));
        talk.ask("a".to_owned(), &["data:1".to_owned()]);
        talk.answer("b".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        std::fs::write(&path, serde_json::to_vec(&talk.messages()).unwrap()).unwrap();
        let loaded = Conversation::load(&path).unwrap();
        assert_eq!(loaded.messages(), talk.messages());
        assert_eq!((loaded.len(), loaded.system()), (2, Some("s")));
        for (text, told) in [
            ("{}", "is no conversation that /save wrote"),
            (r#"[{"role": "tool", "content": "x"}]"#, "message 0 has no role"),
            (r#"[{"role": "user"}]"#, "message 0 has no content"),
            (r#"[{"role": "assistant", "content": [1]}]"#, "message 0 has no content"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", Conversation::load(&path).unwrap_err());
            assert!(error.contains(told), "{error}");
        }
        let missing = Conversation::load(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("can't read"), "{missing}");
    }
}
