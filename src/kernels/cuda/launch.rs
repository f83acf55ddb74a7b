//! How a kernel is called: with one struct of addresses and numbers, laid out as in its source.

use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::{CpuStorage, CudaStorage, DType, Device, InplaceOp1, Layout, Result};
use candle_core::{Shape, Storage, Tensor, bail};

#[cfg(not(feature = "cuda"))]
use super::absent as device;
#[cfg(feature = "cuda")]
use super::device;
use super::on_host;

/// Where something lies in the memory that a kernel reads and writes; zero is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Address(u64);

impl Address {
    /// What a kernel knows as null.
    pub(super) const NONE: Self = Self(0);

    /// Of the first element of a contiguous tensor of `dtype`.
    pub(super) fn of(tensor: &Tensor, dtype: DType) -> Result<Self> {
        if tensor.dtype() != dtype || !tensor.is_contiguous() {
            let (own, layout) = (tensor.dtype(), tensor.layout());
            bail!("a kernel reads contiguous {dtype:?}, not {own:?} of {layout:?}");
        }
        Self::of_start(tensor)
    }

    /// Of the same, if there is one.
    pub(super) fn of_some(tensor: Option<&Tensor>, dtype: DType) -> Result<Self> {
        tensor.map_or(Ok(Self::NONE), |tensor| Self::of(tensor, dtype))
    }

    /// Of a tensor that a kernel writes to.
    pub(super) fn to_write(tensor: &Tensor, dtype: DType) -> Result<Self> {
        Self::of(tensor, dtype)?;
        if tensor.elem_count() == 0 {
            return Ok(Self::NONE);
        }
        let found = Find { size: dtype.size_in_bytes(), address: AtomicU64::new(0) };
        tensor.inplace_op1(&found)?;
        Ok(Self(found.address.into_inner()))
    }

    /// Of the first of f32 rows `[T, ..]` that are contiguous each, and how many elements there are
    /// from the start of one to the next.
    pub(super) fn of_rows(tensor: &Tensor) -> Result<(Self, u32)> {
        let layout = tensor.layout();
        let mut width = 1;
        for (dim, stride) in layout.dims().iter().zip(layout.stride()).skip(1).rev() {
            if *dim > 1 && *stride != width {
                bail!("a kernel reads rows that are contiguous each, not {layout:?}");
            }
            width *= dim;
        }
        let Some(stride) = layout.stride().first().filter(|_| tensor.dtype() == DType::F32) else {
            bail!("a kernel reads rows of f32, not {:?} of {layout:?}", tensor.dtype());
        };
        Ok((Self::of_start(tensor)?, narrow(*stride)?))
    }

    /// So many words of 8 bytes behind it.
    pub(super) fn plus_words(self, words: usize) -> Self {
        Self(self.0 + 8 * words as u64)
    }

    /// A tensor of addresses.
    pub(super) fn list(addresses: &[Self], device: &Device) -> Result<Tensor> {
        let numbers: Vec<i64> = addresses.iter().map(|address| address.0.cast_signed()).collect();
        Tensor::new(numbers, device)
    }

    /// Whether 16 bytes can be read there at once.
    pub(super) fn is_aligned(self) -> bool {
        self.0.is_multiple_of(16)
    }

    fn of_start(tensor: &Tensor) -> Result<Self> {
        let (storage, layout) = tensor.storage_and_layout();
        let start = match &*storage {
            Storage::Cpu(storage) => on_host::start(storage)?,
            Storage::Cuda(storage) => device::start(storage)?,
            Storage::Metal(_) => bail!("a CUDA kernel reads no memory of Metal's"),
        };
        Ok(Self(start + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64))
    }
}

/// Takes the address of what is about to be written.
struct Find {
    /// Bytes of an element.
    size: usize,
    address: AtomicU64,
}

impl Find {
    fn found(&self, start: u64, layout: &Layout) {
        let offset = (layout.start_offset() * self.size) as u64;
        self.address.store(start + offset, Ordering::Relaxed);
    }
}

impl InplaceOp1 for Find {
    fn name(&self) -> &'static str {
        "address"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        self.found(on_host::start_to_write(storage)?, layout);
        Ok(())
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        self.found(device::start(storage)?, layout);
        Ok(())
    }
}

/// A kernel and the shape of its grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    /// The source's name.
    pub(super) source: &'static str,
    /// The function's name.
    pub(super) kernel: &'a str,
    /// Blocks; if one number is zero, nothing is done.
    pub(super) grid: [usize; 3],
    /// Threads of a block.
    pub(super) threads: usize,
    /// Bytes of shared memory that a block asks for.
    pub(super) shared: usize,
}

impl Launch<'_> {
    /// Starts it with `arguments`, which must be laid out as the kernel's own struct.
    ///
    /// # Safety
    ///
    /// The kernel stays within the memory at the addresses among the arguments, and that memory
    /// is of `device`, or stays allocated as long as work of the device that was started before.
    pub(super) unsafe fn run<A: Copy>(self, device: &Device, arguments: A) -> Result<()> {
        let mut grid = [0; 3];
        for (to, from) in grid.iter_mut().zip(self.grid) {
            *to = narrow(from)?;
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let [threads, shared] = [narrow(self.threads)?, narrow(self.shared)?];
        match device {
            // SAFETY: as the caller says.
            Device::Cpu => unsafe { on_host::run(self.kernel, grid, threads, shared, arguments) },
            Device::Cuda(device) => {
                let Self { source, kernel, .. } = self;
                // SAFETY: as the caller says.
                unsafe { device::run(device, source, kernel, (grid, threads, shared), arguments) }
            }
            Device::Metal(_) => bail!("{} is a CUDA kernel", self.kernel),
        }
    }
}

/// Numbers on their way to the host, as they are when all work that was started before is done.
pub(super) enum Reading {
    /// There already.
    Done(Vec<i64>),
    /// Under way.
    Started(device::Reading),
}

impl Reading {
    /// Of all of an i64 tensor that is alone in its memory.
    pub(super) fn start(tensor: &Tensor) -> Result<Self> {
        let (storage, _) = tensor.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => Ok(Self::Started(device::start_reading(storage)?)),
            Storage::Cpu(_) | Storage::Metal(_) => Ok(Self::Done(tensor.to_vec1()?)),
        }
    }

    pub(super) fn wait(self) -> Result<Vec<i64>> {
        match self {
            Self::Done(numbers) => Ok(numbers),
            Self::Started(reading) => reading.wait(),
        }
    }
}

/// Shared memory that a block can have on every GPU of the generations that there is code for.
pub(super) const LEAST_SHARED: usize = 99 << 10;

/// Shared memory that a block can have on this device.
pub(super) fn most_shared(device: &Device) -> usize {
    match device {
        Device::Cuda(device) => device::most_shared(device),
        Device::Cpu | Device::Metal(_) => LEAST_SHARED,
    }
}

/// Room for a kernel's results, all of which it writes.
pub(super) fn room(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Tensor> {
    if device.is_cpu() {
        return Tensor::zeros(shape, dtype, device);
    }
    // SAFETY: a kernel writes all of it before anything is read, in the order of one stream.
    unsafe { Tensor::empty(shape, dtype, device) }
}

/// A size as kernels have it.
pub(super) fn narrow(size: usize) -> Result<u32> {
    match u32::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => bail!("kernels count to {}, not to {size}", u32::MAX),
    }
}
