//! `sconce config`: the flags of `sconce serve` that are in force, and where each comes from.

use std::io::Write;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command};

use super::settings::{Settings, in_toml, is_default, own_flags};

/// Prints a `sconce.toml` of all values, each with its origin. What may be secret is not shown.
///
/// # Errors
/// When standard output is closed.
pub(super) fn print(
    command: &Command,
    matches: &ArgMatches,
    settings: &Settings,
) -> anyhow::Result<()> {
    let (name, matches) = matches.subcommand().context("no subcommand")?;
    let command = command.find_subcommand(name).context("an unknown subcommand")?;
    let mut text = String::new();
    let mut heading = None;
    for flag in own_flags(command).filter(|flag| flag.get_long() != Some("config")) {
        if flag.get_help_heading() != heading {
            heading = flag.get_help_heading();
            text += &["\n# ", heading.unwrap_or("Options"), "\n"].concat();
        }
        text += &line(flag, matches, settings);
    }
    let path = matches.get_one::<std::path::PathBuf>("config");
    let file = path.map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
    write!(std::io::stdout(), "# Read: {file}\n{text}")?;
    Ok(())
}

fn line(flag: &Arg, matches: &ArgMatches, settings: &Settings) -> String {
    let name = flag.get_long().unwrap_or_default();
    let origin = settings.origin(matches, flag);
    let raw = matches.get_raw(flag.get_id().as_str());
    let values: Vec<String> =
        raw.into_iter().flatten().map(|value| value.to_string_lossy().into_owned()).collect();
    match origin {
        None => format!("# {name} is not set\n"),
        Some(origin) if is_default(&origin) => {
            format!("# {name} = {}  # {origin}\n", in_toml(flag, values))
        }
        Some(origin) if flag.is_hide_env_values_set() => {
            format!("# {name} is set, but not shown  # {origin}\n")
        }
        Some(origin) => format!("{name} = {}  # {origin}\n", in_toml(flag, values)),
    }
}
