//! What stands for a GPU in a binary that was built without CUDA: candle makes no such device then.

use candle_core::{CudaDevice, CudaStorage, Result, bail};

use super::layout::KernelStruct;
use super::source::Source;

pub(super) fn start(_: &CudaStorage) -> Result<u64> {
    bail!("this binary was built without CUDA")
}

pub(super) unsafe fn run<A: KernelStruct>(
    _: &CudaDevice,
    source: &Source,
    kernel: &str,
    _: ([u32; 3], u32, u32),
    _: A,
) -> Result<()> {
    bail!("{kernel} of {}: this binary was built without CUDA", source.path)
}

/// A captured graph; there is none.
pub(super) enum Graph {}

impl Graph {
    pub(super) fn launch(&self) -> Result<()> {
        match *self {}
    }
}

pub(super) fn capture(_: &CudaDevice, _: impl Fn() -> Result<()>) -> Result<Result<Graph>> {
    bail!("this binary was built without CUDA")
}

pub(super) fn prepare(_: &CudaDevice) -> Result<()> {
    bail!("this binary was built without CUDA")
}

pub(super) fn most_shared(_: &CudaDevice) -> Option<usize> {
    None
}

pub(super) fn multiprocessors(_: &CudaDevice) -> Option<usize> {
    None
}

/// A copy on its way to the host; there is none.
pub(crate) enum Reading {}

impl Reading {
    pub(super) fn wait(self) -> Result<Vec<i64>> {
        match self {}
    }
}

pub(super) fn start_reading(_: &CudaStorage) -> Result<Reading> {
    bail!("this binary was built without CUDA")
}

pub(super) unsafe fn write(_: &CudaDevice, _: u64, _: &[u8]) -> Result<()> {
    bail!("this binary was built without CUDA")
}

pub(super) fn synchronize(_: &CudaDevice) -> Result<()> {
    bail!("this binary was built without CUDA")
}
