//! One instruction set behind one vocabulary: sixteen f32 lanes.
//!
//! A kernel is written once, generic over `Lanes`, and compiled for every [`Level`]. A level's
//! token (such as `Avx512`) can only be made by asking the CPU, so holding one proves that its
//! instructions exist. All levels have the same lane count; they may differ in rounding (fused or
//! separate multiply and add), never in which elements meet in which order within a level.
//!
//! Shape of the idea: the vector trait of memchr, and the token types of pulp.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use half::{bf16, f16};

pub(super) use products::Products;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod products;
mod scalar;
#[cfg(test)]
mod tests;

/// f32 lanes of a vector, on every level.
pub(super) const LANES: usize = 16;

/// A CPU instruction set that this machine has.
#[derive(Clone, Copy, Debug)]
pub struct Level(Set);

#[derive(Clone, Copy, Debug)]
enum Set {
    Scalar(scalar::Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(avx512::Avx512<true>),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
}

/// Environment variable that picks a lower level than the CPU offers.
const OVERRIDE: &str = "SCONCE_KERNELS";
/// Its value for plain candle operations instead of our own, as on devices without any.
const PORTABLE: &str = "portable";
/// What its value starts with for CUDA kernels on the host; the path of their library follows.
const CUDA_ON_HOST: &str = "cuda-on-host:";

fn not_a_level(wanted: &str) -> bool {
    wanted == PORTABLE || wanted.starts_with(CUDA_ON_HOST)
}

impl Level {
    /// Plain Rust, on every machine: what the other levels are tested against.
    pub fn scalar() -> Self {
        Self(Set::Scalar(scalar::Scalar))
    }

    /// All levels of this machine, slowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::scalar()];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(avx2::Avx2::detect().map(|t| Self(Set::Avx2(t))));
            levels.extend(avx512::Avx512::detect().map(|t| Self(Set::Avx512(t))));
            levels.extend(avx512::Avx512::detect().map(|t| Self(Set::Avx512Vnni(t))));
        }
        #[cfg(target_arch = "aarch64")]
        levels.extend(neon::Neon::detect().map(|t| Self(Set::Neon(t))));
        levels
    }

    /// The level all operations use: the best of this machine, or the one that the environment
    /// variable `SCONCE_KERNELS` names. Decided at the first call.
    pub fn current() -> Self {
        static CURRENT: OnceLock<Level> = OnceLock::new();
        *CURRENT.get_or_init(|| Self::choose(std::env::var(OVERRIDE).ok().as_deref()))
    }

    /// Whether the environment asks for plain candle operations, at least where it asks for
    /// nothing better.
    pub(super) fn portable_asked() -> bool {
        static ASKED: OnceLock<bool> = OnceLock::new();
        *ASKED.get_or_init(|| std::env::var(OVERRIDE).is_ok_and(|wanted| not_a_level(&wanted)))
    }

    /// The library of CUDA kernels for the host that the environment asks for.
    pub(super) fn cuda_library() -> Option<&'static str> {
        static PATH: OnceLock<Option<String>> = OnceLock::new();
        let path = || Some(std::env::var(OVERRIDE).ok()?.strip_prefix(CUDA_ON_HOST)?.to_owned());
        PATH.get_or_init(path).as_deref()
    }

    fn choose(wanted: Option<&str>) -> Self {
        let available = Self::available();
        let best = available[available.len() - 1];
        let Some(wanted) = wanted.filter(|wanted| !not_a_level(wanted)) else { return best };
        available.iter().copied().find(|level| level.name() == wanted).unwrap_or_else(|| {
            let names: Vec<&str> = available.iter().map(|level| level.name()).collect();
            tracing::warn!(
                "{OVERRIDE}={wanted} is not available here (one of {}); using {}",
                names.join(", "),
                best.name()
            );
            best
        })
    }

    /// As `SCONCE_KERNELS` spells it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Scalar(_) => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni(_) => "avx512vnni",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
        }
    }

    /// Runs a kernel with this level's instructions.
    pub(super) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            Set::Scalar(lanes) => kernel.run(lanes),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(lanes) => lanes.run(kernel),
        }
    }
}

