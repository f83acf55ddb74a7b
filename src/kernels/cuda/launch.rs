//! Launches of kernels: each takes one struct of addresses and numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::{CpuStorage, CudaStorage, DType, Device, InplaceOp1, Layout, Result};
use candle_core::{Shape, Storage, Tensor, WithDType, bail};

pub(crate) use super::layout::kernel_struct;
use super::layout::{KernelStruct, Kind, hash_of};
pub(crate) use super::source::{Source, source};
use super::{device, on_host};

/// An address in the memory that a kernel reads and writes; zero is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(u64);

impl Address {
    /// Null.
    pub(crate) const NONE: Self = Self(0);

    /// The address of the first element of a contiguous tensor of `dtype`.
    pub(crate) fn of(tensor: &Tensor, dtype: DType) -> Result<Self> {
        if tensor.dtype() != dtype || !tensor.is_contiguous() {
            let (own, layout) = (tensor.dtype(), tensor.layout());
            bail!("a kernel reads contiguous {dtype:?}, not {own:?} of {layout:?}");
        }
        Self::of_start(tensor)
    }

    /// The address of a tensor's first element, or null without a tensor.
    pub(crate) fn of_some(tensor: Option<&Tensor>, dtype: DType) -> Result<Self> {
        tensor.map_or(Ok(Self::NONE), |tensor| Self::of(tensor, dtype))
    }

    /// The address of a tensor that a kernel writes to.
    pub(crate) fn to_write(tensor: &Tensor, dtype: DType) -> Result<Self> {
        Self::of(tensor, dtype)?;
        if tensor.elem_count() == 0 {
            return Ok(Self::NONE);
        }
        let found = Find { size: dtype.size_in_bytes(), address: AtomicU64::new(0) };
        tensor.inplace_op1(&found)?;
        Ok(Self(found.address.into_inner()))
    }

    /// The address of the first of f32 rows `[T, ..]` that are contiguous each, and the stride of rows
    /// in elements.
    pub(crate) fn of_rows(tensor: &Tensor) -> Result<(Self, u32)> {
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

    /// The address so many words of 8 bytes later.
    pub(crate) fn plus_words(self, words: usize) -> Self {
        Self(self.0 + 8 * words as u64)
    }

    /// Addresses as a tensor of i64.
    pub(crate) fn list(addresses: &[Self], device: &Device) -> Result<Tensor> {
        let numbers: Vec<i64> = addresses.iter().map(|address| address.0.cast_signed()).collect();
        Tensor::new(numbers, device)
    }

    /// Whether 16 bytes can be read at once at this address.
    pub(crate) fn is_aligned(self) -> bool {
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

impl Kind for Address {
    const KIND: u32 = hash_of("address");
}

/// Finds the address of a tensor that is about to be written.
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

/// Most blocks of a grid in each dimension.
const MOST_BLOCKS: [usize; 3] = [(1 << 31) - 1, 65_535, 65_535];
/// Most threads of a block.
const MOST_THREADS: usize = 1024;

/// A kernel and the shape of its grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    /// The code that the kernel is part of.
    pub(crate) source: &'static Source,
    /// The name of the kernel's function.
    pub(crate) kernel: &'a str,
    /// Blocks of threads in three dimensions; if one is zero, nothing is done.
    pub(crate) grid: [usize; 3],
    /// Threads of a block.
    pub(crate) threads: usize,
    /// Bytes of shared memory that a block asks for.
    pub(crate) shared: usize,
}

impl Launch<'_> {
    /// Starts the kernel with `arguments`.
    ///
    /// # Errors
    ///
    /// Among others, arguments that the kernel's source lays out in another way.
    ///
    /// # Safety
    ///
    /// The kernel stays within the memory at the addresses among the arguments, and that memory
    /// is of `device`, or stays allocated as long as work of the device that was started before.
    pub(crate) unsafe fn run<A: KernelStruct>(self, device: &Device, arguments: A) -> Result<()> {
        let mut grid = [0; 3];
        for (to, from) in grid.iter_mut().zip(self.grid) {
            *to = narrow(from)?;
        }
        if grid.contains(&0) {
            return Ok(());
        }
        self.check(device)?;
        let Self { source, kernel, .. } = self;
        let shape = (grid, narrow(self.threads)?, narrow(self.shared)?);
        match device {
            // SAFETY: as the caller says.
            Device::Cpu => unsafe { on_host::run(kernel, shape, arguments) },
            // SAFETY: as the caller says.
            Device::Cuda(device) => unsafe {
                device::run(device, source, kernel, shape, arguments)
            },
            Device::Metal(_) => bail!("{kernel} is a CUDA kernel"),
        }
    }
}

impl Launch<'_> {
    /// Refuses what no GPU takes, also where there is none.
    fn check(&self, device: &Device) -> Result<()> {
        let Self { kernel, grid: [x, y, z], threads, shared, .. } = *self;
        if x > MOST_BLOCKS[0] || y > MOST_BLOCKS[1] || z > MOST_BLOCKS[2] {
            bail!("{kernel}: a grid of {x} x {y} x {z} blocks, at most {MOST_BLOCKS:?}");
        }
        let most_shared = most_shared(device);
        if threads > MOST_THREADS || shared > most_shared {
            bail!(
                "{kernel}: blocks of {threads} threads with {shared} bytes of shared memory, at \
                 most {MOST_THREADS} with {most_shared}"
            );
        }
        Ok(())
    }
}

