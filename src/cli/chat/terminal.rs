//! The prompt: reads entries with line editing, until the user leaves.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

use crate::cli::chat::command::{COMMANDS, Entry, is_complete};
use crate::cli::chat::session::{Flow, Session};
use crate::cli::chat::settings;

const PROMPT: &str = "> ";
const COLORED_PROMPT: &str = "\x1b[1;32m> \x1b[0m";

type LineEditor = Editor<EntryRules, FileHistory>;

/// Reads and carries out entries until the user leaves. `history_file` keeps the typed lines for the
/// next time.
pub(super) async fn converse<W: Write>(
    session: &mut Session<W>,
    history_file: Option<PathBuf>,
) -> anyhow::Result<()> {
    let mut editor = new_editor(history_file.as_deref())?;
    let mut interrupted_before = false;
    loop {
        let line;
        (editor, line) = read_entry(editor).await?;
        let interrupted = matches!(line, Err(ReadlineError::Interrupted));
        match line {
            Ok(text) => {
                let entry = Entry::parse(&text);
                if session.handle(entry, interrupt()).await? == Flow::Exit {
                    break;
                }
            }
            Err(ReadlineError::Interrupted) if interrupted_before => break,
            Err(ReadlineError::Interrupted) => {
                session.screen.note("(Ctrl-C again, Ctrl-D or /exit leaves)")?;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error).context("can't read from the terminal"),
        }
        interrupted_before = interrupted;
    }
    if let Some(path) = history_file {
        let saved = editor.save_history(&path);
        saved.with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// Completes on Ctrl-C. The line editor has the terminal in raw mode and sees the key itself, so
/// this comes only while an answer runs.
async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        // No handler could be installed: Ctrl-C then ends the program, as it does by default.
        std::future::pending::<()>().await;
    }
}

fn new_editor(history_file: Option<&Path>) -> anyhow::Result<LineEditor> {
    let config = Config::builder().auto_add_history(true).build();
    let mut editor = LineEditor::with_config(config)?;
    editor.set_helper(Some(EntryRules { files: FilenameCompleter::new() }));
    if let Some(path) = history_file.filter(|path| path.exists()) {
        let loaded = editor.load_history(path);
        loaded.with_context(|| format!("can't read {}", path.display()))?;
    }
    Ok(editor)
}

/// Waits for the user on a thread of its own, so that a server in this process goes on.
async fn read_entry(
    mut editor: LineEditor,
) -> anyhow::Result<(LineEditor, rustyline::Result<String>)> {
    let task = tokio::task::spawn_blocking(move || {
        let line = editor.readline(&(PROMPT, COLORED_PROMPT));
        (editor, line)
    });
    task.await.context("the line editor failed")
}

/// Decides when an entry is complete, and completes names: of commands, of what can be set, of files.
struct EntryRules {
    files: FilenameCompleter,
}

impl Helper for EntryRules {}
impl Highlighter for EntryRules {}

impl Hinter for EntryRules {
    type Hint = String;
}

impl Validator for EntryRules {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Completer for EntryRules {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..position];
        let word = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let among = |names: &mut dyn Iterator<Item = &'static str>| -> Vec<Pair> {
            let mut begun: Vec<_> = names.filter(|name| name.starts_with(&typed[word..])).collect();
            begun.dedup();
            let pair = |name: &str| Pair { display: name.to_owned(), replacement: name.to_owned() };
            begun.into_iter().map(pair).collect()
        };
        let commands = &mut COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next());
        let found = among(commands);
        if word == 0 && typed.starts_with('/') && !found.is_empty() {
            return Ok((0, found));
        }
        if typed.starts_with("/set ") {
            let more = ["think", "nothink", "verbose", "quiet", "system"];
            return Ok((word, among(&mut settings::names().chain(more))));
        }
        let names_file = ["/save ", "/load "].iter().any(|command| typed.starts_with(command));
        if names_file || ["/", "./", "../", "~/"].iter().any(|path| typed[word..].starts_with(path))
        {
            return self.files.complete(line, position, context);
        }
        Ok((position, Vec::new()))
    }
}
