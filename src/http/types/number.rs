//! Integers as JSON has them: `3` and `3.0` are the same number, `3.5` is none.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A signed integer, wide enough to say in a message what was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int(pub(crate) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntVisitor).map(Self)
    }
}

struct IntVisitor;

impl Visitor<'_> for IntVisitor {
    type Value = i64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an integer of 64 bits")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
        let exact = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
        if exact {
            Ok(value as i64)
        } else {
            Err(E::invalid_value(Unexpected::Float(value), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<i64, String> {
        serde_json::from_str::<Int>(json).map(|int| int.0).map_err(|error| error.to_string())
    }

    #[test]
    fn whole_floats_are_integers() {
        assert_eq!(read("16.0"), Ok(16));
        assert_eq!(read("-1"), Ok(-1));
        assert_eq!(read("9223372036854775807"), Ok(i64::MAX));
    }

    #[test]
    fn anything_else_is_refused() {
        for json in ["1.5", "9223372036854775808", "1e300", "\"3\"", "true", "[]"] {
            assert!(read(json).unwrap_err().contains("expected an integer"), "{json}");
        }
    }
}
