//! Where the values of `sconce serve`'s flags come from: the command line, `SCONCE_<FLAG>` in the
//! environment, `sconce.toml`, or the flag's own default, the first of these that has one.
//!
//! What environment and file add becomes flags in front of those that were typed, so that one
//! parser judges all of it. Each value is judged alone before that: an error names the variable, or
//! the file, the line and the key.

mod environment;
mod file;
mod given;
mod kind;
mod setting;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

pub(super) use self::given::{Given, GivenFlag};
pub(super) use self::setting::{own_flags, variable_of};

use self::kind::{Kind, Values};
use self::setting::{CONFIG, Judge, Origin, Setting};
use crate::app::ranks;

/// Subcommands whose flags have further sources.
const SUBCOMMANDS: [&str; 4] = ["serve", "config", "plan", ranks::COMMAND];
/// Files that are read where no flag and no variable names one: the first that is there.
const FILES: [&str; 2] = ["sconce.toml", "/etc/sconce/sconce.toml"];

/// The command line with what environment and file add to it.
#[derive(Debug)]
pub struct Settings {
    arguments: Vec<OsString>,
    added: Vec<Setting>,
}

/// What settings are read from.
pub struct Sources<'a> {
    /// The command line, the program's name included.
    pub arguments: Vec<OsString>,
    /// Looks a variable up.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Files that are read if they are there and none is named.
    pub files: Vec<PathBuf>,
}

impl Sources<'_> {
    /// Those of this process.
    pub(super) fn of_process() -> Self {
        Self {
            arguments: std::env::args_os().collect(),
            variable: &|name| std::env::var_os(name),
            files: FILES.iter().map(PathBuf::from).collect(),
        }
    }
}

impl Settings {
    /// Reads all sources for a command line of `command`. That of a subcommand without further
    /// sources stays as it is.
    ///
    /// # Errors
    /// What is wrong with a variable or the file, ready to be shown.
    pub fn read(command: &Command, sources: Sources<'_>) -> Result<Self, String> {
        let Sources { arguments, variable, files } = sources;
        let unchanged = |arguments| Self { arguments, added: Vec::new() };
        let first = command.clone().ignore_errors(true).try_get_matches_from(&arguments);
        let Ok(matches) = first else { return Ok(unchanged(arguments)) };
        let Some((name, typed)) = matches.subcommand() else { return Ok(unchanged(arguments)) };
        let Some(flags) = command.find_subcommand(name).filter(|_| SUBCOMMANDS.contains(&name))
        else {
            return Ok(unchanged(arguments));
        };
        let judge = Judge { command, subcommand: name };
        let mut added = Vec::new();
        for flag in own_flags(flags).filter(|flag| !is_typed(typed, flag)) {
            added.extend(environment::setting(flag, variable, &judge)?);
        }
        if let Some(path) = config_file(typed, &mut added, &files) {
            let is_taken = |name: &str| {
                let known = added.iter().any(|setting: &Setting| setting.name == name);
                known || own_flags(flags).any(|flag| is_named(flag, name) && is_typed(typed, flag))
            };
            let read = file::read(&path, flags, &judge)?;
            let read: Vec<_> =
                read.into_iter().filter(|setting| !is_taken(&setting.name)).collect();
            added.extend(read);
        }
        Ok(Self { arguments: with(arguments, name, &added), added })
    }

    /// The command line to parse.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Where the value of a flag of `matches` comes from, which are those of [`Self::arguments`];
    /// `None` if it has none.
    pub(super) fn origin(&self, matches: &ArgMatches, flag: &Arg) -> Option<Origin> {
        let name = flag.get_long()?;
        if let Some(setting) = self.added.iter().find(|setting| setting.name == name) {
            return Some(setting.origin.clone());
        }
        match matches.value_source(flag.get_id().as_str())? {
            ValueSource::DefaultValue => Some(Origin::Default),
            _ => Some(Origin::Flag),
        }
    }

