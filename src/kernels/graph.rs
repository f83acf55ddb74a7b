//! Work of a GPU that is recorded once and then started again with one call, since starting each
//! kernel of a decode step by itself takes longer than the kernels of a small model.
//!
//! What was recorded reads and writes the same memory every time. Where there is nothing to record
//! with, it is done again instead, which shows in tests whether it always does the same.

use candle_core::{Device, Result};

use super::{cuda, gpu_settings};

/// Recorded work.
pub struct Recording(Option<cuda::Graph>);

impl Recording {
    /// Whether work on tensors of this device is worth recording.
    pub fn wanted(device: &Device) -> bool {
        cuda::on(device) && !gpu_settings::eager()
    }

    /// Does `work`, then records it.
    ///
    /// # Errors
    ///
    /// What the work gives; or it can't be recorded, since it waits for the device or moves
    /// something new to it.
    pub fn new(device: &Device, work: impl Fn() -> Result<()>) -> Result<Self> {
        match device {
            Device::Cuda(device) => Ok(Self(Some(cuda::record(device, work)?))),
            Device::Cpu | Device::Metal(_) => {
                work()?;
                Ok(Self(None))
            }
        }
    }

    /// Does it again.
    pub fn replay(&self, work: impl Fn() -> Result<()>) -> Result<()> {
        self.0.as_ref().map_or_else(work, cuda::Graph::launch)
    }
}
