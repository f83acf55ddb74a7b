//! Small learned vectors of a layer, both on the host and on the layer's device.

use candle_core::{Result, Tensor};

/// A vector of f32, both on the host and on a device.
#[derive(Clone, Debug)]
pub struct Floats {
    /// The elements on the host.
    pub host: Vec<f32>,
    /// `[N]`: the elements on the layer's device.
    pub tensor: Tensor,
}

impl Floats {
    /// Copies an f32 tensor `[N]` to the host, and waits for that.
    ///
    /// # Errors
    ///
    /// A tensor of another type or shape.
    pub fn of(tensor: Tensor) -> Result<Self> {
        Ok(Self { host: tensor.to_vec1()?, tensor })
    }
}
