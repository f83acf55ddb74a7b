//! One conversation with one server: carries out entries, prints answers, keeps the history. Knows
//! no terminal: entries are given to it, and a future tells it when to stop an answer.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cli::chat::command::{COMMANDS, Entry};
use crate::cli::chat::conversation::{Conversation, SamplingFlags};
use crate::cli::chat::screen::Screen;
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
    pub(super) sampling: SamplingFlags,
    pub(super) conversation: Conversation,
    pub(super) screen: Screen<W>,
    /// Tell token counts and speed after each answer.
    pub(super) verbose: bool,
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
            Entry::Save(path) => match self.save(&path) {
                Ok(()) => self.screen.note(&format!("saved to {}", path.display()))?,
                Err(error) => self.screen.note(&format!("{error:#}"))?,
            },
            Entry::Retry => match self.conversation.take_last_question() {
                Some(question) => self.ask_and_go_on(question, stop).await?,
                None => self.screen.note("nothing was asked yet")?,
            },
            Entry::Message(question) => self.ask_and_go_on(question, stop).await?,
        }
        Ok(Flow::Continue)
    }

    /// Asks once and prints the answer; what is returned is worth a note beside it.
    ///
    /// # Errors
    /// Whatever the server or the connection refused; the question is then taken back.
    pub(super) async fn ask(
        &mut self,
        question: String,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<String>> {
        self.conversation.ask(question);
        let body = self.conversation.request(&self.model, self.sampling);
        let client = self.client.clone();
        let answer = stream_answer(&client, &body, &mut self.screen, stop).await;
        self.screen.end_answer()?;
        if answer.is_err() {
            self.conversation.take_back_question();
        }
        let answer = answer?;
        let note = answer.note(self.verbose);
        self.conversation.answer(answer.text);
        Ok(note)
    }

    /// An error of the server ends the answer, not the conversation.
    async fn ask_and_go_on(
        &mut self,
        question: String,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        match self.ask(question, stop).await {
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

    /// What the user should know: everything when asked for, else only that the answer is not whole.
    fn note(&self, verbose: bool) -> Option<String> {
        if verbose {
            Some(self.describe())
        } else if self.was_stopped {
            Some("(stopped)".to_owned())
        } else if self.finish_reason.as_deref() == Some("length") {
            Some("(cut: the answer reached its greatest length)".to_owned())
        } else {
            None
        }
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
        let _ = writeln!(text, "{usage:<16} {meaning}");
    }
    text.push_str(
        "\nCtrl-C stops an answer. A line that ends in \\ goes on in the next one; text between\n\
         \"\"\" and \"\"\" may have many lines, and so may a pasted text.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fake_server::{Seen, eventually, start};
    use std::sync::Arc;

    async fn session(model: &str) -> (Session<Vec<u8>>, Arc<Seen>) {
        let (url, seen) = start().await;
        let session = Session {
            client: ApiClient::new(&url, None).unwrap(),
            model: model.to_owned(),
            sampling: SamplingFlags { max_tokens: Some(3), ..SamplingFlags::default() },
            conversation: Conversation::default(),
            screen: Screen::new(Vec::new(), false),
            verbose: false,
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
        session.verbose = true;
        type_in(&mut session, "one").await;
        let text = shown(&mut session);
        let note = text.lines().nth(1).unwrap();
        assert!(note.starts_with("(7 tokens in (3 cached), 3 out; first after 0."), "{note}");
        assert!(note.ends_with(" tokens/s; stop)"), "{note}");
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
