//! What stands for NCCL in a binary that was built without it.

use candle_core::{CudaDevice, Result, Tensor, bail};

/// Bytes of a group's name, which tells it from other groups.
pub const NAME_BYTES: usize = 128;

/// There is none.
#[derive(Debug)]
pub(super) enum Nccl {}

impl Nccl {
    pub(super) fn name() -> Result<[u8; NAME_BYTES]> {
        bail!("this binary was built without NCCL")
    }

    pub(super) fn join(_: &CudaDevice, _: &[u8; NAME_BYTES], _: usize, _: usize) -> Result<Self> {
        bail!("this binary was built without NCCL")
    }

    pub(super) fn all_reduce(&self, _: &Tensor) -> Result<Tensor> {
        match *self {}
    }

    pub(super) fn all_gather(&self, _: &Tensor, _: usize) -> Result<Tensor> {
        match *self {}
    }
}
