//! From candle storages to slices: the one place that looks at dtypes and layouts.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, Layout, Result, WithDType, bail};

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
