//! Copies between host and device that nothing waits for: from and to pinned host memory, in the
//! order of the device's stream.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::driver::result::{memcpy_dtoh_async, memcpy_htod_async};
use candle_core::cuda_backend::cudarc::driver::{
    CudaEvent, CudaStream, DevicePtr, PinnedHostSlice,
};
use candle_core::{CudaDevice, CudaStorage, Error, Result};

/// Least bytes of a piece of pinned memory.
const LEAST_BYTES: usize = 1 << 15;
/// Spare pieces of pinned memory from which on a copy waits for an older one.
const MOST_SPARE: usize = 16;

/// Pinned host memory, which copies need not be moved to first, and the end of the last copy.
struct Pinned {
    memory: PinnedHostSlice<u8>,
    copied: CudaEvent,
}

/// Pinned memory that no one holds; copies from or to it may be under way. The oldest comes first.
static SPARE: Mutex<VecDeque<Pinned>> = Mutex::new(VecDeque::new());

impl Pinned {
    /// Memory of at least so many bytes that no copy uses.
    fn take(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |pinned: &Self| {
            pinned.memory.len() >= bytes && pinned.copied.context() == stream.context()
        };
        let done = |pinned: &Self| fits(pinned) && pinned.copied.is_complete();
        // Rather than to allocate more and more, wait for the oldest.
        let free = spare.iter().position(done).or_else(|| {
            let waits = spare.len() >= MOST_SPARE;
            spare.iter().position(fits).filter(|_| waits)
        });
        if let Some(pinned) = free.and_then(|index| spare.remove(index)) {
            pinned.copied.synchronize().map_err(Error::wrap)?;
            return Ok(pinned);
        }
        drop(spare);
        let context = stream.context();
        let len = bytes.next_power_of_two().max(LEAST_BYTES);
        // SAFETY: it is read only where something was written.
        let memory = unsafe { context.alloc_pinned_with_flags(len, 0) }.map_err(Error::wrap)?;
        Ok(Self { memory, copied: context.new_event(None).map_err(Error::wrap)? })
    }

    /// The first bytes.
    fn bytes(&mut self, count: usize) -> Result<&mut [u8]> {
        Ok(&mut self.memory.as_mut_slice().map_err(Error::wrap)?[..count])
    }

    /// Keeps the memory for later; copies that were started go on.
    fn give_back(self) {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push_back(self);
    }
}

/// A copy on its way to the host.
pub(crate) struct Reading {
    /// Gone once it was given back.
    pinned: Option<Pinned>,
    bytes: usize,
}

/// Starts to copy all of a storage; work that is started later may overwrite it.
pub(super) fn start_reading(storage: &CudaStorage) -> Result<Reading> {
    let from = storage.as_cuda_slice::<i64>()?;
    let (stream, bytes) = (storage.device.cuda_stream(), from.num_bytes());
    let mut pinned = Pinned::take(&stream, bytes)?;
    let from = from.device_ptr(&stream).0;
    // The driver copies as many bytes as the target has: no more than the storage.
    // SAFETY: the target stays where it is until the event says that the copy is done.
    unsafe { memcpy_dtoh_async(pinned.bytes(bytes)?, from, stream.cu_stream()) }
        .map_err(Error::wrap)?;
    pinned.copied.record(&stream).map_err(Error::wrap)?;
    Ok(Reading { pinned: Some(pinned), bytes })
}

impl Reading {
    /// Waits for the copy, not for work that was started after it.
    pub(super) fn wait(mut self) -> Result<Vec<i64>> {
        let Some(mut pinned) = self.pinned.take() else { return Ok(Vec::new()) };
        if let Err(error) = pinned.copied.synchronize() {
            pinned.give_back();
            return Err(Error::wrap(error));
        }
        let words = pinned.bytes(self.bytes)?.as_chunks().0.iter();
        let numbers = words.map(|word| i64::from_ne_bytes(*word)).collect();
        pinned.give_back();
        Ok(numbers)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // The copy may still be under way, so its target must not be freed.
        if let Some(pinned) = self.pinned.take() {
            pinned.give_back();
        }
    }
}

/// Starts to write `bytes` from `address` on, behind all work that was started before. They may be
/// gone when this returns.
///
/// # Safety
///
/// So many bytes at the address are of one tensor of `device`.
pub(super) unsafe fn write(device: &CudaDevice, address: u64, bytes: &[u8]) -> Result<()> {
    let stream = device.cuda_stream();
    stream.context().bind_to_thread().map_err(Error::wrap)?;
    let mut pinned = Pinned::take(&stream, bytes.len())?;
    pinned.bytes(bytes.len())?.copy_from_slice(bytes);
    let from = pinned.bytes(bytes.len())?;
    // SAFETY: the source stays as it is until the event says that the copy is done; the target is as
    // the caller says.
    let started = unsafe { memcpy_htod_async(address, from, stream.cu_stream()) };
    let recorded = pinned.copied.record(&stream);
    pinned.give_back();
    started.and(recorded).map_err(Error::wrap)
}
