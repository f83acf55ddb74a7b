//! What a weighted sum of rows is made of.

/// A row of a matrix and its weight in a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedRow {
    /// The row's index.
    pub row: usize,
    /// The row's factor.
    pub weight: f32,
}
