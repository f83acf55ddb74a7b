//! Tile registers (Intel AMX): eight of up to sixteen rows of 64 bytes, and products between them.
//!
//! Stable Rust has no intrinsics for them, so the instructions stand here in assembly. A tile of the
//! left side holds rows of activations, one of the right side sixteen columns of a packed panel:
//! its rows are pairs or groups of four along K, so panels of bf16 are read as they lie.
//!
//! An element of a result depends on its own row and column alone, never on how many rows a tile
//! has; the order of additions inside one instruction is the CPU's own, so all rows of a call,
//! even a single one, go through the same instructions in the same steps along K.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;

/// Assembly that asks for `{lines}` lines from `{next}` on, and leaves behind them there.
macro_rules! fetch_lines {
    ($prefetch:literal) => {
        concat!(
            "mov {line}, {lines}\n",
            "test {line}, {line}\n",
            "jz 5f\n",
            "4:\n",
            $prefetch,
            " [{next}]\n",
            "add {next}, 64\n",
            "dec {line}\n",
            "jnz 4b\n",
            "5:",
        )
    };
}

/// Steps of a product of two tiles of rows, those of the second from `$second` on, with two of columns.
macro_rules! two_by_two {
    ($product:literal, $right_step:literal, $work:expr, $second:expr, $second_rows:expr) => {
        asm!(
            "test {line}, {line}",
            "jz 2f",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{sums} + {panel_row}]",
            "tileloadd tmm1, [{sums} + {panel_row} + 64]",
            "tileloadd tmm2, [{sums} + {panel_row} + 4096]",
            "tileloadd tmm3, [{sums} + {panel_row} + 4160]",
            "3:",
            "tileloadd tmm4, [{left} + {row}]",
            "tileloadd tmm6, [{right} + {right_row}]",
            "tileloadd tmm7, [{right} + {right_row} + 64]",
            concat!($product, " tmm0, tmm4, tmm6"),
            "tileloadd tmm5, [{second} + {row}]",
            concat!($product, " tmm1, tmm4, tmm7"),
            concat!($product, " tmm2, tmm5, tmm6"),
            concat!($product, " tmm3, tmm5, tmm7"),
            fetch_lines!("prefetcht1"),
            "add {left}, 1024",
            "add {second}, {second_step}",
            concat!("add {right}, ", $right_step),
            "dec {steps}",
            "jnz 3b",
            "tilestored [{sums} + {panel_row}], tmm0",
            "tilestored [{sums} + {panel_row} + 64], tmm1",
            "tilestored [{sums} + {panel_row} + 4096], tmm2",
            "tilestored [{sums} + {panel_row} + 4160], tmm3",
            sums = in(reg) $work.sums,
            panel_row = in(reg) PANEL_ROW,
            row = in(reg) TILE_ROW,
            left = inout(reg) $work.left => _,
            second = inout(reg) $second => _,
            second_step = in(reg) $second_rows * TILE_ROW,
            right = inout(reg) $work.right => _,
            right_row = in(reg) $work.right_row,
            steps = inout(reg) $work.count => _,
            next = inout(reg) $work.fetch.next => _,
            lines = in(reg) $work.fetch.lines,
            line = inout(reg) usize::from(matches!($work.begin, Begin::Zero)) => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Steps of a product of a tile of rows with four of columns.
macro_rules! one_by_four {
    ($product:literal, $right_step:literal, $work:expr, $rows:expr) => {
        asm!(
            "cmp {line}, 1",
            "jb 2f",
            "ja 3f",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{sums} + {panel_row}]",
            "tileloadd tmm1, [{sums} + {panel_row} + 64]",
            "tileloadd tmm2, [{sums} + {panel_row} + 128]",
            "tileloadd tmm3, [{sums} + {panel_row} + 192]",
            "3:",
            "tileloadd tmm4, [{left} + {row}]",
            "tileloadd tmm6, [{right} + {right_row}]",
            concat!($product, " tmm0, tmm4, tmm6"),
            "tileloadd tmm7, [{right} + {right_row} + 64]",
            concat!($product, " tmm1, tmm4, tmm7"),
            "tileloadd tmm6, [{right} + {right_row} + 128]",
            concat!($product, " tmm2, tmm4, tmm6"),
            "tileloadd tmm7, [{right} + {right_row} + 192]",
            concat!($product, " tmm3, tmm4, tmm7"),
            fetch_lines!("prefetcht0"),
            "add {left}, {left_step}",
            concat!("add {right}, ", $right_step),
            "dec {steps}",
            "jnz 3b",
            "test {store}, {store}",
            "jz 6f",
            "tilestored [{sums} + {panel_row}], tmm0",
            "tilestored [{sums} + {panel_row} + 64], tmm1",
            "tilestored [{sums} + {panel_row} + 128], tmm2",
            "tilestored [{sums} + {panel_row} + 192], tmm3",
            "6:",
            store = in(reg) usize::from($work.store),
            sums = in(reg) $work.sums,
            panel_row = in(reg) PANEL_ROW,
            row = in(reg) TILE_ROW,
            left = inout(reg) $work.left => _,
            left_step = in(reg) $rows * TILE_ROW,
            right = inout(reg) $work.right => _,
            right_row = in(reg) $work.right_row,
            steps = inout(reg) $work.count => _,
            next = inout(reg) $work.fetch.next => _,
            lines = in(reg) $work.fetch.lines,
            line = inout(reg) $work.begin as usize => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

#[cfg(all(test, target_os = "linux"))]
mod emulated;
pub(crate) mod rows;

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile.
pub(crate) const TILE_ROW: usize = 64;
/// Bytes from a row of a panel, or of its sums, to the next: 64 columns of four bytes.
pub(crate) const PANEL_ROW: usize = 256;

/// Proof that the CPU has tiles with products of bf16 and of bytes, and that the operating system
/// lets this process use them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amx(());

impl Amx {
    pub(super) fn detect() -> Option<Self> {
        (in_cpu() && saved_by_system() && permitted()).then_some(Self(()))
    }
}

/// Whether the CPU has AMX-TILE, AMX-BF16 and AMX-INT8.
fn in_cpu() -> bool {
    const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
}

/// Whether the operating system keeps tiles and their configuration for each thread.
fn saved_by_system() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const TILES: u64 = 1 << 17 | 1 << 18;
    #[target_feature(enable = "xsave")]
    fn kept() -> u64 {
        // SAFETY: the register exists, as the caller has seen.
        unsafe { _xgetbv(0) }
    }
    // SAFETY: the bit says that the instruction is there.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { kept() } & TILES == TILES
}

/// Asks Linux for the permission that a process needs before it touches a tile. Threads that run
/// already have it from then on, too.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let answer: isize;
    // SAFETY: a system call that reads no memory; it overwrites `rcx` and `r11` beside its answer.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// How tiles 0 to 7 are cut: results in 0 to 3, the left side in 4 and 5, the right side in 6 and 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Rows of tiles 0, 1 and 4, and of tiles 2, 3 and 5: 1 to 16.
    pub(crate) rows: [usize; 2],
    /// Words of four bytes along K: 1 to 16.
    pub(crate) depth: usize,
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// A thread's tile registers. They are released when this is dropped, so that a change of threads
/// has no tiles to save.
pub(crate) struct Tiles {
    shape: Option<Shape>,
    /// Registers belong to a thread.
    here: PhantomData<*mut ()>,
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the instruction is there (`new` asks for the proof), and no value lives in a tile.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }
}

/// Lines that are asked for at each step, from an address on: into the second-level cache where
/// rows are more than sixteen, else into the first.
#[derive(Clone, Copy)]
pub(crate) struct Fetch {
    pub(crate) next: *const u8,
    pub(crate) lines: usize,
}

/// Some steps along K of products with a panel, for the rows of a [`Shape`]: 64 bytes of K each.
pub(crate) struct Steps {
    /// How many there are, at least one.
    pub(crate) count: usize,
    /// The left side's first sixteen rows, `[steps][rows][64 bytes]`.
    pub(crate) left: *const u8,
    /// The right side's first row, from the first column on.
    pub(crate) right: *const u8,
    /// Bytes from a row of a right tile to the next.
    pub(crate) right_row: usize,
    /// Sums of the first row from the first column on, rows 256 bytes apart: floats, or integers of 32 bits.
    pub(crate) sums: *mut f32,
    pub(crate) begin: Begin,
    /// Whether sums are stored afterwards: always, where there are two tiles of rows.
    pub(crate) store: bool,
    pub(crate) fetch: Fetch,
}

/// What sums begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Begin {
    /// What is stored.
    Stored = 0,
    Zero = 1,
    /// What is in the registers since the call before: only where there is one tile of rows.
    Kept = 2,
}

impl Tiles {
    /// The tile registers of this thread, not yet configured. The proof is asked for, not used.
    pub(crate) fn new(_: Amx) -> Self {
        Self { shape: None, here: PhantomData }
    }

    /// Configures the registers for `shape`, if they are not.
    pub(crate) fn shape(&mut self, shape: Shape) {
        if self.shape == Some(shape) {
            return;
        }
        let Shape { rows: [first, second], depth } = shape;
        assert!([first, second, depth].iter().all(|count| (1..=TILE_ROWS).contains(count)));
        let narrow = |count: usize| u8::try_from(count).expect("at most sixteen");
        let left = u16::from(narrow(4 * depth));
        let mut all = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        all.row_bytes[..8].copy_from_slice(&[64, 64, 64, 64, left, left, 64, 64]);
        let rows = [first, first, second, second, first, second, depth, depth];
        all.rows[..8].copy_from_slice(&rows.map(narrow));
        // SAFETY: the instruction is there; it reads 64 bytes, which say at most sixteen rows of at
        // most 64 bytes each.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const all, options(nostack, preserves_flags));
        }
        self.shape = Some(shape);
    }

    /// Products of bf16: sixteen rows and as many as the shape's second has, against 32 columns. The
    /// second rows' left side begins at `second`, laid out as that of the first. What a step reads of
    /// the right side is 4,096 bytes behind what the step before does.
    ///
    /// # Safety
    ///
    /// The registers have a shape with sixteen first rows, and all that [`Steps`] tells of is
    /// readable, sums writable.
    pub(crate) unsafe fn pairs_two_by_two(&mut self, work: &Steps, second: *const u8) {
        let rows = self.shape.map_or(0, |shape| shape.rows[1]);
        // SAFETY: the caller's promise.
        unsafe { two_by_two!("tdpbf16ps", "4096", work, second, rows) }
    }

    /// Products of bf16: as many rows as the shape has (the same in both), against 64 columns. Steps
    /// as in [`Tiles::pairs_two_by_two`].
    ///
    /// # Safety
    ///
    /// The registers have a shape, and all that [`Steps`] tells of is readable, sums writable.
    pub(crate) unsafe fn pairs_one_by_four(&mut self, work: &Steps) {
        let rows = self.shape.map_or(0, |shape| shape.rows[0]);
        // SAFETY: the caller's promise.
        unsafe { one_by_four!("tdpbf16ps", "4096", work, rows) }
    }

    /// Products of signed with unsigned bytes, whose sums are integers modulo 2^32, as
    /// [`Tiles::pairs_two_by_two`]. What a step reads of the right side is 256 bytes behind what the
    /// step before does.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn bytes_two_by_two(&mut self, work: &Steps, second: *const u8) {
        let rows = self.shape.map_or(0, |shape| shape.rows[1]);
        // SAFETY: the caller's promise.
        unsafe { two_by_two!("tdpbsud", "256", work, second, rows) }
    }

    /// As [`Tiles::bytes_two_by_two`], for rows and columns as in [`Tiles::pairs_one_by_four`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn bytes_one_by_four(&mut self, work: &Steps) {
        let rows = self.shape.map_or(0, |shape| shape.rows[0]);
        // SAFETY: the caller's promise.
        unsafe { one_by_four!("tdpbsud", "256", work, rows) }
    }

    /// Sums of products of signed bytes, of one tile of the left side with four neighbours of the right side:
    /// `sums [4][rows][16]`. Rows of the left side are `left_row` bytes apart, those of the right side 256.
    ///
    /// # Safety
    ///
    /// The registers have a shape with as many first as second rows, all tiles of its depth are
    /// readable, and 64 rows of sums writable.
    pub(crate) unsafe fn bytes_by_four(
        &mut self,
        left: *const u8,
        left_row: usize,
        right: *const u8,
        sums: *mut i32,
    ) {
        let rows = self.shape.map_or(0, |shape| shape.rows[0]);
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "tileloadd tmm4, [{left} + {left_row}]",
                "tileloadd tmm6, [{right} + {panel_row}]",
                "tilezero tmm0",
                "tdpbssd tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{right} + {panel_row} + 64]",
                "tilezero tmm1",
                "tdpbssd tmm1, tmm4, tmm7",
                "tileloadd tmm6, [{right} + {panel_row} + 128]",
                "tilezero tmm2",
                "tdpbssd tmm2, tmm4, tmm6",
                "tileloadd tmm7, [{right} + {panel_row} + 192]",
                "tilezero tmm3",
                "tdpbssd tmm3, tmm4, tmm7",
                "tilestored [{sums} + {row}], tmm0",
                "add {sums}, {tile}",
                "tilestored [{sums} + {row}], tmm1",
                "add {sums}, {tile}",
                "tilestored [{sums} + {row}], tmm2",
                "add {sums}, {tile}",
                "tilestored [{sums} + {row}], tmm3",
                left = in(reg) left,
                right = in(reg) right,
                left_row = in(reg) left_row,
                panel_row = in(reg) PANEL_ROW,
                row = in(reg) TILE_ROW,
                sums = inout(reg) sums => _,
                tile = in(reg) rows * TILE_ROW,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }

    /// Multiplies as fast as the registers can, four tiles each step, for the ceiling.
    pub(crate) fn multiply_only(&mut self, steps: usize, bytes: bool) {
        self.shape(Shape { rows: [TILE_ROWS; 2], depth: 16 });
        // SAFETY: the registers have a shape; no memory is touched.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "tilezero tmm4",
                "tilezero tmm5",
                "tilezero tmm6",
                "tilezero tmm7",
                "test {bytes}, {bytes}",
                "jnz 3f",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 2b",
                "jmp 4f",
                "3:",
                "tdpbssd tmm0, tmm4, tmm6",
                "tdpbssd tmm1, tmm4, tmm7",
                "tdpbssd tmm2, tmm5, tmm6",
                "tdpbssd tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 3b",
                "4:",
                bytes = in(reg) usize::from(bytes),
                steps = inout(reg) steps.max(1) => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem),
            );
        }
    }
}
