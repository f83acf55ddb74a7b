//! CUDA graphs: work of a GPU that is captured once and then launched with one call, since launching
//! each kernel of a decode step by itself takes longer than the kernels of a small model.
//!
//! A captured graph reads and writes the same memory every time. Where there is no GPU to capture
//! with, the work is done again instead, which shows in tests whether it always does the same.

use candle_core::{Device, Result};

use super::{device, settings};
use crate::backend::Backend;

/// Captured work.
pub struct CudaGraph(Option<device::Graph>);

impl CudaGraph {
    /// Whether work on tensors of this device is worth capturing.
    pub fn wanted(device: &Device) -> bool {
        Backend::of(device).is_cuda() && !settings::eager()
    }

    /// Does `work`, then captures it. The calling thread must live as long as the graph: constants
    /// that the work moves to the device are kept with the thread.
    ///
    /// The inner error says why work that was done can't be captured: it waits for the device, or moves
    /// something new to it.
    ///
    /// # Errors
    ///
    /// What the work gives when it is done.
    pub fn capture(device: &Device, work: impl Fn() -> Result<()>) -> Result<Result<Self>> {
        match device {
            Device::Cuda(device) => {
                let graph = device::capture(device, work)?;
                Ok(graph.map(|graph| Self(Some(graph))))
            }
            Device::Cpu | Device::Metal(_) => {
                work()?;
                Ok(Ok(Self(None)))
            }
        }
    }

    /// Launches the captured work, or does `work` again where nothing could be captured.
    pub fn launch(&self, work: impl Fn() -> Result<()>) -> Result<()> {
        self.0.as_ref().map_or_else(work, device::Graph::launch)
    }
}

/// Waits for all work of a GPU, to learn whether it has failed for good: after an error of a kernel
/// every later call fails too, until the process ends.
///
/// # Errors
///
/// What failed. Never on a device that is no NVIDIA GPU.
pub fn check_device(device: &Device) -> Result<()> {
    match device {
        Device::Cuda(device) => device::synchronize(device),
        Device::Cpu | Device::Metal(_) => Ok(()),
    }
}
