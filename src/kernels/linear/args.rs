//! Weights and biases of linear layers.

use candle_core::Tensor;

use crate::packed::PackedMatrix;

/// A packed weight `[N, K]` and, if there is one, its bias `[N]`.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The weight.
    pub matrix: &'a PackedMatrix,
    /// The bias, added to each output row.
    pub bias: Option<&'a [f32]>,
}

/// A weight `[N, K]` on a device and, if there is one, its bias `[N]` in f32.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLayer<'a> {
    /// The weight.
    pub weight: &'a Tensor,
    /// The bias, added to each output row.
    pub bias: Option<&'a Tensor>,
}