    /// One line for each flag in an error's text that was not typed: where it comes from.
    pub(super) fn notes(&self, error: &str) -> String {
        let named = self.added.iter().filter(|setting| setting.origin != Origin::Found);
        let named = named.filter(|setting| {
            let flag = format!("--{}", setting.name);
            error.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == flag)
        });
        let note =
            |setting: &Setting| format!("note: --{} is from {}\n", setting.name, setting.origin);
        named.map(note).collect::<Vec<_>>().concat()
    }
}

fn is_typed(matches: &ArgMatches, flag: &Arg) -> bool {
    matches.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
}

fn is_named(flag: &Arg, name: &str) -> bool {
    flag.get_long() == Some(name)
}

/// The file to read. One that nothing names becomes a setting like any other.
fn config_file(typed: &ArgMatches, added: &mut Vec<Setting>, files: &[PathBuf]) -> Option<PathBuf> {
    if let Some(path) = typed.get_one::<PathBuf>(CONFIG) {
        return Some(path.clone());
    }
    if let Some(named) = added.iter().find(|setting| setting.name == CONFIG) {
        let Values::Texts(texts) = &named.values else { return None };
        return texts.first().map(PathBuf::from);
    }
    let found = files.iter().find(|path| path.exists())?;
    let values = Values::Texts(vec![found.to_str()?.to_owned()]);
    added.push(Setting { name: CONFIG.to_owned(), values, origin: Origin::Found });
    Some(found.clone())
}

/// What was added, right behind the name of the subcommand: later flags are stronger.
fn with(mut arguments: Vec<OsString>, subcommand: &str, added: &[Setting]) -> Vec<OsString> {
    let at = arguments.iter().position(|word| word == OsStr::new(subcommand));
    let at = at.map_or(arguments.len(), |at| at + 1);
    let words = added.iter().flat_map(|setting| setting.values.words(&setting.name));
    arguments.splice(at..at, words.map(OsString::from).collect::<Vec<_>>());
    arguments
}

/// The words that a table of flags of `sconce serve` stands for; `of` names the table in errors.
///
/// # Errors
/// A key is no flag, or a value is not of the flag's type or range.
pub(super) fn words_of_table(
    command: &Command,
    table: &toml::Table,
    of: &str,
) -> Result<Vec<String>, String> {
    let subcommand = SUBCOMMANDS[0];
    let flags = command.find_subcommand(subcommand).ok_or("there is no such subcommand")?;
    let judge = Judge { command, subcommand };
    let read = file::read_table(&table.to_string(), flags, &judge);
    let read = read.map_err(|error| format!("{of}: {error}"))?;
    Ok(read.iter().flat_map(|setting| setting.values.words(&setting.name)).collect())
}

/// The flags of `matches` that have a value of their own.
pub(super) fn given_flags(
    command: &Command,
    matches: &ArgMatches,
    settings: &Settings,
) -> Vec<GivenFlag> {
    let flags = own_flags(command).filter_map(|flag| {
        let name = flag.get_long()?;
        settings.origin(matches, flag).filter(|origin| !is_default(origin))?;
        let id = flag.get_id().as_str();
        let values = if Kind::of(flag) == Kind::Switch {
            Values::Switch(matches.get_flag(id))
        } else {
            let raw = matches.get_raw(id)?;
            Values::Texts(raw.map(|value| value.to_string_lossy().into_owned()).collect())
        };
        Some(GivenFlag { name: name.to_owned(), words: values.words(name) })
    });
    flags.collect()
}

/// A flag's values in TOML.
pub(super) fn in_toml(flag: &Arg, values: Vec<String>) -> String {
    kind::in_toml(flag, values)
}

/// Whether a value is the flag's own, which nobody gave.
pub(super) fn is_default(origin: &Origin) -> bool {
    *origin == Origin::Default
}
