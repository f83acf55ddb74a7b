//! From candle storages to slices: the one place that looks at dtypes and layouts.

use std::cell::Cell;
use std::ops::Deref;

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Storage, Tensor, WithDType, bail};

/// A tensor on the CPU that is read: nobody changes it as long as its storage is guarded.
pub(super) struct Reading<'a, Guard> {
    operation: &'static str,
    storage: Guard,
    layout: &'a Layout,
}

/// Begins to read a tensor.
pub(super) fn read<'a>(
    operation: &'static str,
    tensor: &'a Tensor,
) -> Reading<'a, impl Deref<Target = Storage>> {
    let (storage, layout) = tensor.storage_and_layout();
    Reading { operation, storage, layout }
}

impl<Guard: Deref<Target = Storage>> Reading<'_, Guard> {
    fn all<T: WithDType>(&self) -> Result<&[T]> {
        match &*self.storage {
            Storage::Cpu(storage) => storage.as_slice::<T>(),
            _ => bail!("{}: an input is not on the cpu", self.operation),
        }
    }

    /// The elements of a contiguous tensor.
    pub(super) fn contiguous<T: WithDType>(&self) -> Result<&[T]> {
        let (operation, all) = (self.operation, self.all::<T>()?);
        match self.layout.contiguous_offsets() {
            Some((start, end)) if end <= all.len() => Ok(&all[start..end]),
            Some((_, end)) => bail!("{operation}: layout ends at {end}, storage at {}", all.len()),
            None => bail!("{operation}: the input is not contiguous: {:?}", self.layout),
        }
    }

    /// The rows of an f32 tensor `[T, ..]` that are contiguous each.
    pub(super) fn rows(&self) -> Result<Rows<'_>> {
        let (operation, layout, all) = (self.operation, self.layout, self.all::<f32>()?);
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
            Some(end) => Ok(Rows { all: &all[start..end], stride, width }),
            None => Ok(Rows { all: &[], stride, width }),
        }
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
    pub(super) fn row(&self, index: usize) -> &'a [f32] {
        &self.all[index * self.stride..index * self.stride + self.width]
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
