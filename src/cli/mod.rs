//! The command line: one file or folder per subcommand, which parses flags and calls what does the
//! work.
//!
//! # How to add a flag of `sconce serve`
//!
//! - `src/config.rs`: the resolved value in `EngineConfig` or `ServerConfig`, with its default.
//! - `src/cli/serve/args.rs`: the flag with its help, and its line in `engine_config` or
//!   `server_config`, which the compiler asks for; a flag that chooses the model or replaces one of
//!   its files is a field of `ModelChoice` in `src/app/choice.rs` instead.
//! - The file that reads the value.
//! - `src/guide/flags.md`: written by `SCONCE_UPDATE_README=1 cargo test --test main readme`.
//!
//! Its variable `SCONCE_<FLAG>` and its key in `sconce.toml` come by themselves (`settings`).
//!
//! A value of a type of its own has its parser in `src/cli/serve/values.rs`. Flags of other
//! subcommands are in the subcommand's file alone.

use std::io::Write;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::app::ranks;

pub mod bench;
pub mod cache;
pub mod ceiling;
pub mod chat;
mod client;
mod config;
pub mod download;
#[cfg(test)]
mod fake_server;
pub mod health;
pub mod key;
pub mod models;
pub mod plan;
pub mod quantize;
pub mod render_chat;
pub mod selftest;
pub mod serve;
pub mod settings;
mod sse;
mod table;
pub mod words;

use settings::{Given, Settings, Sources, given_flags};

/// Serves large language models over the OpenAI API.
///
/// Start with `sconce serve`: it serves a small demo model at once, on http://127.0.0.1:8000/v1.
/// `sconce serve --model <hub id | folder | file.gguf>` serves a real one.
#[derive(Debug, Parser)]
#[command(name = "sconce", version, max_term_width = 100, args_override_self = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a model over HTTP.
    #[command(args_override_self = true)]
    Serve(Box<serve::ServeArgs>),
    /// Print the flags of `sconce serve` that are in force, and where each comes from.
    #[command(args_override_self = true)]
    Config(Box<serve::ServeArgs>),
    /// Compute a part of a model for a server that runs on several processes.
    #[command(name = ranks::COMMAND, hide = true)]
    Rank(Box<serve::ServeArgs>),
    /// Chat in the terminal, with a running server or with a model loaded here.
    Chat(chat::ChatArgs),
    /// List, empty or check a folder of --kv-disk.
    Cache(cache::CacheArgs),
    /// Fetch a model from the hub, here or on a running server.
    Pull(models::PullArgs),
    /// List the models of the hub's cache, or those of a running server.
    #[command(alias = "ls")]
    List(models::ListArgs),
    /// Chat with a model: on the server that has it, or else loaded here.
    Run(models::RunArgs),
    /// List the models that a server has loaded.
    Ps(models::PsArgs),
    /// Have a server unload a model.
    Stop(models::StopArgs),
    /// Remove models from the hub's cache, here or on a running server.
    Rm(models::RmArgs),
    /// Show what a model would take and how fast it could be, before it is loaded or fetched.
    #[command(args_override_self = true)]
    Plan(Box<plan::PlanArgs>),
    /// Fetch a model from the hub into the cache.
    Download(download::DownloadArgs),
    /// Load a server with requests and measure how fast it answers.
    Bench(bench::BenchArgs),
    /// Measure what this machine can do at most.
    Ceiling(ceiling::CeilingArgs),
    /// Check whether a server does what clients of the OpenAI API rely on.
    Selftest(selftest::SelftestArgs),
    /// Write a GGUF file with its matrices in another kind.
    Quantize(quantize::QuantizeArgs),
    /// Print the prompt that a chat template makes of a conversation.
    RenderChat(render_chat::RenderChatArgs),
    /// Make keys for the file of --api-key-file.
    Key(key::KeyArgs),
    /// Print the completions of a shell.
    Completions(words::CompletionsArgs),
    /// Write man pages into a folder.
    Man(words::ManArgs),
    /// Ask a running server whether it is ready; for container health checks.
    Health(health::HealthArgs),
}

/// Runs what the arguments ask for. Exit status 2 means that the arguments are wrong, 1 that the
/// work failed.
pub fn main() -> ExitCode {
    let mut command = Cli::command();
    let settings = match Settings::read(&command, Sources::of_process()) {
        Ok(settings) => settings,
        Err(message) => command.error(ErrorKind::ValueValidation, message).exit(),
    };
    let parsed = command.try_get_matches_from_mut(settings.arguments());
    let both = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (Cli { command: asked }, matches) = match both {
        Ok(both) => both,
        Err(error) => return refused(&error, &settings),
    };
    match run(asked, &command, &matches, &settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell when standard error is closed.
            let _ = writeln!(std::io::stderr(), "error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// Shows what is wrong with the command line, or the help that it asks for.
fn refused(error: &clap::Error, settings: &Settings) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        let _ = write!(std::io::stderr(), "{}", settings.notes(&error.to_string()));
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn run(
    asked: Command,
    command: &clap::Command,
    matches: &ArgMatches,
    settings: &Settings,
) -> anyhow::Result<()> {
    match asked {
        Command::Serve(args) if args.dry_run => plan::print_for(&args),
        Command::Serve(args) => block_on(serve::run(*args, given(command, matches, settings))),
        Command::Config(_) => config::print(command, matches, settings),
        Command::Rank(args) => serve::run_rank(&args),
        Command::Chat(args) => block_on(chat::run(args)),
        Command::Cache(args) => cache::run(&args),
        Command::Pull(args) => block_on(models::pull(args)),
        Command::List(args) => block_on(models::list(args)),
        Command::Run(args) => block_on(models::run(args)),
        Command::Ps(args) => block_on(models::ps(args)),
        Command::Stop(args) => block_on(models::stop(args)),
        Command::Rm(args) => block_on(models::rm(args)),
        Command::Plan(args) => plan::run(&args),
        Command::Download(args) => download::run(args),
        Command::Bench(args) => block_on(bench::run(args)),
        Command::Ceiling(args) => ceiling::run(&args),
        Command::Selftest(args) => block_on(selftest::run(args)),
        Command::Quantize(args) => quantize::run(&args),
        Command::RenderChat(args) => render_chat::run(&args),
        Command::Key(args) => key::run(args),
        Command::Completions(args) => words::completions(&args, command),
        Command::Man(args) => words::man(&args, command),
        Command::Health(args) => block_on(health::run(args)),
    }
}

/// The flags of the subcommand that have a value of their own.
fn given(command: &clap::Command, matches: &ArgMatches, settings: &Settings) -> Given {
    let (name, matches) = matches.subcommand().expect("a subcommand is required");
    let flags = command.find_subcommand(name).expect("it is one of the command's own");
    Given { command: command.clone(), flags: given_flags(flags, matches, settings) }
}

/// Two threads are plenty for what is not the engine: parsing, text, sockets.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(work)
}

/// What went wrong and why; what an error says of its cause is not said again.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
