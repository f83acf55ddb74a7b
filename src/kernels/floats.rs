//! A layer's few numbers, where kernels of the CPU and where those of its device read them.

use candle_core::{Result, Tensor};

/// A vector of f32.
#[derive(Clone, Debug)]
pub struct Floats {
    /// The numbers.
    pub host: Vec<f32>,
    /// The same, `[N]`, on the layer's device.
    pub tensor: Tensor,
}

impl Floats {
    /// Of an f32 tensor `[N]`, which is waited for.
    ///
    /// # Errors
    ///
    /// Another type or shape.
    pub fn of(tensor: Tensor) -> Result<Self> {
        Ok(Self { host: tensor.to_vec1()?, tensor })
    }
}
