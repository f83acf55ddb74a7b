//! The fields of the DRY penalty, with llama.cpp's names and defaults.

use std::sync::Arc;

use crate::http::error::ApiError;
use crate::http::wire::bounds::{MAX_BREAKER_BYTES, MAX_BREAKERS};
use crate::http::wire::number::{integer, to_usize, within};
use crate::http::wire::sampling::CommonFields;
use crate::sampling::params::{Breakers, DryParams};

const DEFAULT_BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];
const DEFAULT_BASE: f64 = 1.75;
const DEFAULT_ALLOWED_LENGTH: i64 = 2;

/// The DRY penalty of a request, whose sequence breakers are still texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DryOptions {
    params: DryParams,
    pub(crate) breakers: Vec<String>,
}

impl DryOptions {
    /// What the fields ask for; every one is checked, whether it has an effect or not.
    pub(crate) fn new(fields: &CommonFields) -> Result<Option<Self>, ApiError> {
        let multiplier =
            within("dry_multiplier", fields.dry_multiplier, 0.0, 100.0)?.unwrap_or(0.0);
        let base = within("dry_base", fields.dry_base, 1.0, 100.0)?.unwrap_or(DEFAULT_BASE);
        let allowed = integer("dry_allowed_length", fields.dry_allowed_length, 1, i64::MAX)?;
        let last_n = integer("dry_penalty_last_n", fields.dry_penalty_last_n, -1, i64::MAX)?;
        let breakers = breakers(fields.dry_sequence_breakers.as_deref())?;
        if multiplier <= 0.0 || last_n == Some(0) {
            return Ok(None);
        }
        #[expect(clippy::cast_possible_truncation, reason = "the sampler works in f32")]
        let params = DryParams {
            multiplier: multiplier as f32,
            base: base as f32,
            allowed_length: to_usize(allowed.unwrap_or(DEFAULT_ALLOWED_LENGTH)),
            last_n: last_n.and_then(|last_n| usize::try_from(last_n).ok()),
            breakers: Arc::default(),
        };
        Ok(Some(Self { params, breakers }))
    }

    /// The penalty with the tokens of its sequence breakers.
    pub(crate) fn with_tokens(self, breakers: Arc<Breakers>) -> DryParams {
        DryParams { breakers, ..self.params }
    }
}

fn breakers(field: Option<&[String]>) -> Result<Vec<String>, ApiError> {
    let refuse = |message| Err(ApiError::field("dry_sequence_breakers", message));
    let Some(breakers) = field else {
        return Ok(DEFAULT_BREAKERS.map(str::to_owned).to_vec());
    };
    if breakers.len() > MAX_BREAKERS {
        return refuse(format!(
            "dry_sequence_breakers must have at most {MAX_BREAKERS} strings, got {}",
            breakers.len()
        ));
    }
    match breakers.iter().map(String::len).find(|length| !(1..=MAX_BREAKER_BYTES).contains(length))
    {
        Some(length) => refuse(format!(
            "dry_sequence_breakers must have 1 to {MAX_BREAKER_BYTES} bytes each, got {length}"
        )),
        None => Ok(breakers.to_vec()),
    }
}
