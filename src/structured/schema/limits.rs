//! Bounds on schemas and on the numbers in them.

use super::super::error::GrammarError;

/// Nesting of schemas in schemas, and of values in one.
pub(super) const MAX_DEPTH: usize = 64;
/// Subschemas of a rewritten schema.
pub(super) const MAX_NODES: usize = 50_000;
/// The largest lower bound on a length or count.
pub(super) const MAX_COUNT: u64 = 100_000;
/// Above this not every integer is a double.
pub(super) const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// Numbers below this are not told apart.
pub(super) const MIN_EXACT: f64 = 1e-9;

/// A lower bound of `actual` is above [`MAX_COUNT`].
pub(super) fn too_many(what: &'static str, actual: u64) -> GrammarError {
    let actual = usize::try_from(actual).unwrap_or(usize::MAX);
    GrammarError::TooLarge { what, actual, limit: usize::try_from(MAX_COUNT).unwrap_or(usize::MAX) }
}
