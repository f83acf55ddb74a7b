//! What a server's owner decides about kernels on a GPU, once, before the model loads.

use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{Device, Result};

use super::device;

static DETERMINISTIC: AtomicBool = AtomicBool::new(false);
static EAGER: AtomicBool = AtomicBool::new(false);

/// Settings of the CUDA kernels, off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuSettings {
    /// Results don't depend on how many tokens a step has, to the bit, which makes prompts and steps
    /// of many sequences slower.
    pub deterministic: bool,
    /// Every kernel of a step is launched by itself; no CUDA graph is captured.
    pub eager: bool,
}

impl GpuSettings {
    /// Makes these the settings of this process.
    pub fn apply(self) {
        DETERMINISTIC.store(self.deterministic, Ordering::Relaxed);
        EAGER.store(self.eager, Ordering::Relaxed);
    }
}

/// Prepares a device that was just opened. Memory of freed tensors stays with the process: what is
/// free once the largest step was computed stays free.
pub fn prepare(device: &Device) -> Result<()> {
    match device {
        Device::Cuda(device) => device::prepare(device),
        Device::Cpu | Device::Metal(_) => Ok(()),
    }
}

pub(crate) fn deterministic() -> bool {
    DETERMINISTIC.load(Ordering::Relaxed)
}

pub(crate) fn eager() -> bool {
    EAGER.load(Ordering::Relaxed)
}
