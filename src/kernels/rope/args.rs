//! What the angles of rotary embedding are made of.

use candle_core::Tensor;

/// Parameters of rotary angles.
#[derive(Clone, Copy, Debug)]
pub struct AngleParams<'a> {
    /// `[R]`: what one position adds to the angle of each pair.
    pub frequencies: &'a Tensor,
    /// A length, and the frequencies `[R]` of tokens whose sequence is longer.
    pub beyond: Option<(usize, &'a Tensor)>,
    /// Factor of cosines and sines.
    pub magnitude: f32,
    /// `beta`, `every` and `first` of the query scale
    /// `1 + beta * ln(1 + floor((position + first) / every))`.
    pub query_scale: Option<[f32; 3]>,
}
