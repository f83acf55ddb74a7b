//! One conversation with one server: carries out entries, prints answers, keeps the history. Knows
//! no terminal: entries are given to it, and a future tells it when to stop an answer.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cli::chat::command::{COMMANDS, Detail, Entry};
use crate::cli::chat::conversation::Conversation;
use crate::cli::chat::pictures;
use crate::cli::chat::screen::Screen;
use crate::cli::chat::settings::Settings;
use crate::cli::client::{ApiClient, Chunk, ClientError, Usage};

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Exit,
}

/// A server, a model and what was said to it.
pub(super) struct Session<W> {
    pub(super) client: ApiClient,
    pub(super) model: String,
    pub(super) settings: Settings,
    pub(super) conversation: Conversation,
    pub(super) screen: Screen<W>,
    /// What is told after each answer.
    pub(super) detail: Detail,
}

/// What is known of an answer when it has ended.
#[derive(Debug)]
struct Answer {
    text: String,
    usage: Option<Usage>,
    finish_reason: Option<String>,
    asked_at: Instant,
    first_text_at: Option<Instant>,
    last_text_at: Option<Instant>,
    was_stopped: bool,
}

impl<W: Write> Session<W> {
    /// Carries out one entry. `stop` ends a running answer when it completes; what was received
    /// until then stays in the conversation.
    pub(super) async fn handle(
        &mut self,
        entry: Entry,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<Flow> {
        match entry {
            Entry::Nothing => {}
            Entry::Exit => return Ok(Flow::Exit),
            Entry::Help => self.screen.note(&help())?,
            Entry::Mistake(text) => self.screen.note(&text)?,
            Entry::Clear => {
                self.conversation.clear();
                self.screen.note("the conversation is empty")?;
            }
            Entry::ShowSystem => {
                let system = self.conversation.system().unwrap_or("no system prompt").to_owned();
                self.screen.note(&system)?;
            }
            Entry::SetSystem(system) => {
                self.conversation.set_system(system);
                self.screen.note("the system prompt holds from the next answer on")?;
            }
            Entry::ShowSettings => self.screen.note(&self.settings.shown())?,
            Entry::Set(name, value) => {
                let told = self.settings.set(&name, &value);
                self.screen.note(&told.unwrap_or_else(|mistake| mistake))?;
            }
            Entry::Think(thinks) => {
                self.settings.set_thinking(Some(thinks));
                let told = if thinks { "the model may think" } else { "the model is not to think" };
                self.screen.note(told)?;
            }
            Entry::Tell(detail) => self.detail = detail,
            Entry::Save(path) => match self.save(&path) {
                Ok(()) => self.screen.note(&format!("saved to {}", path.display()))?,
                Err(error) => self.screen.note(&format!("{error:#}"))?,
            },
            Entry::Load(path) => match Conversation::load(&path) {
                Ok(loaded) => {
                    self.screen.note(&format!("{} messages loaded", loaded.len()))?;
                    self.conversation = loaded;
                }
                Err(error) => self.screen.note(&format!("{error:#}"))?,
            },
            Entry::Retry => match self.conversation.take_last_question() {
                Some(question) => {
                    self.conversation.ask_again(question);
                    self.answer_and_go_on(stop).await?;
                }
                None => self.screen.note("nothing was asked yet")?,
            },
            Entry::Message(question) => match self.put(&question) {
                Ok(()) => self.answer_and_go_on(stop).await?,
                Err(error) => self.screen.note(&format!("{error:#}"))?,
            },
        }
        Ok(Flow::Continue)
    }

    /// Asks once and prints the answer; what is returned is worth a note beside it.
    ///
    /// # Errors
    /// Whatever the server or the connection refused; the question is then taken back. A picture
    /// that can't be read.
    pub(super) async fn ask(
        &mut self,
        question: &str,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<String>> {
        self.put(question)?;
        self.answer(stop).await
    }

    /// Adds a question to the conversation, with the pictures that it names.
    fn put(&mut self, question: &str) -> anyhow::Result<()> {
        let (text, found) = pictures::taken_out(question)?;
        if self.detail != Detail::Quiet {
            for picture in &found {
                self.screen.note(&format!("(with the picture {})", picture.path.display()))?;
            }
        }
        let urls: Vec<String> = found.into_iter().map(|picture| picture.url).collect();
        self.conversation.ask(text, &urls);
        Ok(())
    }

    /// Answers the last question.
    async fn answer(&mut self, stop: impl Future<Output = ()>) -> anyhow::Result<Option<String>> {
        let body = self.conversation.request(&self.model, &self.settings);
        let client = self.client.clone();
        let answer = stream_answer(&client, &body, &mut self.screen, stop).await;
        self.screen.end_answer()?;
        if answer.is_err() {
            self.conversation.take_back_question();
        }
        let answer = answer?;
        let note = answer.note(self.detail);
        self.conversation.answer(answer.text);
        Ok(note)
    }

    /// An error of the server ends the answer, not the conversation.
    async fn answer_and_go_on(&mut self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        match self.answer(stop).await {
            Ok(None) => {}
            Ok(Some(note)) => self.screen.note(&note)?,
            Err(error) if error.is::<ClientError>() => {
                self.screen.note(&format!("{error:#}"))?;
                self.screen.note("(the question was not kept; the up arrow brings it back)")?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Never overwrites: a typing mistake must not cost a file.
    fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut json = serde_json::to_string_pretty(&self.conversation.messages())?;
        json.push('\n');
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let mut file = file.with_context(|| format!("can't create {}", path.display()))?;
        file.write_all(json.as_bytes()).with_context(|| format!("can't write {}", path.display()))
    }
}

/// Prints frames as they come until the answer ends or `stop` completes. Dropping the stream closes
/// the connection, and the server stops computing.
async fn stream_answer<W: Write>(
    client: &ApiClient,
    body: &serde_json::Value,
    screen: &mut Screen<W>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Answer> {
    let mut answer = Answer::asked_now();
    screen.wait("the prompt is read");
    let receive = async {
        let mut stream = client.stream("/v1/chat/completions", body).await?;
        while let Some(chunk) = stream.next().await? {
            screen.reasoning(&chunk.reasoning)?;
            screen.answer(&chunk.text)?;
            answer.take(chunk);
        }
        anyhow::Ok(())
    };
    tokio::select! {
        result = receive => result?,
        () = stop => answer.was_stopped = true,
    }
    Ok(answer)
}

impl Answer {
    fn asked_now() -> Self {
        Self {
            text: String::new(),
            usage: None,
            finish_reason: None,
            asked_at: Instant::now(),
            first_text_at: None,
            last_text_at: None,
            was_stopped: false,
        }
    }

    fn take(&mut self, chunk: Chunk) {
        if chunk.has_text() {
            let now = Instant::now();
            self.first_text_at.get_or_insert(now);
            self.last_text_at = Some(now);
        }
        self.text.push_str(&chunk.text);
        self.usage = chunk.usage.or(self.usage);
        self.finish_reason = chunk.finish_reason.or(self.finish_reason.take());
    }

    /// What the user should know.
    fn note(&self, detail: Detail) -> Option<String> {
        if detail == Detail::Full {
            return Some(self.describe());
        }
        let cut = self.finish_reason.as_deref() == Some("length");
        let end = match (self.was_stopped, cut) {
            (true, _) => Some("stopped".to_owned()),
            (false, true) => Some("cut: the answer reached its greatest length".to_owned()),
            (false, false) => None,
        };
        let speed = self.tokens_per_second().filter(|_| detail == Detail::Brief);
        let speed = speed.map(|speed| format!("{speed:.1} tokens/s"));
        let parts: Vec<String> = end.into_iter().chain(speed).collect();
        (!parts.is_empty()).then(|| format!("({})", parts.join("; ")))
    }

    /// `(12 tokens in, 34 out; first after 0.10 s; 45.6 tokens/s; stop)`
    fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(usage) = self.usage {
            let cached = match usage.cached_tokens {
                0 => String::new(),
                cached => format!(" ({cached} cached)"),
            };
            parts.push(format!(
                "{} tokens in{cached}, {} out",
                usage.prompt_tokens, usage.completion_tokens
            ));
        }
        if let Some(first) = self.first_text_at {
            parts.push(format!("first after {:.2} s", (first - self.asked_at).as_secs_f64()));
        }
        if let Some(speed) = self.tokens_per_second() {
            parts.push(format!("{speed:.1} tokens/s"));
        }
        let finish = if self.was_stopped { Some("stopped") } else { self.finish_reason.as_deref() };
        parts.extend(finish.map(str::to_owned));
        format!("({})", parts.join("; "))
    }

    /// Of the tokens after the first one.
    fn tokens_per_second(&self) -> Option<f64> {
        let time = self.last_text_at?.duration_since(self.first_text_at?);
        let rest = u32::try_from(self.usage?.completion_tokens).ok()?.checked_sub(1)?;
        (rest > 0 && time > Duration::ZERO).then(|| f64::from(rest) / time.as_secs_f64())
    }
}

fn help() -> String {
    let mut text = String::new();
    for (usage, meaning) in COMMANDS {
        let _ = writeln!(text, "{usage:<18} {meaning}");
    }
    text.push_str(
        "\nCtrl-C stops an answer. A line that ends in \\ goes on in the next one; text between\n\
         \"\"\" and \"\"\" may have many lines, and so may a pasted text. A message that names a picture by\n\
         its path (/a/b.png, ./b.png, ~/b.png) brings it along, if the model sees.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::chat::settings::SamplingFlags;
    use crate::cli::fake_server::{Seen, eventually, start};
    use std::sync::Arc;

    async fn session(model: &str) -> (Session<Vec<u8>>, Arc<Seen>) {
        let (url, seen) = start().await;
        let session = Session {
            client: ApiClient::new(&url, None).unwrap(),
            model: model.to_owned(),
            settings: Settings::of(SamplingFlags {
                max_tokens: Some(3),
                ..SamplingFlags::default()
            }),
            conversation: Conversation::default(),
            screen: Screen::new(Vec::new(), false),
            detail: Detail::Quiet,
        };
        (session, seen)
    }

    async fn type_in(session: &mut Session<Vec<u8>>, text: &str) -> Flow {
        session.handle(Entry::parse(text), std::future::pending()).await.unwrap()
    }

    fn shown(session: &mut Session<Vec<u8>>) -> String {
        String::from_utf8(std::mem::take(session.screen.get_mut())).unwrap()
    }

    #[tokio::test]
    async fn every_turn_sends_the_whole_conversation() {
        let (mut session, seen) = session("steady").await;
        type_in(&mut session, "/system be kind").await;
        type_in(&mut session, "one").await;
        type_in(&mut session, "two").await;
        assert!(shown(&mut session).ends_with("t0 t1 t2 \nt0 t1 t2 \n"));
        let bodies = seen.bodies.lock().unwrap();
        let contents: Vec<_> = bodies[1]["messages"].as_array().unwrap().iter().collect();
        let contents: Vec<_> = contents.iter().map(|m| m["content"].as_str().unwrap()).collect();
        assert_eq!(contents, ["be kind", "one", "t0 t1 t2 ", "two"]);
    }

    #[tokio::test]
    async fn stopping_keeps_what_was_said_and_closes_the_connection() {
        let (mut session, seen) = session("endless").await;
        let stop = async {
            eventually("an answer runs", || seen.running() == 1).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let flow = session.handle(Entry::parse("go"), stop).await.unwrap();
        assert_eq!(flow, Flow::Continue);
        let text = shown(&mut session);
        assert!(text.starts_with("t0 ") && text.ends_with("\n(stopped)\n"), "{text}");
        assert_eq!(session.conversation.messages().len(), 2);
        eventually("the server saw the end", || seen.running() == 0).await;
    }

    #[tokio::test]
    async fn a_refused_question_is_taken_back_and_the_talk_goes_on() {
        for (model, message) in [
            ("full", "the server answered 429: the queue is full"),
            ("breaks", "the server ended the answer with an error: oops"),
            ("cut", "the connection broke: the stream ended before [DONE]"),
            ("not-a-stream", "content type 'application/json'"),
        ] {
            let (mut session, _) = session(model).await;
            assert_eq!(type_in(&mut session, "hello").await, Flow::Continue);
            let text = shown(&mut session);
            assert!(text.contains(message), "{model}: {text}");
            assert!(session.conversation.messages().is_empty(), "{model}");
        }
    }

    #[tokio::test]
    async fn retry_asks_the_same_question_without_the_old_answer() {
        let (mut session, seen) = session("steady").await;
        type_in(&mut session, "/retry").await;
        assert_eq!(shown(&mut session), "nothing was asked yet\n");
        type_in(&mut session, "one").await;
        type_in(&mut session, "/retry").await;
        let bodies = seen.bodies.lock().unwrap();
        assert_eq!(bodies.len(), 2);
        assert_eq!(bodies[0], bodies[1]);
    }

    #[tokio::test]
    async fn verbose_tells_tokens_and_speed() {
        let (mut session, _) = session("steady").await;
        type_in(&mut session, "/set verbose").await;
        type_in(&mut session, "one").await;
        let text = shown(&mut session);
        let note = text.lines().nth(1).unwrap();
        assert!(note.starts_with("(7 tokens in (3 cached), 3 out; first after 0."), "{note}");
        assert!(note.ends_with(" tokens/s; stop)"), "{note}");
    }

    #[tokio::test]
    async fn a_terminal_is_told_how_fast_it_was() {
        let (mut session, _) = session("steady").await;
        session.detail = Detail::Brief;
        type_in(&mut session, "one").await;
        let text = shown(&mut session);
        let note = text.lines().nth(1).unwrap();
        assert!(note.starts_with('(') && note.ends_with(" tokens/s)"), "{note}");
    }

    #[tokio::test]
    async fn what_is_set_goes_with_every_request() {
        let (mut session, seen) = session("steady").await;
        for text in ["/set temperature 0.5", "/set nothink", "one", "/set temperature -", "two"] {
            type_in(&mut session, text).await;
        }
        let bodies = seen.bodies.lock().unwrap();
        assert_eq!(bodies[0]["temperature"], 0.5);
        assert_eq!(bodies[0]["chat_template_kwargs"]["enable_thinking"], false);
        assert!(bodies[1].get("temperature").is_none(), "{}", bodies[1]);
    }

    #[tokio::test]
    async fn a_saved_conversation_goes_on_elsewhere() {
        let (mut session, seen) = session("steady").await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        let picture = folder.path().join("a.png");
        std::fs::write(&picture, "bytes").unwrap();
        let question = format!("what is {}", picture.display());
        for text in ["/system be kind", &question, &format!("/save {}", path.display())] {
            type_in(&mut session, text).await;
        }
        type_in(&mut session, "/clear").await;
        type_in(&mut session, &format!("/load {}", path.display())).await;
        type_in(&mut session, "and now?").await;
        let bodies = seen.bodies.lock().unwrap();
        let messages = bodies[1]["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 4);
        assert_eq!(messages[..2], bodies[0]["messages"].as_array().unwrap()[..]);
        assert_eq!(messages[1]["content"][1]["text"], "what is");
        assert!(
            messages[1]["content"][0]["image_url"]["url"].as_str().unwrap().ends_with("Ynl0ZXM=")
        );
    }

    #[tokio::test]
    async fn save_writes_a_new_file_and_never_an_old_one() {
        let (mut session, _) = session("steady").await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.json");
        type_in(&mut session, "one").await;
        type_in(&mut session, &format!("/save {}", path.display())).await;
        let saved: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(saved[0], serde_json::json!({"role": "user", "content": "one"}));
        assert_eq!(saved[1]["role"], "assistant");
        shown(&mut session);
        type_in(&mut session, &format!("/save {}", path.display())).await;
        assert!(shown(&mut session).contains("can't create"));
    }

    #[tokio::test]
    async fn commands_answer_without_asking_the_server() {
        let (mut session, seen) = session("steady").await;
        for text in ["/help", "/system", "/clear", "/nonsense", "  "] {
            assert_eq!(type_in(&mut session, text).await, Flow::Continue, "{text}");
        }
        assert_eq!(type_in(&mut session, "/exit").await, Flow::Exit);
        assert!(shown(&mut session).contains("no command /nonsense"));
        assert!(seen.bodies.lock().unwrap().is_empty());
    }
}
