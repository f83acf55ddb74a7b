//! Weights and biases of linear layers.

use candle_core::{DType, Device, Result, Tensor};

use crate::packed::{PackedMatrix, PackedOnDevice};

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
    pub weight: DeviceWeight<'a>,
    /// The bias, added to each output row.
    pub bias: Option<&'a Tensor>,
}

/// An RMS norm that rows go through before they are multiplied.
#[derive(Clone, Copy, Debug)]
pub struct DeviceNorm<'a> {
    /// The scale, `[K]` in f32.
    pub weight: &'a Tensor,
    /// What is added to the mean square.
    pub eps: f32,
}

/// A weight matrix on a device.
#[derive(Clone, Copy, Debug)]
pub enum DeviceWeight<'a> {
    /// Of bf16, f16 or f32.
    Dense(&'a Tensor),
    /// Quantized.
    Packed(&'a PackedOnDevice),
}

/// What the elements of a weight matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Numbers.
    Dense(DType),
    /// Blocks, by the name of their kind in names of kernels.
    Packed(&'static str),
}

impl<'a> DeviceWeight<'a> {
    /// Rows and columns.
    pub fn dims(self) -> Result<(usize, usize)> {
        match self {
            Self::Dense(weight) => weight.dims2(),
            Self::Packed(matrix) => Ok(matrix.dims()),
        }
    }

    /// Where the weight is.
    pub fn device(self) -> &'a Device {
        match self {
            Self::Dense(weight) => weight.device(),
            Self::Packed(matrix) => matrix.device(),
        }
    }

    pub(crate) fn elements(self) -> Elements {
        match self {
            Self::Dense(weight) => Elements::Dense(weight.dtype()),
            Self::Packed(matrix) => Elements::Packed(matrix.name()),
        }
    }

    /// The memory of the weight.
    pub(crate) fn memory(self) -> &'a Tensor {
        match self {
            Self::Dense(weight) => weight,
            Self::Packed(matrix) => matrix.memory(),
        }
    }
}

impl<'a> From<&'a Tensor> for DeviceWeight<'a> {
    fn from(weight: &'a Tensor) -> Self {
        Self::Dense(weight)
    }
}

impl<'a> From<&'a PackedOnDevice> for DeviceWeight<'a> {
    fn from(matrix: &'a PackedOnDevice) -> Self {
        Self::Packed(matrix)
    }
}
