//! What stands for a GPU in a binary that was built without CUDA: candle makes no such device then.

use candle_core::{CudaDevice, CudaStorage, Result, Tensor, bail};

pub(super) fn start(_: &CudaStorage) -> Result<u64> {
    bail!("this binary was built without CUDA")
}

pub(super) unsafe fn run<A: Copy>(
    _: &CudaDevice,
    _: &'static str,
    kernel: &str,
    _: ([u32; 3], u32, u32),
    _: A,
) -> Result<()> {
    bail!("{kernel}: this binary was built without CUDA")
}

/// Recorded work; there is none.
pub(in super::super) enum Graph {}

impl Graph {
    pub(in super::super) fn launch(&self) -> Result<()> {
        match *self {}
    }
}

pub(in super::super) fn record(_: &CudaDevice, _: impl Fn() -> Result<()>) -> Result<Graph> {
    bail!("this binary was built without CUDA")
}

pub(in super::super) fn half_product(_: &Tensor, _: &Tensor) -> Result<Tensor> {
    bail!("this binary was built without CUDA")
}

pub(in super::super) fn prepare(_: &CudaDevice) -> Result<()> {
    bail!("this binary was built without CUDA")
}

pub(super) fn most_shared(_: &CudaDevice) -> usize {
    super::launch::LEAST_SHARED
}

/// Numbers on their way to the host; there are none.
pub(super) enum Reading {}

impl Reading {
    pub(super) fn wait(self) -> Result<Vec<i64>> {
        match self {}
    }
}

pub(super) fn start_reading(_: &CudaStorage) -> Result<Reading> {
    bail!("this binary was built without CUDA")
}
