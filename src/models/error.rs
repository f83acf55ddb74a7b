//! Why a model can't be built.

use std::fmt::Debug;

use crate::weights::WeightError;

/// A result whose error is a [`ModelError`] unless said otherwise.
pub(super) type Result<T, E = ModelError> = std::result::Result<T, E>;

/// Why a model can't be built.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// `config.json` is not valid JSON or a field has the wrong type.
    #[error("config.json: {0}")]
    Config(#[from] serde_json::Error),
    /// A field of `config.json` has a value that no such model can have.
    #[error("config.json: `{field}` is {value}, {bound}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
        /// What the value must be.
        bound: String,
    },
    /// The checkpoint asks for something that is not implemented.
    #[error("{what} is not supported; {supported}")]
    Unsupported {
        /// What the checkpoint asks for.
        what: String,
        /// What would work instead.
        supported: String,
    },
    /// The model can't be computed by several ranks.
    #[error("the model can't be split over {size} ranks: {reason}")]
    Split {
        /// Number of ranks.
        size: usize,
        /// The part of the model that can't be split.
        reason: String,
    },
    /// The weights don't match the configuration or can't be read.
    #[error(transparent)]
    Weights(#[from] WeightError),
}

/// The error of a `config.json` field whose value is out of bounds.
pub(super) fn bad(field: &'static str, value: impl Debug, bound: impl Into<String>) -> ModelError {
    ModelError::Field { field, value: format!("{value:?}"), bound: bound.into() }
}

/// Refuses a size outside of `range`.
pub(super) fn check_size(
    field: &'static str,
    size: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize> {
    if range.contains(&size) {
        return Ok(size);
    }
    Err(bad(field, size, format!("must be {} to {}", range.start(), range.end())))
}
