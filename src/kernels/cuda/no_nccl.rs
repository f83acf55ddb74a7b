//! What stands for NCCL in a binary that was built without it.

use candle_core::{CudaDevice, Result, Tensor, bail};

use super::super::collective::NAME_BYTES;

/// There is none.
#[derive(Debug)]
pub(in super::super) enum Nccl {}

impl Nccl {
    pub(in super::super) fn name() -> Result<[u8; NAME_BYTES]> {
        bail!("this binary was built without NCCL")
    }

    pub(in super::super) fn join(
        _: &CudaDevice,
        _: &[u8; NAME_BYTES],
        _: usize,
        _: usize,
    ) -> Result<Self> {
        bail!("this binary was built without NCCL")
    }

    pub(in super::super) fn all_reduce(&self, _: &Tensor) -> Result<Tensor> {
        match *self {}
    }

    pub(in super::super) fn all_gather(&self, _: &Tensor, _: usize) -> Result<Tensor> {
        match *self {}
    }
}
