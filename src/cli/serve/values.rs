//! Values of flags that are one of a list of names, or a share.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value};

use crate::config::Parser;

/// Takes the names of values, as `name` gives them.
pub(super) fn value_of<T: Copy + Send + Sync + 'static>(
    values: impl IntoIterator<Item = T>,
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values: Vec<T> = values.into_iter().collect();
    let names: Vec<&'static str> = values.iter().map(|value| name(*value)).collect();
    PossibleValuesParser::new(names).map(move |chosen| {
        let value = values.iter().find(|value| name(**value) == chosen);
        *value.expect("only these names are accepted")
    })
}

/// Takes the names of families of markup, "auto" and "none".
pub(super) fn parser(
    names: impl Iterator<Item = &'static str>,
) -> impl TypedValueParser<Value = Parser> {
    let parsers = [Parser::Detected, Parser::Off].into_iter().chain(names.map(Parser::Named));
    value_of(parsers, |parser| match parser {
        Parser::Detected => "auto",
        Parser::Off => "none",
        Parser::Named(name) => name,
    })
}

/// Most pictures in a prompt: `image=4`, or vLLM's `{"image": 4}`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MostImages(pub(super) usize);

impl FromStr for MostImages {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "it must be image=COUNT or {\"image\": COUNT}";
        if let Some(count) = text.strip_prefix("image=") {
            return count.parse().map(Self).map_err(|_| EXPECTED);
        }
        let limits: Map<String, Value> = serde_json::from_str(text).map_err(|_| EXPECTED)?;
        let count = limits.get("image").and_then(Value::as_u64).filter(|_| limits.len() == 1);
        count.and_then(|count| usize::try_from(count).ok()).map(Self).ok_or(EXPECTED)
    }
}

/// Takes a number of at least one percent and at most 1.
pub(super) fn percent_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.01..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no number from 0.01 to 1")),
    }
}
