//! Values of flags that are one of a list of names, or a share.

use clap::builder::{PossibleValuesParser, TypedValueParser};

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

/// Takes a number of at least one percent and at most 1.
pub(super) fn percent_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.01..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no number from 0.01 to 1")),
    }
}
