//! NCCL on the stream of a device's other work.

use std::ffi::c_char;
use std::fmt;

use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaView};
use candle_core::cuda_backend::cudarc::nccl::{Comm, Id, ReduceOp};
use candle_core::{CudaDevice, CudaStorage, Error, Result, Storage, Tensor, bail};

/// Bytes of a group's name, which tells it from other groups.
pub const NAME_BYTES: usize = 128;

/// One rank's end of a group.
pub(super) struct Nccl(Comm);

// SAFETY: NCCL's calls for one end must not overlap; the engine's thread makes all of them.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl").finish_non_exhaustive()
    }
}

/// NCCL's errors have no words of their own.
fn failed<E: fmt::Debug>(error: E) -> Error {
    Error::Msg(format!("NCCL: {error:?}"))
}

impl Nccl {
    pub(super) fn name() -> Result<[u8; NAME_BYTES]> {
        let id = Id::new().map_err(failed)?;
        Ok(id.internal().map(c_char::cast_unsigned))
    }

    pub(super) fn join(
        device: &CudaDevice,
        name: &[u8; NAME_BYTES],
        rank: usize,
        size: usize,
    ) -> Result<Self> {
        let id = Id::uninit(name.map(u8::cast_signed));
        Comm::from_rank(device.cuda_stream(), rank, size, id).map(Self).map_err(failed)
    }

    pub(super) fn all_reduce(&self, x: &Tensor) -> Result<Tensor> {
        self.into_new(x, 1, |slice, sum| {
            self.0.all_reduce(slice, sum, &ReduceOp::Sum).map(drop).map_err(failed)
        })?
        .reshape(x.dims())
    }

    pub(super) fn all_gather(&self, x: &Tensor, size: usize) -> Result<Tensor> {
        self.into_new(x, size, |slice, all| {
            self.0.all_gather(slice, all).map(drop).map_err(failed)
        })?
        .reshape([&[size], x.dims()].concat())
    }

    /// Calls `work` with `x` and an output buffer `times` as large.
    fn into_new(
        &self,
        x: &Tensor,
        times: usize,
        work: impl Fn(&CudaView<'_, f32>, &mut CudaSlice<f32>) -> Result<()>,
    ) -> Result<Tensor> {
        let (storage, layout) = x.storage_and_layout();
        let Storage::Cuda(own) = &*storage else { bail!("NCCL reads memory of a GPU") };
        let count = x.elem_count();
        let start = layout.start_offset();
        let slice = own.as_cuda_slice::<f32>()?.slice(start..start + count);
        // SAFETY: all of it is written before anything is read, in the order of one stream.
        let mut output = unsafe { own.device.alloc::<f32>(times * count)? };
        work(&slice, &mut output)?;
        let output = CudaStorage::wrap_cuda_slice(output, own.device.clone());
        Ok(Tensor::from_storage(
            Storage::Cuda(output),
            times * count,
            candle_core::op::BackpropOp::none(),
            false,
        ))
    }
}
