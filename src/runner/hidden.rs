//! A step's hidden states on the host, row by row.

use candle_core::{DType, Device, Result, Tensor};

/// Hidden states on the host, `[num_rows, hidden_size]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HiddenStates {
    values: Vec<f32>,
    hidden_size: usize,
}

impl HiddenStates {
    /// A copy of the hidden states that a model returned, `[num_rows, hidden_size]`, if any.
    pub(super) fn from_tensor(hidden: Option<Tensor>) -> Result<Self> {
        let Some(hidden) = hidden else { return Ok(Self::default()) };
        let (_, hidden_size) = hidden.dims2()?;
        let on_host = hidden.to_dtype(DType::F32)?.to_device(&Device::Cpu)?;
        Ok(Self { values: on_host.flatten_all()?.to_vec1()?, hidden_size })
    }

    /// The rows in order, each `[hidden_size]`.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.hidden_size.max(1))
    }
}
