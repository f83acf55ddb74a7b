//! Counts what a piece of work allocates on its own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What work held at most, and its largest allocation, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) held: usize,
    pub(super) single: usize,
}

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static USED: Cell<Used> = const { Cell::new(Used { held: 0, single: 0 }) };
}

/// The system's allocator with a tally for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Adds to or takes from what the thread holds. The cells are gone when a thread ends.
fn count(bytes: isize) {
    if !COUNTS.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let held = HELD.get() + bytes;
    HELD.set(held);
    let used = USED.get();
    USED.set(Used {
        held: used.held.max(usize::try_from(held).unwrap_or(0)),
        single: used.single.max(usize::try_from(bytes).unwrap_or(0)),
    });
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there for a moment.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// What `work` gives, and what it used.
pub(super) fn of<T>(work: impl FnOnce() -> T) -> (T, Used) {
    HELD.set(0);
    USED.set(Used::default());
    COUNTS.set(true);
    let given = work();
    COUNTS.set(false);
    (given, USED.get())
}

#[test]
fn allocations_are_counted() {
    let ((), used) = of(|| drop((vec![0u8; 1000], vec![1u8; 500])));
    assert!((1500..2500).contains(&used.held) && used.single == 1000, "{used:?}");
}
