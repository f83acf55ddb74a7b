//! Which device a model runs on, why, and how much memory it has.

use std::path::Path;

use candle_core::{CudaDevice, Device};

use super::cgroup;
use super::error::StartupError;
use crate::config::DeviceChoice;
use crate::kernels::backend::Backend;
use crate::kernels::cuda::settings::prepare;
use crate::kernels::packed;
use crate::weights::source::ModelSource;

/// A device that is ready to compute.
#[derive(Clone, Debug)]
pub struct OpenDevice {
    /// The device as the tensor library knows it.
    pub device: Device,
    /// The name that users write.
    pub name: String,
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceMemory {
    /// Bytes that are not in use.
    pub(super) free: usize,
    /// Bytes of all memory, where the device has memory of its own.
    pub(super) own: Option<usize>,
}

impl OpenDevice {
    /// Opens the device of rank `rank` of `size`, and logs in one line which and why. Each rank has a
    /// GPU of its own, the first the one that was asked for.
    ///
    /// # Errors
    ///
    /// A device that this build or this machine doesn't have; `auto` never fails for one rank, and
    /// for several wants a GPU for each where the build can use them.
    pub fn open(choice: DeviceChoice, rank: usize, size: usize) -> Result<Self, StartupError> {
        let choice = of_rank(choice, rank, size)?;
        let (device, why) = match choice {
            DeviceChoice::Cpu => (Device::Cpu, "asked for".to_owned()),
            DeviceChoice::Cuda(_) | DeviceChoice::Metal => (gpu(choice)?, "asked for".to_owned()),
            DeviceChoice::Auto => automatic(),
        };
        let name = name(&device, choice);
        tracing::info!(device = name, why, "device chosen");
        Ok(Self { device, name })
    }

    /// How much memory is free now.
    pub(super) fn memory(&self) -> Result<DeviceMemory, StartupError> {
        match &self.device {
            Device::Cuda(device) => cuda_memory(device),
            Device::Cpu | Device::Metal(_) => Ok(DeviceMemory { free: host_memory()?, own: None }),
        }
    }

    /// Bits that an element of a matrix of bf16 takes there, if its numbers are like those of most.
    pub(super) fn bf16_bits(&self) -> usize {
        if Backend::of(&self.device).is_cpu() { packed::bits_of_bf16() } else { 16 }
    }

    /// As [`Self::bf16_bits`], where all of a checkpoint is told by one element type: whatever that is, most of one that
    /// was quantized is not of bf16.
    pub(super) fn bf16_bits_of(&self, source: &ModelSource) -> usize {
        if source.was_quantized() { 16 } else { self.bf16_bits() }
    }
}

#[cfg(feature = "cuda")]
fn cuda_memory(device: &CudaDevice) -> Result<DeviceMemory, StartupError> {
    let told = device.cuda_stream().context().mem_get_info();
    let (free, all) = told.map_err(|error| StartupError::Memory(error.to_string()))?;
    Ok(DeviceMemory { free, own: Some(all) })
}

/// Never called: this build has no such device.
#[cfg(not(feature = "cuda"))]
fn cuda_memory(_: &CudaDevice) -> Result<DeviceMemory, StartupError> {
    Ok(DeviceMemory { free: host_memory()?, own: None })
}

/// The device of one rank of several.
fn of_rank(choice: DeviceChoice, rank: usize, size: usize) -> Result<DeviceChoice, StartupError> {
    match choice {
        _ if size == 1 => Ok(choice),
        DeviceChoice::Cuda(first) => Ok(DeviceChoice::Cuda(first + rank)),
        DeviceChoice::Auto if cfg!(feature = "cuda") => Ok(DeviceChoice::Cuda(rank)),
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(DeviceChoice::Cpu),
        DeviceChoice::Metal => Err(StartupError::Device {
            device: choice,
            reason: format!(
                "there is one such GPU, for {size} ranks; leave out --tensor-parallel or --pipeline-parallel"
            ),
        }),
    }
}

/// The first GPU that there is, or the CPU, and why.
fn automatic() -> (Device, String) {
    let kinds = [
        (cfg!(feature = "cuda"), DeviceChoice::Cuda(0)),
        (cfg!(feature = "metal"), DeviceChoice::Metal),
    ];
    let mut reasons = Vec::new();
    for (built, choice) in kinds {
        if !built {
            continue;
        }
        match gpu(choice) {
            Ok(device) => return (device, "the first GPU found".to_owned()),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if reasons.is_empty() {
        reasons.push("this build has no GPU support".to_owned());
    }
    (Device::Cpu, reasons.join("; "))
}

fn gpu(choice: DeviceChoice) -> Result<Device, StartupError> {
    let unavailable = |reason: String| StartupError::Device { device: choice, reason };
    let feature = |built: bool, name: &str| {
        let hint = format!("this build can't; build it with --features {name}");
        if built { Ok(()) } else { Err(unavailable(hint)) }
    };
    let opened = match choice {
        DeviceChoice::Cuda(index) => {
            feature(cfg!(feature = "cuda"), "cuda")?;
            // Graphs can't be captured in the default stream.
            Device::new_cuda_with_stream(index)
        }
        DeviceChoice::Metal => {
            feature(cfg!(feature = "metal"), "metal")?;
            Device::new_metal(0)
        }
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(Device::Cpu),
    };
    let ready = |device: Device| prepare(&device).map(|()| device);
    opened.and_then(ready).map_err(|error| unavailable(first_line(&error)))
}

/// The message of an error, without the backtrace that may follow.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn name(device: &Device, choice: DeviceChoice) -> String {
    match (device, choice) {
        (Device::Cpu, _) => DeviceChoice::Cpu.to_string(),
        (Device::Cuda(_), DeviceChoice::Cuda(index)) => DeviceChoice::Cuda(index).to_string(),
        (Device::Cuda(_), _) => DeviceChoice::Cuda(0).to_string(),
        (Device::Metal(_), _) => DeviceChoice::Metal.to_string(),
    }
}

/// Bytes this process may still take: what the system has available, or what its control groups leave.
pub(super) fn host_memory() -> Result<usize, StartupError> {
    let mut system = sysinfo::System::new().map_err(|e| StartupError::Memory(e.to_string()))?;
    system.refresh_memory();
    let available = system.available_memory();
    let left = cgroup::free_memory(Path::new("/")).unwrap_or(available);
    Ok(usize::try_from(available.min(left)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_there_and_what_is_not_built_is_an_error_that_says_so() {
        let cpu = OpenDevice::open(DeviceChoice::Cpu, 0, 1).unwrap();
        assert!(cpu.device.is_cpu() && cpu.name == "cpu");
        assert!(cpu.memory().unwrap().free > 0);
        #[cfg(not(any(feature = "cuda", feature = "metal")))]
        {
            assert!(OpenDevice::open(DeviceChoice::Auto, 1, 2).unwrap().device.is_cpu());
            assert!(OpenDevice::open(DeviceChoice::Auto, 0, 1).unwrap().device.is_cpu());
            let error = |rank, size| {
                OpenDevice::open(DeviceChoice::Cuda(1), rank, size).unwrap_err().to_string()
            };
            assert!(error(0, 1).contains("cuda:1"), "{}", error(0, 1));
            assert!(error(0, 1).contains("--features cuda"));
            assert!(error(1, 2).contains("cuda:2"), "{}", error(1, 2));
        }
        let error = OpenDevice::open(DeviceChoice::Metal, 0, 2).unwrap_err().to_string();
        assert!(error.contains("for 2 ranks"), "{error}");
    }
}