/// Work that is compiled once per level. Mark `run` and all it calls `#[inline(always)]`, so that
/// the level's instructions reach it, and keep closures out of its loops.
pub(super) trait Kernel {
    fn run<L: Products>(self, lanes: L);
}

/// What a level can do with sixteen f32 lanes.
pub(super) trait Lanes: Copy {
    /// Sixteen lanes.
    type V: Copy;
    /// Rows of the left side in a product tile: as many as the registers hold.
    const WIDE: bool;

    /// Runs a part of a kernel as a function of its own, with this level's instructions: for loops
    /// that many places use, which would be compiled for each of them otherwise.
    fn call<K: Kernel>(self, part: K);
    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V;
    fn load_f16(self, x: &[f16; LANES]) -> Self::V;
    fn load_i8(self, x: &[i8; LANES]) -> Self::V;
    /// To bf16, ties to even; NaN stays NaN.
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES];
    /// To f16, ties to even; NaN stays NaN.
    fn narrow_f16(self, v: Self::V) -> [f16; LANES];
    /// To the nearest integer, ties to even, within -128..=127; of NaN, any.
    fn narrow_i8(self, v: Self::V) -> [i8; LANES];
    /// # Safety
    ///
    /// Sixteen floats are writable at `out`.
    unsafe fn store_at(self, v: Self::V, out: *mut f32);
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; LANES]) {
        // SAFETY: the reference covers sixteen floats.
        unsafe { self.store_at(v, out.as_mut_ptr()) }
    }
    /// As `store`, to memory that holds nothing yet.
    #[inline(always)]
    fn write(self, v: Self::V, out: &mut [MaybeUninit<f32>; LANES]) {
        // SAFETY: the reference covers sixteen floats, and a float may be written to each.
        unsafe { self.store_at(v, out.as_mut_ptr().cast()) }
    }
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger one; `b` where either is NaN, on x86, and NaN elsewhere or `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// 2 to the power of integers in -126..=127.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `v`, but 0 where `x` is less than `bound`.
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V;
    /// Asks for the cache line at `at` to be brought near; any address will do.
    #[inline(always)]
    fn prefetch<T>(self, _at: *const T) {}
    /// Sum of all lanes: `i` and `i + 8` first, then 4, 2, 1 apart.
    fn sum(self, v: Self::V) -> f32;
    /// Largest lane.
    fn largest(self, v: Self::V) -> f32;
    /// Lane `i` of vector `j` becomes lane `j` of vector `i`.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut from = [[0.0f32; LANES]; LANES];
        for (row, out) in rows.iter().zip(&mut from) {
            self.store(*row, out);
        }
        let mut columns = rows;
        for (j, column) in columns.iter_mut().enumerate() {
            let mut lanes = [0.0; LANES];
            for (lane, row) in lanes.iter_mut().zip(&from) {
                *lane = row[j];
            }
            *column = self.load(&lanes);
        }
        columns
    }
}

/// A stored element that widens to f32 exactly.
pub(super) trait Element: Copy + Default + Send + Sync {
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V;
    /// Rounds to nearest, ties to even.
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES];
}

impl Element for f32 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        let mut out = [0.0; LANES];
        lanes.store(v, &mut out);
        out
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load_bf16(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        lanes.narrow_bf16(v)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load_f16(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        lanes.narrow_f16(v)
    }
}

/// The first elements of a vector, zeros after them; `x` holds less than sixteen.
#[inline(always)]
pub(super) fn load_tail<L: Lanes, E: Element>(lanes: L, x: &[E]) -> L::V {
    let mut padded = [E::default(); LANES];
    padded[..x.len()].copy_from_slice(x);
    E::load(lanes, &padded)
}
