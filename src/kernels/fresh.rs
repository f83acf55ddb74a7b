//! Output buffers of CPU kernels: allocated but not zeroed, and handed to parallel chunks in parts
//! that don't overlap.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::shape::ShapeWithOneHole;
use candle_core::{DType, Device, Result, Tensor};
use half::bf16;

/// A buffer that many chunks fill at once.
pub(super) struct Parts<'a, T> {
    first: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Parts` is a `&mut [T]` that is given out in pieces; the contract of `part` keeps the
// pieces apart, and `T: Send` lets each piece move to another thread.
unsafe impl<T: Send> Send for Parts<'_, T> {}
// SAFETY: as above; sharing the handle gives nothing but disjoint exclusive pieces.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(super) fn new(all: &'a mut [T]) -> Self {
        Self { first: all.as_mut_ptr(), len: all.len(), owner: PhantomData }
    }

    /// Where element `index` lies, to be brought near.
    pub(super) fn address(&self, index: usize) -> *const T {
        self.first.wrapping_add(index)
    }

    /// The elements in `range`.
    ///
    /// # Safety
    ///
    /// No other part that is still in use may overlap `range`.
    #[expect(clippy::mut_from_ref, reason = "the contract makes the parts disjoint")]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside of the buffer");
        // SAFETY: the range is inside the buffer (checked above), which `owner` borrows
        // exclusively, and the caller promises that no live part overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

/// A vector of `len` elements that `fill` writes.
///
/// # Safety
///
/// `fill` must write every element (unless it panics).
pub(super) unsafe fn filled<T>(
    len: usize,
    fill: impl FnOnce(&Parts<'_, MaybeUninit<T>>),
) -> Vec<T> {
    let mut values: Vec<T> = Vec::with_capacity(len);
    fill(&unwritten(&mut values, len));
    // SAFETY: the caller promises that all elements are written.
    unsafe { written(values, len) }
}

/// `len` elements that an empty vector has room for.
fn unwritten<T>(values: &mut Vec<T>, len: usize) -> Parts<'_, MaybeUninit<T>> {
    Parts::new(&mut values.spare_capacity_mut()[..len])
}

/// The vector of [`unwritten`] elements.
///
/// # Safety
///
/// Every element must have been written since.
unsafe fn written<T>(mut values: Vec<T>, len: usize) -> Vec<T> {
    assert!(len <= values.capacity(), "more elements than there was room for");
    // SAFETY: the capacity holds `len` elements and the caller promises that all are written.
    unsafe { values.set_len(len) };
    values
}

/// What a kernel computes, in f32 or rounded to bf16.
pub(super) struct Results {
    len: usize,
    values: Values,
}

enum Values {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

/// [`Results`] while chunks fill them.
pub(super) enum ResultParts<'a> {
    F32(Parts<'a, MaybeUninit<f32>>),
    Bf16(Parts<'a, MaybeUninit<bf16>>),
}

/// The results of one chunk.
pub(super) enum ResultPart<'a> {
    F32(&'a mut [MaybeUninit<f32>]),
    Bf16(&'a mut [MaybeUninit<bf16>]),
}

impl ResultParts<'_> {
    /// The results in `range`.
    ///
    /// # Safety
    ///
    /// As [`Parts::part`].
    #[inline(always)]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> ResultPart<'_> {
        // SAFETY: the caller's promise is the one that either wants.
        unsafe {
            match self {
                Self::F32(all) => ResultPart::F32(all.part(range)),
                Self::Bf16(all) => ResultPart::Bf16(all.part(range)),
            }
        }
    }
}

impl Results {
    /// Room for `len` results: in bf16 if `dtype` is, else in f32.
    pub(super) fn new(len: usize, dtype: DType) -> Self {
        let values = match dtype {
            DType::BF16 => Values::Bf16(Vec::with_capacity(len)),
            _ => Values::F32(Vec::with_capacity(len)),
        };
        Self { len, values }
    }

    pub(super) fn parts(&mut self) -> ResultParts<'_> {
        match &mut self.values {
            Values::F32(all) => ResultParts::F32(unwritten(all, self.len)),
            Values::Bf16(all) => ResultParts::Bf16(unwritten(all, self.len)),
        }
    }

    /// The results as a tensor on the CPU.
    ///
    /// # Safety
    ///
    /// Every element must have been written through [`parts`](Self::parts).
    pub(super) unsafe fn into_tensor(self, shape: impl ShapeWithOneHole) -> Result<Tensor> {
        // SAFETY: the caller promises that all elements are written, of whichever type.
        unsafe {
            match self.values {
                Values::F32(all) => Tensor::from_vec(written(all, self.len), shape, &Device::Cpu),
                Values::Bf16(all) => Tensor::from_vec(written(all, self.len), shape, &Device::Cpu),
            }
        }
    }
}
