//! The ranks that compute one model together, each with its part of the weights.
//!
//! Shoeybi et al., "Megatron-LM", 2019, section 3: every rank has some heads of each attention and
//! some inner elements of each feed-forward part. What it computes of a hidden state is one term
//! of a sum, and the sum is the only thing that ranks tell each other, twice a layer. All else is
//! the same on every rank.

use std::fmt::Debug;

use candle_core::{Result, Tensor};

/// How a rank reaches the others.
pub trait Group: Debug + Send + Sync {
    /// Which of them this is, from 0.
    fn rank(&self) -> usize;

    /// How many they are.
    fn size(&self) -> usize;

    /// The sum of what all ranks have, `x` of any shape: the same bits on every rank.
    fn all_reduce(&self, x: Tensor) -> Result<Tensor>;

    /// Columns of all ranks side by side, in the order of ranks, `x [rows, own columns]`: on rank
    /// 0, which alone needs them; the others may get anything.
    fn gather(&self, x: Tensor) -> Result<Tensor>;

    /// What stands for `residual` in this rank's term of a sum that it shall be in once.
    fn own_part(&self, residual: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 { Ok(residual.clone()) } else { residual.zeros_like() }
    }
}

/// The group of one.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Group for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_reduce(&self, x: Tensor) -> Result<Tensor> {
        Ok(x)
    }

    fn gather(&self, x: Tensor) -> Result<Tensor> {
        Ok(x)
    }
}
