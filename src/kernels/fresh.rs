//! Output buffers of CPU kernels: allocated but not zeroed, and handed to parallel chunks in parts
//! that don't overlap.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

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

/// A vector of `len` floats that `fill` writes.
///
/// # Safety
///
/// `fill` must write every element (unless it panics).
pub(super) unsafe fn filled(
    len: usize,
    fill: impl FnOnce(&Parts<'_, MaybeUninit<f32>>),
) -> Vec<f32> {
    let mut values: Vec<f32> = Vec::with_capacity(len);
    fill(&Parts::new(&mut values.spare_capacity_mut()[..len]));
    // SAFETY: the capacity holds `len` elements and the caller promises that all are written.
    unsafe { values.set_len(len) };
    values
}
