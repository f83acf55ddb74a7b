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

/// Most pictures and sounds in a prompt: `image=4,audio=2`, or vLLM's `{"image": 4, "audio": 2}`. A kind that is
/// not named keeps its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MostMedia {
    pub(super) images: Option<usize>,
    pub(super) sounds: Option<usize>,
}

impl MostMedia {
    fn set(&mut self, kind: &str, count: Option<usize>) -> Option<()> {
        let own = match kind {
            "image" => &mut self.images,
            "audio" => &mut self.sounds,
            _ => return None,
        };
        own.replace(count?).is_none().then_some(())
    }
}

impl FromStr for MostMedia {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "it must be image=COUNT,audio=COUNT or {\"image\": COUNT, \"audio\": COUNT}";
        let mut most = Self::default();
        if !text.trim_start().starts_with('{') {
            let pairs = text.split(',').map(|pair| pair.split_once('='));
            let all = pairs.map(|pair| pair.and_then(|(kind, n)| most.set(kind, n.parse().ok())));
            return all.collect::<Option<()>>().map(|()| most).ok_or(EXPECTED);
        }
        let limits: Map<String, Value> = serde_json::from_str(text).map_err(|_| EXPECTED)?;
        let count = |value: &Value| value.as_u64().and_then(|count| usize::try_from(count).ok());
        let all = limits.iter().map(|(kind, value)| most.set(kind, count(value)));
        all.collect::<Option<()>>().filter(|()| !limits.is_empty()).map(|()| most).ok_or(EXPECTED)
    }
}

/// Takes a number of at least one percent and at most 1.
pub(super) fn percent_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.01..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("`{text}` is no number from 0.01 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_media_are_read_in_both_forms() {
        let read = |text: &str| text.parse::<MostMedia>().ok();
        let both = Some(MostMedia { images: Some(4), sounds: Some(0) });
        assert_eq!(read("image=4,audio=0"), both);
        assert_eq!(read(r#"{"audio": 0, "image": 4}"#), both);
        assert_eq!(read("audio=3"), Some(MostMedia { images: None, sounds: Some(3) }));
        for wrong in
            ["", "video=1", "image=", "image=-1", "image=1,image=2", "{}", r#"{"audio": "1"}"#]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
