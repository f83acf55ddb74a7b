//! When a request came, and the deadline in its header.

use std::time::{Duration, Instant};

use axum::http::{Extensions, HeaderMap};

use crate::http::error::ApiError;
use crate::http::wire::bounds::MAX_DEADLINE_MS;
use crate::http::wire::number::{Int, integer};

const DEADLINE_HEADER: &str = "x-sconce-deadline-ms";

/// When a request came, and the headers that shape its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    deadline_ms: Option<i64>,
    /// Whether all others go first.
    yields: bool,
}

/// In the extensions of a request that runs when no other one needs the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yields;

impl Arrival {
    /// A request with these headers and extensions that comes now.
    pub(crate) fn now(headers: &HeaderMap, extensions: &Extensions) -> Result<Self, ApiError> {
        let yields = extensions.get::<Yields>().is_some();
        Ok(Self { at: Instant::now(), deadline_ms: deadline_header(headers)?, yields })
    }

    /// The priority of a request that asks for `own`; lower comes first.
    pub(crate) fn priority(&self, own: i32) -> i32 {
        if self.yields { i32::MAX } else { own }
    }

    /// How long the request may take: as `deadline_ms` of its body says, else its header.
    pub(crate) fn deadline(&self, field: Option<Int>) -> Result<Option<Duration>, ApiError> {
        let value = integer("deadline_ms", field, 1, MAX_DEADLINE_MS)?.or(self.deadline_ms);
        Ok(value.map(|value| Duration::from_millis(value.unsigned_abs())))
    }
}

fn deadline_header(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(value) = headers.get(DEADLINE_HEADER) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let number = number.ok_or_else(|| {
        let message = format!("the header {DEADLINE_HEADER} must be an integer, got {value:?}");
        ApiError::field(DEADLINE_HEADER, message)
    })?;
    integer(DEADLINE_HEADER, Some(Int(number)), 1, MAX_DEADLINE_MS)
}
