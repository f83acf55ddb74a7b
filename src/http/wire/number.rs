//! Integers as JSON has them: `3` and `3.0` are the same number, `3.5` is none.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::http::error::ApiError;

/// A signed integer, wide enough to say in a message what was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int(pub(crate) i64);

impl fmt::Display for Int {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntVisitor).map(Self)
    }
}

impl PartialSchema for Int {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Integer).into()
    }
}

impl ToSchema for Int {}

/// Checks that an integer is in a range; `name` is the field's.
pub(crate) fn integer(
    name: &str,
    value: Option<Int>,
    low: i64,
    high: i64,
) -> Result<Option<i64>, ApiError> {
    match value {
        Some(Int(value)) if !(low..=high).contains(&value) => {
            let bound = if high == i64::MAX {
                format!("at least {low}")
            } else {
                format!("in [{low}, {high}]")
            };
            Err(ApiError::field(name, format!("{name} must be {bound}, got {value}")))
        }
        value => Ok(value.map(|Int(value)| value)),
    }
}

/// Checks that a number is in a range; `name` is the field's.
pub(crate) fn within(
    name: &str,
    value: Option<f64>,
    low: f64,
    high: f64,
) -> Result<Option<f64>, ApiError> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            let message = format!("{name} must be in [{low}, {high}], got {value}");
            Err(ApiError::field(name, message))
        }
        value => Ok(value),
    }
}

/// Checks that a token id is one of the model's; `name` is the field's.
pub(crate) fn token_id(name: &str, value: Int, vocab_size: usize) -> Result<u32, ApiError> {
    let id = u32::try_from(value.0).ok().filter(|id| (*id as usize) < vocab_size);
    id.ok_or_else(|| {
        let message = format!(
            "{name}: token ids must be in 0..{vocab_size}, got {}, which is out of vocabulary",
            value.0
        );
        ApiError::field(name, message)
    })
}

/// Checks that all of these token ids are the model's; `name` is the field's.
pub(crate) fn token_ids(name: &str, ids: &[Int], vocab_size: usize) -> Result<Vec<u32>, ApiError> {
    ids.iter().map(|id| token_id(name, *id, vocab_size)).collect()
}

/// A count that was checked to be no less than 0.
pub(crate) fn to_usize(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
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
