//! Large memory on large pages: reading it then takes few address translations, and the hardware's
//! prefetch doesn't stop every 4 KiB.

/// Asks the system to put the whole large pages inside of `memory` on such pages, from when they
/// are first touched. Only a wish: where it can't be met nothing changes.
#[cfg(target_os = "linux")]
pub fn ask_for<T>(memory: &[T]) {
    use std::ffi::{c_int, c_void};

    const LARGE: usize = 2 << 20;
    const MADV_HUGEPAGE: c_int = 14;
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    let first = memory.as_ptr() as usize;
    let (start, end) =
        (first.next_multiple_of(LARGE), (first + size_of_val(memory)) & !(LARGE - 1));
    if start < end {
        let skipped = start - first;
        // SAFETY: the range lies inside of `memory`, and this advice changes no content and no
        // access right.
        unsafe {
            madvise(
                memory.as_ptr().cast_mut().cast::<u8>().add(skipped).cast(),
                end - start,
                MADV_HUGEPAGE,
            )
        };
    }
}

/// Does nothing: other systems decide about large pages themselves.
#[cfg(not(target_os = "linux"))]
pub fn ask_for<T>(_: &[T]) {}
