//! One value that was not typed, where it comes from, and whether the flag takes it.

use std::fmt;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command};

use super::kind::Values;

/// The flag that names the file.
pub(super) const CONFIG: &str = "config";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    /// The variable's name.
    Environment(String),
    File {
        path: PathBuf,
        /// The first is 1.
        line: usize,
    },
    /// The file is where it is looked for when nothing names one.
    Found,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Found => f.write_str("found there"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A flag's value that is not from the command line.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The flag's long name.
    pub(super) name: String,
    pub(super) values: Values,
    pub(super) origin: Origin,
}

/// The flags that settings are for.
pub(crate) fn own_flags(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|flag| !matches!(flag.get_long(), None | Some("help")))
}

/// Says what is wrong with one value, as the parser of the command line would.
pub(super) struct Judge<'a> {
    pub(super) command: &'a Command,
    pub(super) subcommand: &'a str,
}

impl Judge<'_> {
    /// Whether the flag takes the values; if not, why.
    pub(super) fn check(&self, name: &str, values: &Values) -> Result<(), String> {
        let program = ["sconce".to_owned(), self.subcommand.to_owned()];
        let arguments = program.into_iter().chain(values.words(name));
        let Err(error) = self.command.clone().try_get_matches_from(arguments) else {
            return Ok(());
        };
        // Whether flags fit together is for all of them to show.
        if matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict)
        {
            return Ok(());
        }
        Err(in_one_line(&error))
    }
}

/// The error without its usage, and with the values that would be right.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    if error.get(ContextKind::ValidValue).is_some() {
        let values = text.lines().map(str::trim).find(|line| line.starts_with("[possible values"));
        line.extend(values.map(|values| format!(" {values}")));
    }
    line
}

/// `max-num-seqs` is `SCONCE_MAX_NUM_SEQS`.
pub(crate) fn variable_of(name: &str) -> String {
    format!("SCONCE_{}", name.to_uppercase().replace('-', "_"))
}
