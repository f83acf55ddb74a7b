//! Where the program's memory comes from.

use std::alloc::{GlobalAlloc, Layout, System};

use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use mimalloc::MiMalloc;

/// Bytes from which on a block comes from the system: more than the activations of most steps, and
/// less than a layer's part of most KV caches.
const FROM_SYSTEM: usize = 64 << 20;

/// mimalloc's option for how many milliseconds memory that nobody uses stays with the process; the
/// crate has no name for it.
const PURGE_DELAY: mi_option_t = 15;

/// A quarter of mimalloc's own delay. Threads begin to search at different places, so what requests
/// free within a delay is seldom what the next ones take: under load that is tens of MB, which come
/// and go with it. Steps of a large batch are slowed by less than 2 %: with every delay they clear
/// the pages of their activations once more.
const MILLISECONDS: std::ffi::c_long = 250;

/// Sets mimalloc's options, but for those that the environment sets (`MIMALLOC_*`).
pub(crate) fn configure() {
    // SAFETY: an option of this version; the program has one thread yet, and nobody reads it meanwhile.
    unsafe { mi_option_set_default(PURGE_DELAY, MILLISECONDS) };
}

/// mimalloc, which keeps the pages of activations instead of returning and clearing them at every
/// step, and the system for the largest blocks. A KV cache is zeros that may never be written:
/// those of the system take no memory before they are, while mimalloc clears memory that it kept.
pub(crate) struct Allocator;

/// Whether the system allocates blocks of `size` bytes.
const fn from_system(size: usize) -> bool {
    size >= FROM_SYSTEM
}

// SAFETY: every block is given back to the allocator that it came from, since the size alone says
// which one that is, and a block that changes sides is moved.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            if from_system(layout.size()) { System.alloc(layout) } else { MiMalloc.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe {
            if from_system(layout.size()) {
                System.alloc_zeroed(layout)
            } else {
                MiMalloc.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on to whom the block came from.
        unsafe {
            if from_system(layout.size()) {
                System.dealloc(block, layout);
            } else {
                MiMalloc.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise, passed on; where sides change, both blocks are valid for the
        // smaller size, and the old one is not used any more.
        unsafe {
            match (from_system(layout.size()), from_system(size)) {
                (true, true) => System.realloc(block, layout, size),
                (false, false) => MiMalloc.realloc(block, layout, size),
                _ => {
                    let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !new.is_null() {
                        new.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// Options are known by their place in a list, which another version may change.
    #[test]
    fn the_delay_is_where_it_is_looked_for() {
        // SAFETY: it is read, as at every block that mimalloc frees.
        let milliseconds = unsafe { libmimalloc_sys::mi_option_get(super::PURGE_DELAY) };
        assert_eq!(milliseconds, 1000, "mimalloc's own, and nobody has set it here");
    }

    #[test]
    fn blocks_that_change_sides_keep_their_content() {
        let mut block: Vec<u8> = (0..=255).collect();
        for size in [super::FROM_SYSTEM - 1, super::FROM_SYSTEM, super::FROM_SYSTEM + 4096] {
            block.reserve_exact(size - block.len());
            assert!(block.capacity() >= size && block.iter().copied().eq(0..=255));
        }
        block.shrink_to_fit();
        assert!(block.iter().copied().eq(0..=255));
        assert!(vec![0u8; super::FROM_SYSTEM].iter().step_by(4096).all(|byte| *byte == 0));
    }
}
