//! Products of bf16 whose operands lie in rows, and not in tiles one behind the other.

use std::arch::asm;

use super::{Shape, TILE_ROWS, Tiles};

/// Some steps along K of bf16 products whose operands lie in rows of any length, for the rows of a [`Shape`] and
/// 32 columns.
pub(crate) struct RowSteps {
    /// Number of steps, at least one: 32 elements of K each.
    pub(crate) steps: usize,
    /// The left side's first row; a step's elements lie behind those of the step before.
    pub(crate) left: *const u8,
    /// Bytes from one of its rows to the next.
    pub(crate) left_row: usize,
    /// The right side's first row, pairs of elements of K for each column; sixteen rows for each step.
    pub(crate) right: *const u8,
    /// Bytes from one of its rows to the next.
    pub(crate) right_row: usize,
    /// Sums of the first row.
    pub(crate) sums: *mut f32,
    /// Bytes from sums of one row to those of the next.
    pub(crate) sums_row: usize,
    /// Whether sums begin at zero, instead of what is stored.
    pub(crate) fresh: bool,
}

impl Tiles {
    /// Up to two tiles of rows, against 32 columns.
    ///
    /// # Safety
    ///
    /// All that [`RowSteps`] tells of is readable for so many rows, sums writable.
    pub(crate) unsafe fn rows(&mut self, rows: usize, work: &RowSteps) {
        let first = rows.min(TILE_ROWS);
        let second = rows - first;
        self.shape(Shape { rows: [first, if second > 0 { second } else { first }], depth: 16 });
        // SAFETY: the shape was set; the caller's promise.
        unsafe {
            if second > 0 { Self::rows_two_by_two(work) } else { Self::rows_one_by_two(work) }
        }
    }

    /// Sixteen rows and a shape's second ones, which follow them.
    ///
    /// # Safety
    ///
    /// The registers have a shape of depth sixteen with sixteen first rows, and all that [`RowSteps`] tells of is
    /// readable, sums writable.
    unsafe fn rows_two_by_two(work: &RowSteps) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "test {fresh}, {fresh}",
                "jz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{sums} + {sums_row}]",
                "tileloadd tmm1, [{sums} + {sums_row} + 64]",
                "tileloadd tmm2, [{second_sums} + {sums_row}]",
                "tileloadd tmm3, [{second_sums} + {sums_row} + 64]",
                "3:",
                "tileloadd tmm4, [{left} + {left_row}]",
                "tileloadd tmm6, [{right} + {right_row}]",
                "tileloadd tmm7, [{right} + {right_row} + 64]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{second} + {left_row}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {left}, 64",
                "add {second}, 64",
                "add {right}, {right_step}",
                "dec {steps}",
                "jnz 3b",
                "tilestored [{sums} + {sums_row}], tmm0",
                "tilestored [{sums} + {sums_row} + 64], tmm1",
                "tilestored [{second_sums} + {sums_row}], tmm2",
                "tilestored [{second_sums} + {sums_row} + 64], tmm3",
                fresh = in(reg) usize::from(work.fresh),
                sums = in(reg) work.sums,
                second_sums = in(reg) work.sums.wrapping_byte_add(TILE_ROWS * work.sums_row),
                sums_row = in(reg) work.sums_row,
                left = inout(reg) work.left => _,
                second = inout(reg) work.left.wrapping_add(TILE_ROWS * work.left_row) => _,
                left_row = in(reg) work.left_row,
                right = inout(reg) work.right => _,
                right_row = in(reg) work.right_row,
                right_step = in(reg) TILE_ROWS * work.right_row,
                steps = inout(reg) work.steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// A shape's first rows.
    ///
    /// # Safety
    ///
    /// The registers have a shape of depth sixteen, and all that [`RowSteps`] tells of is readable, sums
    /// writable.
    unsafe fn rows_one_by_two(work: &RowSteps) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "test {fresh}, {fresh}",
                "jz 2f",
                "tilezero tmm0",
                "tilezero tmm1",
                "jmp 3f",
                "2:",
                "tileloadd tmm0, [{sums} + {sums_row}]",
                "tileloadd tmm1, [{sums} + {sums_row} + 64]",
                "3:",
                "tileloadd tmm4, [{left} + {left_row}]",
                "tileloadd tmm6, [{right} + {right_row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{right} + {right_row} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {left}, 64",
                "add {right}, {right_step}",
                "dec {steps}",
                "jnz 3b",
                "tilestored [{sums} + {sums_row}], tmm0",
                "tilestored [{sums} + {sums_row} + 64], tmm1",
                fresh = in(reg) usize::from(work.fresh),
                sums = in(reg) work.sums,
                sums_row = in(reg) work.sums_row,
                left = inout(reg) work.left => _,
                left_row = in(reg) work.left_row,
                right = inout(reg) work.right => _,
                right_row = in(reg) work.right_row,
                right_step = in(reg) TILE_ROWS * work.right_row,
                steps = inout(reg) work.steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
