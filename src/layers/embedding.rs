//! Token ids to hidden states.

use candle_core::{Device, Result, Tensor};

use super::forward::Numbers;
use super::linear::Matrix;

/// One row per token of the vocabulary.
#[derive(Clone, Debug)]
pub struct Embedding {
    matrix: Matrix,
}

impl Embedding {
    /// An embedding on a matrix `[vocab, hidden]` that the output head may share.
    pub fn new(matrix: Matrix) -> Self {
        Self { matrix }
    }

    /// `[ids.len(), hidden]` in f32; an id outside of the vocabulary is an error.
    pub fn forward(&self, ids: Numbers<'_>, device: &Device) -> Result<Tensor> {
        self.matrix.embed(ids, device)
    }
}
