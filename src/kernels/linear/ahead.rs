//! Fetching what comes next while something else is multiplied.
//!
//! All rows meet a part of a panel that fits in the first-level cache before any of them meets the
//! next. The fetching of that next part is spread over the whole time, or memory would rest while
//! all rows but the first are at work.

use std::ops::Range;

use crate::cpu::{LANES, Products, nearest_alone, open_pages};
use crate::packed::formats::PANEL;

/// Bytes of a part of a panel: with the next one, what stays in the first-level cache.
pub(super) const PART: usize = 16 << 10;
/// As many rows as share one tile at every level: a part is read once then. A tile of so few behind many others
/// fetches as small a share.
const FEW: usize = 2;
/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// What is still to be fetched of the next part.
pub(super) struct Ahead {
    next: *const u8,
    end: *const u8,
    lines_each_step: usize,
    rows: usize,
    /// Whether what is read once goes to the nearest cache alone.
    nearest_alone: bool,
}

impl Ahead {
    /// `next`, as far as it is a part, to be spread over all `rows` that meet the part before it,
    /// which goes `step` bytes at a time.
    #[inline(always)]
    pub(super) fn of(next: &[u8], rows: usize, step: usize) -> Self {
        Self::of_part(next, PART, rows, step)
    }

    /// As [`Self::of`], for parts of `part` bytes.
    #[inline(always)]
    pub(super) fn of_part(next: &[u8], part: usize, rows: usize, step: usize) -> Self {
        let next = &next[..next.len().min(part)];
        let Range { start, end } = next.as_ptr_range();
        open_pages(start.wrapping_add(part), next.len());
        let lines_each_step = step.div_ceil(LINE);
        Self { next: start, end, lines_each_step, rows, nearest_alone: nearest_alone() }
    }

    /// Lines that a tile of `rows` rows and `vectors` vectors of columns fetches at each step: its
    /// share of the work.
    #[inline(always)]
    pub(super) fn share(&self, rows: usize, vectors: usize) -> usize {
        (self.lines_each_step * rows * vectors * LANES).div_ceil(self.rows * PANEL)
    }

    /// Fetches `lines` lines for a tile of `rows` rows.
    #[inline(always)]
    pub(super) fn fetch<L: Products>(&mut self, l: L, lines: usize, rows: usize) {
        for _ in 0..lines {
            if self.next < self.end {
                if rows <= FEW && self.nearest_alone {
                    l.prefetch_once(self.next);
                } else {
                    l.prefetch(self.next);
                }
                self.next = self.next.wrapping_add(LINE);
            }
        }
    }

    /// Leaves it to the caller to fetch `lines` lines at each of `steps` steps, or what is left:
    /// where they begin, and how many at each step.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn take(&mut self, steps: usize, lines: usize) -> (*const u8, usize) {
        let left = self.end.addr().saturating_sub(self.next.addr()).div_ceil(LINE);
        let lines = lines.min(left.div_ceil(steps));
        let first = self.next;
        self.next = first.wrapping_add(lines * steps * LINE);
        (first, lines)
    }
}
