//! From candle storages to slices: the one place that looks at dtypes and layouts.

use std::cell::Cell;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, WithDType, bail};

/// The elements of a contiguous tensor.
pub(super) fn contiguous<'a, T: WithDType>(
    operation: &str,
    storage: &'a CpuStorage,
    layout: &Layout,
) -> Result<&'a [T]> {
    let all = storage.as_slice::<T>()?;
    match layout.contiguous_offsets() {
        Some((start, end)) if end <= all.len() => Ok(&all[start..end]),
        Some((_, end)) => bail!("{operation}: layout ends at {end}, storage at {}", all.len()),
        None => bail!("{operation}: the input is not contiguous: {layout:?}"),
    }
}

/// Rows of equal width, perhaps with other elements between them.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    all: &'a [f32],
    stride: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    /// The rows of an f32 tensor `[T, ..]` that are contiguous each.
    pub(super) fn of(operation: &str, storage: &'a CpuStorage, layout: &Layout) -> Result<Self> {
        let all = storage.as_slice::<f32>()?;
        let [count, inner @ ..] = layout.dims() else { bail!("{operation}: a scalar has no rows") };
        let mut width = 1;
        for (dim, stride) in inner.iter().zip(&layout.stride()[1..]).rev() {
            if *dim > 1 && *stride != width {
                bail!("{operation}: the rows of the input are not contiguous: {layout:?}");
            }
            width *= dim;
        }
        let (start, stride) = (layout.start_offset(), layout.stride()[0]);
        match count.checked_sub(1).map(|last| start + last * stride + width) {
            Some(end) if end > all.len() => {
                bail!("{operation}: layout ends at {end}, storage at {}", all.len())
            }
            Some(end) => Ok(Self { all: &all[start..end], stride, width }),
            None => Ok(Self { all: &[], stride, width }),
        }
    }

    pub(super) fn row(&self, index: usize) -> &'a [f32] {
        &self.all[index * self.stride..index * self.stride + self.width]
    }
}

/// Rows and width of a contiguous tensor's last dimension.
pub(super) fn rows_of(operation: &str, layout: &Layout) -> Result<(usize, usize)> {
    match layout.dims() {
        [] => bail!("{operation}: a scalar has no rows"),
        [outer @ .., width] => Ok((outer.iter().product(), *width)),
    }
}

/// The elements of a contiguous tensor, to write.
pub(super) fn contiguous_mut<'a, T: Mutable>(
    operation: &str,
    storage: &'a mut CpuStorage,
    layout: &Layout,
) -> Result<&'a mut [T]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{operation}: the output is not contiguous: {layout:?}")
    };
    let dtype = storage.dtype();
    match T::of(storage) {
        Some(all) if end <= all.len() => Ok(&mut all[start..end]),
        Some(all) => bail!("{operation}: layout ends at {end}, storage at {}", all.len()),
        None => bail!("{operation}: can't write {:?} to {dtype:?}", T::DTYPE),
    }
}

/// Calls `work` with the storage of a tensor on the CPU.
pub(super) fn read<R>(
    operation: &str,
    tensor: &Tensor,
    work: impl FnOnce(&CpuStorage, &Layout) -> Result<R>,
) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => work(storage, layout),
        _ => bail!("{operation}: an input is not on the cpu"),
    }
}

/// Calls `work` with the elements of a contiguous tensor on the CPU, to change them. The tensor
/// is locked meanwhile.
pub(super) fn write<T: Mutable>(
    operation: &'static str,
    tensor: &Tensor,
    work: impl FnOnce(&mut [T]) -> Result<()>,
) -> Result<()> {
    let work = |storage: &mut CpuStorage, layout: &Layout| {
        work(contiguous_mut::<T>(operation, storage, layout)?)
    };
    tensor.inplace_op1(&Once { operation, work: Cell::new(Some(work)) })
}

/// An operation that can be applied a single time.
struct Once<F> {
    operation: &'static str,
    work: Cell<Option<F>>,
}

impl<F: FnOnce(&mut CpuStorage, &Layout) -> Result<()>> InplaceOp1 for Once<F> {
    fn name(&self) -> &'static str {
        self.operation
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        self.work.take().expect("candle applies an operation once")(storage, layout)
    }
}

/// Element types that an operation changes in place.
pub(super) trait Mutable: WithDType {
    fn of(storage: &mut CpuStorage) -> Option<&mut Vec<Self>>;
}

macro_rules! mutable {
    ($type:ty, $variant:ident) => {
        impl Mutable for $type {
            fn of(storage: &mut CpuStorage) -> Option<&mut Vec<Self>> {
                match storage {
                    CpuStorage::$variant(values) => Some(values),
                    _ => None,
                }
            }
        }
    };
}

mutable!(f32, F32);
mutable!(half::bf16, BF16);
mutable!(half::f16, F16);
mutable!(float8::F8E4M3, F8E4M3);
mutable!(u8, U8);
