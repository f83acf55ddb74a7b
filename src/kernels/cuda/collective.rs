//! What GPUs of several processes tell each other without the host, by NCCL: with the feature
//! `nccl`, on NVIDIA GPUs of one machine.

use candle_core::{DType, Device, Result, Tensor, bail};

pub use super::nccl::NAME_BYTES;
use super::nccl::Nccl;
use super::settings;

/// One rank of a group of GPUs that exchange tensors.
#[derive(Debug)]
pub struct Collective {
    link: Nccl,
    size: usize,
}

impl Collective {
    /// Whether this build can connect `device` to other GPUs.
    pub fn possible(device: &Device) -> bool {
        cfg!(feature = "nccl") && device.is_cuda()
    }

    /// A name for a new group, which all of its processes must be told.
    pub fn name() -> Result<[u8; NAME_BYTES]> {
        Nccl::name()
    }

    /// Joins a group of `size` as its `rank`; waits for all others.
    pub fn join(
        device: &Device,
        name: &[u8; NAME_BYTES],
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        let Device::Cuda(device) = device else { bail!("NCCL connects NVIDIA GPUs") };
        Ok(Self { link: Nccl::join(device, name, rank, size)?, size })
    }

    /// The sum of `x` (f32, any shape) over all ranks, the same bits on each.
    pub fn all_reduce(&self, x: &Tensor) -> Result<Tensor> {
        if !settings::deterministic() {
            return self.link.all_reduce(&x.contiguous()?);
        }
        // How NCCL adds up depends on how much there is to add.
        let all = self.all_gather(x)?;
        let mut sum = all.get(0)?;
        for rank in 1..self.size {
            sum = (sum + all.get(rank)?)?;
        }
        Ok(sum)
    }

    /// `x` (f32, one shape) of all ranks in their order: `[size, ..]`.
    pub fn all_gather(&self, x: &Tensor) -> Result<Tensor> {
        if x.dtype() != DType::F32 {
            bail!("ranks tell each other f32, not {:?}", x.dtype());
        }
        self.link.all_gather(&x.contiguous()?, self.size)
    }
}
