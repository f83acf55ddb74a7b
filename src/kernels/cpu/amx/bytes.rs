//! Products of signed with unsigned bytes whose operands lie in blocks, and not in tiles one behind the other.

use std::arch::asm;

use super::{Fetch, PANEL_ROW, Shape, TILE_ROW, TILE_ROWS, Tiles};

/// Sums of 32 rows and 32 columns: tiles `[rows from 0, from 16][columns from 0, from 16]`, each `[16][16]`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ByteSums(pub(crate) [[[[i32; 16]; TILE_ROWS]; 2]; 2]);

impl ByteSums {
    pub(crate) const ZERO: Self = Self([[[[0; 16]; TILE_ROWS]; 2]; 2]);
}

/// Some steps along K of products of bytes, for 32 columns.
pub(crate) struct ByteSteps {
    /// Number of steps, at least one: 32 elements of K each.
    pub(crate) steps: usize,
    /// The left side's first row, signed.
    pub(crate) left: *const u8,
    /// Bytes from one of its rows to the next.
    pub(crate) left_row: usize,
    /// Bytes from what a step reads of a row to what the next one does.
    pub(crate) left_step: usize,
    /// The right side's first row, unsigned: four elements of K for each column. Rows are 256 bytes apart, eight for
    /// each step.
    pub(crate) right: *const u8,
    /// Bytes from a step's first row to the next one's.
    pub(crate) right_step: usize,
    /// Lines that are asked for at each step, into the first-level cache.
    pub(crate) fetch: Fetch,
}

impl Tiles {
    /// Sums of products of `rows` rows, 1 to 32; those of further rows are any numbers.
    ///
    /// # Safety
    ///
    /// All that [`ByteSteps`] tells of is readable for so many rows.
    pub(crate) unsafe fn bytes_two_by_two(
        &mut self,
        rows: usize,
        work: &ByteSteps,
        sums: &mut ByteSums,
    ) {
        let first = rows.min(TILE_ROWS);
        let second = rows - first;
        // Without second rows the first ones are taken again.
        let (second, behind) = if second > 0 { (second, first) } else { (first, 0) };
        self.shape(Shape { rows: [first, second], depth: 8 });
        // SAFETY: the shape was set, of depth eight; the caller's promise. Sums have room for sixteen rows.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{left} + {left_row}]",
                "tileloadd tmm6, [{right} + {panel_row}]",
                "tileloadd tmm7, [{right} + {panel_row} + 64]",
                "tdpbsud tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{second} + {left_row}]",
                "tdpbsud tmm1, tmm4, tmm7",
                "tdpbsud tmm2, tmm5, tmm6",
                "tdpbsud tmm3, tmm5, tmm7",
                fetch_lines!("prefetcht0"),
                "add {left}, {left_step}",
                "add {second}, {left_step}",
                "add {right}, {right_step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{sums} + {row}], tmm0",
                "tilestored [{sums} + {row} + 1024], tmm1",
                "tilestored [{sums} + {row} + 2048], tmm2",
                "tilestored [{sums} + {row} + 3072], tmm3",
                sums = in(reg) &raw mut *sums,
                row = in(reg) TILE_ROW,
                left = inout(reg) work.left => _,
                left_row = in(reg) work.left_row,
                left_step = in(reg) work.left_step,
                second = inout(reg) work.left.wrapping_add(behind * work.left_row) => _,
                right = inout(reg) work.right => _,
                right_step = in(reg) work.right_step,
                panel_row = in(reg) PANEL_ROW,
                steps = inout(reg) work.steps => _,
                next = inout(reg) work.fetch.next => _,
                lines = in(reg) work.fetch.lines,
                line = out(reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
