//! What a flag takes, as TOML and variables can say it.

use std::any::TypeId;
use std::path::PathBuf;

use clap::{Arg, ArgAction};

/// What a source has for a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Whether a switch is on.
    Switch(bool),
    /// The values as they would be typed.
    Texts(Vec<String>),
}

impl Values {
    /// The words of a command line that say the same.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        match self {
            Self::Switch(true) => vec![format!("--{name}")],
            Self::Switch(false) => Vec::new(),
            Self::Texts(texts) => texts.iter().map(|text| format!("--{name}={text}")).collect(),
        }
    }
}

/// What one value of a flag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// On or off.
    Switch,
    Integer,
    /// A number with or without a fraction.
    Float,
    Text,
    /// What the flag's own parser makes of a text, a number or a JSON object: sizes, names, limits.
    Other,
}

impl Kind {
    pub(super) fn of(flag: &Arg) -> Self {
        if !flag.get_action().takes_values() {
            return Self::Switch;
        }
        let is_one_of = |types: &[TypeId]| {
            types.iter().any(|known| flag.get_value_parser().type_id() == *known)
        };
        let integers = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<usize>(),
            TypeId::of::<i64>(),
        ];
        if is_one_of(&integers) {
            Self::Integer
        } else if is_one_of(&[TypeId::of::<f64>()]) {
            Self::Float
        } else if is_one_of(&[TypeId::of::<String>(), TypeId::of::<PathBuf>()]) {
            Self::Text
        } else {
            Self::Other
        }
    }

    /// The words of an error.
    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Switch => "true or false",
            Self::Integer => "an integer",
            Self::Float => "a number",
            Self::Text => "a string",
            Self::Other => "a string, an integer or a table",
        }
    }
}

/// Whether the flag may be given several times, each adding a value.
pub(super) fn is_list(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Append)
}

/// The flag's values in TOML.
pub(super) fn in_toml(flag: &Arg, values: Vec<String>) -> String {
    let kind = Kind::of(flag);
    let one = |text: String| match kind {
        Kind::Switch | Kind::Integer | Kind::Float => text,
        Kind::Text | Kind::Other => toml::Value::from(text).to_string(),
    };
    let list = is_list(flag);
    let texts: Vec<String> = values.into_iter().map(one).collect();
    if list { format!("[{}]", texts.join(", ")) } else { texts.concat() }
}
