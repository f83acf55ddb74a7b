//! Fetching what comes next while something else is multiplied.
//!
//! All rows meet a part of a panel that fits in the first-level cache before any of them meets the
//! next. The fetching of that next part is spread over the whole time, or memory would rest while
//! all rows but the first are at work.

use super::super::cpu::Products;

/// Bytes of a part of a panel: with the next one, what stays in the first-level cache.
pub(super) const PART: usize = 16 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;

/// What is still to be fetched of the next part.
pub(super) struct Ahead {
    next: *const u8,
    end: *const u8,
    lines_at_a_time: usize,
}

impl Ahead {
    /// To be spread over `passes` through `part`, of which each fetches once per `step` bytes.
    /// Panels lie one behind the other, so what follows a panel's last part is the next panel.
    #[inline(always)]
    pub(super) fn of<T>(part: &[T], passes: usize, step: usize) -> Self {
        let next = part.as_ptr_range().end.cast::<u8>();
        let lines_at_a_time = step.div_ceil(LINE).div_ceil(passes.max(1));
        Self { next, end: next.wrapping_add(size_of_val(part)), lines_at_a_time }
    }

    #[inline(always)]
    pub(super) fn fetch<L: Products>(&mut self, l: L) {
        for _ in 0..self.lines_at_a_time {
            if self.next < self.end {
                l.prefetch(self.next);
                self.next = self.next.wrapping_add(LINE);
            }
        }
    }
}
