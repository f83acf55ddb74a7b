//! The flags of a command line that say something else than their defaults, whatever they come from, as words
//! for another process.

use clap::Command;

/// A flag with the words that give it its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenFlag {
    /// Its long name.
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

/// The flags of a command line, and the command that they are of.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    /// The whole command.
    pub(crate) command: Command,
    pub(crate) flags: Vec<GivenFlag>,
}
