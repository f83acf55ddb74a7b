//! `sconce chat`: talk to a model in the terminal, on a running server or in this process.
//!
//! A terminal gets a conversation with line editing; a pipe (or `--prompt`) gets one answer on
//! standard output and an exit status.

mod command;
mod conversation;
mod pictures;
mod screen;
mod session;
mod settings;
mod terminal;

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::app::local::LocalServer;
use crate::cli::chat::command::Detail;
use crate::cli::chat::conversation::Conversation;
use crate::cli::chat::screen::Screen;
use crate::cli::chat::session::Session;
pub use crate::cli::chat::settings::SamplingFlags;
use crate::cli::chat::settings::Settings;
use crate::cli::client::ApiClient;

/// Talk to a model in the terminal.
///
/// With --url it talks to a running server; without, it loads a model itself: the one that --model
/// names, or the small demo model. Input that comes through a pipe, or --prompt, is answered once.
#[derive(Clone, Debug, clap::Args)]
pub struct ChatArgs {
    /// Address of a running server, such as 127.0.0.1:8000.
    #[arg(long, value_name = "URL", env = "SCONCE_URL")]
    pub url: Option<String>,

    /// With --url: the model's name on that server [default: the first one it lists]. Without: a
    /// folder, a GGUF file or a hub id to load [default: the demo model].
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Key for a server that asks for one.
    #[arg(long, value_name = "KEY", env = "SCONCE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,

    /// Ask this, print the answer and leave; - reads the question from standard input.
    #[arg(long, short, value_name = "TEXT|-")]
    pub prompt: Option<String>,

    /// System prompt: how the model should behave.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// How the model chooses.
    #[command(flatten)]
    pub sampling: SamplingFlags,

    /// Print token counts and speed after each answer.
    #[arg(long, short)]
    pub verbose: bool,

    /// Keep the lines you type in this file, for the up arrow next time.
    #[arg(long, value_name = "FILE")]
    pub history_file: Option<PathBuf>,
}

/// Talks until the user leaves, or answers once.
///
/// # Errors
/// The server can't be reached or started, it refuses the only question, or the terminal fails.
pub async fn run(args: ChatArgs) -> anyhow::Result<()> {
    let question = read_question(args.prompt.as_deref())?;
    // Stays alive until the conversation is over.
    let local = match args.url {
        Some(_) => None,
        None => Some(LocalServer::start(args.model.clone()).await?),
    };
    let (url, model) = match (&local, &args.url) {
        (Some(server), _) => (server.url.as_str(), None),
        (None, url) => (url.as_deref().unwrap_or_default(), args.model.as_deref()),
    };
    let client = ApiClient::new(url, args.api_key.as_deref())?;
    let model = client.pick_model(model).await?.id;
    let is_terminal = std::io::stdout().is_terminal();
    let mut session = Session {
        client,
        model,
        settings: Settings::of(args.sampling),
        conversation: Conversation::new(args.system),
        screen: Screen::new(std::io::stdout(), is_terminal),
        detail: if args.verbose { Detail::Full } else { Detail::Quiet },
    };
    if let Some(question) = question {
        return answer_once(&mut session, question).await;
    }
    if !args.verbose {
        session.detail = Detail::Brief;
    }
    session.screen.note(&format!("{} at {url}; /help lists the commands", session.model))?;
    terminal::converse(&mut session, args.history_file).await
}

/// The answer goes to standard output alone; notes would spoil a pipe, so they go to standard error.
async fn answer_once<W: Write>(session: &mut Session<W>, question: String) -> anyhow::Result<()> {
    if let Some(note) = session.ask(&question, std::future::pending()).await? {
        writeln!(std::io::stderr(), "{note}")?;
    }
    Ok(())
}

/// The only question, or `None` when a terminal will ask many.
fn read_question(prompt: Option<&str>) -> anyhow::Result<Option<String>> {
    let from_stdin = match prompt {
        Some("-") => true,
        Some(text) => return Ok(Some(text.to_owned())),
        None => !std::io::stdin().is_terminal(),
    };
    if !from_stdin {
        return Ok(None);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("can't read the question from standard input")?;
    if text.trim().is_empty() {
        bail!("standard input has no question");
    }
    Ok(Some(text))
}
