//! The look-up of embeddings by token id or position.

use candle_core::{Device, Result, Tensor};

use super::forward::Indices;
use super::linear::{Linear, Matrix};

/// A table with a row for each token or position.
#[derive(Clone, Debug)]
pub struct Embedding {
    matrix: Matrix,
}

impl Embedding {
    /// An embedding with the matrix `[vocab, hidden]`, which the output head may share.
    pub fn new(matrix: Matrix) -> Self {
        Self { matrix }
    }

    /// An output head with the same matrix: `x [.., hidden]` to `[.., vocab]`.
    pub fn head(&self, bias: Option<Tensor>) -> Result<Linear> {
        Linear::from_matrix(self.matrix.clone(), bias)
    }

    /// The rows `ids`, `[ids.len(), hidden]` in f32; an id outside of the table is an error.
    pub fn forward(&self, ids: Indices<'_>, device: &Device) -> Result<Tensor> {
        self.matrix.embed(ids, device)
    }
}