/// A copy of i64 elements on its way to the host, as they are when all work that was started before
/// is done.
pub(crate) enum Reading {
    /// Arrived.
    Done(Vec<i64>),
    /// Under way.
    Started(device::Reading),
}

impl Reading {
    /// Starts to copy an i64 tensor that is alone in its memory.
    pub(crate) fn start(tensor: &Tensor) -> Result<Self> {
        let (storage, _) = tensor.storage_and_layout();
        match &*storage {
            Storage::Cuda(storage) => Ok(Self::Started(device::start_reading(storage)?)),
            Storage::Cpu(_) | Storage::Metal(_) => Ok(Self::Done(tensor.to_vec1()?)),
        }
    }

    /// Waits for the copy.
    pub(crate) fn wait(self) -> Result<Vec<i64>> {
        match self {
            Self::Done(numbers) => Ok(numbers),
            Self::Started(reading) => reading.wait(),
        }
    }
}

/// A contiguous tensor of these numbers. On a GPU nothing waits for them, and kernels that are launched
/// later read them.
pub(crate) fn upload<T: WithDType>(
    numbers: Vec<T>,
    shape: impl Into<Shape>,
    device: &Device,
) -> Result<Tensor> {
    if !device.is_cuda() {
        return Tensor::from_vec(numbers, shape, device);
    }
    let tensor = output_buffer(shape, T::DTYPE, device)?;
    overwrite(&tensor, numbers)?;
    Ok(tensor)
}

/// Overwrites all of a contiguous tensor, behind work that was started before; nothing waits.
pub(crate) fn overwrite<T: WithDType>(tensor: &Tensor, numbers: Vec<T>) -> Result<()> {
    let (own, given) = (tensor.elem_count(), numbers.len());
    if own != given {
        bail!("{given} numbers for a tensor of {own}");
    }
    match tensor.device() {
        _ if given == 0 => Ok(()),
        Device::Cuda(device) => {
            let address = Address::to_write(tensor, T::DTYPE)?;
            // SAFETY: numbers have no padding, and any of their bytes can be read.
            let bytes = unsafe {
                std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(&*numbers))
            };
            // SAFETY: the tensor is contiguous and has as many bytes.
            unsafe { device::write(device, address.0, bytes) }
        }
        device => tensor.slice_set(&Tensor::from_vec(numbers, tensor.shape(), device)?, 0, 0),
    }
}

/// Shared memory that a block can have on every GPU of the generations that there is code for.
pub(crate) const LEAST_SHARED: usize = 99 << 10;

/// Shared memory that a block can have on this device.
pub(crate) fn most_shared(device: &Device) -> usize {
    match device {
        Device::Cuda(device) => device::most_shared(device).unwrap_or(LEAST_SHARED),
        Device::Cpu | Device::Metal(_) => LEAST_SHARED,
    }
}

/// Multiprocessors of this device.
pub(crate) fn multiprocessors(device: &Device) -> usize {
    match device {
        Device::Cuda(device) => device::multiprocessors(device).unwrap_or(1),
        // So few that kernels on the host take several rounds.
        Device::Cpu | Device::Metal(_) => 2,
    }
}

/// A tensor for a kernel's results, all of which it writes.
pub(crate) fn output_buffer(
    shape: impl Into<Shape>,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    if device.is_cpu() {
        return Tensor::zeros(shape, dtype, device);
    }
    // SAFETY: a kernel writes all of it before anything is read, in the order of one stream.
    unsafe { Tensor::empty(shape, dtype, device) }
}

/// A type of outputs as kernels know it.
pub(crate) fn output_type(dtype: DType) -> Result<u32> {
    match dtype {
        DType::F32 => Ok(0),
        DType::BF16 => Ok(1),
        DType::F16 => Ok(2),
        other => bail!("kernels have no outputs of {other:?}"),
    }
}

/// A size as the u32 that kernels take.
pub(crate) fn narrow(size: usize) -> Result<u32> {
    match u32::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => bail!("kernels count to {}, not to {size}", u32::MAX),
    }
}
