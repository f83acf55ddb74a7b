//! What this machine can do at most, measured with the instructions of the kernels' own level:
//! the figure beside which a kernel's speed says something.
//!
//! Each probe runs on the whole thread team for a short while and reports the best of a few runs,
//! since other work on the machine only ever makes it slower.

use std::hint::black_box;

use candle_core::Result;
use half::bf16;

use super::backend::cpu_level;
use super::cpu::{Kernel, LANES, Products};
use super::packed::buffer::Buffer;
use super::pool;

mod device;
mod rate;
#[cfg(target_arch = "x86_64")]
mod tiles;

pub use device::DeviceCeiling;
use rate::best_rate;

/// What the CPU can do at most: rates of the whole thread team.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Bytes read from memory in a second.
    pub read_bytes: f64,
    /// Floating point operations in a second: multiply and add of f32.
    pub f32_operations: f64,
    /// Floating point operations in a second, on pairs of bf16.
    pub bf16_operations: f64,
    /// Integer operations in a second, on groups of four bytes.
    pub int8_operations: f64,
}

/// Memory that the read probe walks over: more than any cache.
const READ_BYTES: usize = 512 << 20;
/// Independent chains of additions: more than latency times throughput.
const CHAINS: usize = 16;
/// Chains at a time where registers hold fewer vectors: they are smaller, so a vector is several
/// chains.
const FEW_CHAINS: usize = 4;
/// Steps of a chain in one run.
const STEPS: usize = 400_000;
/// How far ahead of its use memory is fetched, in bytes.
const AHEAD: usize = 4096;

impl Ceiling {
    /// Measures the rates, for about a second.
    ///
    /// # Errors
    ///
    /// No memory for the read probe.
    pub fn measure() -> Result<Self> {
        let operations = |which: Operation| {
            #[cfg(target_arch = "x86_64")]
            if let Some((operations, run)) = which.in_tiles().and_then(tiles::run) {
                return best_rate(operations, run);
            }
            let threads = pool::threads();
            best_rate(threads * STEPS * CHAINS * LANES * 2 * which.width(), || {
                pool::for_each_chunk(threads, |_| cpu_level().run(Chains { which }));
            })
        };
        let mut buffer = Buffer::zeroed(READ_BYTES)?;
        // Other than zero, so that every page is the buffer's own.
        buffer.bytes_mut().fill(1);
        let chunk = 1 << 20;
        let read_bytes = best_rate(READ_BYTES, || {
            pool::for_each_chunk(READ_BYTES / chunk, |i| {
                let bytes = &buffer.bytes()[i * chunk..(i + 1) * chunk];
                cpu_level().run(Read { bytes });
            });
        });
        Ok(Self {
            read_bytes,
            f32_operations: operations(Operation::F32),
            bf16_operations: operations(Operation::Bf16),
            int8_operations: operations(Operation::Int8),
        })
    }
}

#[derive(Clone, Copy)]
enum Operation {
    F32,
    Bf16,
    Int8,
}

impl Operation {
    /// Whether tile registers multiply bytes for it, or bf16; `None` where neither.
    #[cfg(target_arch = "x86_64")]
    fn in_tiles(self) -> Option<bool> {
        match self {
            Self::F32 => None,
            Self::Bf16 => Some(false),
            Self::Int8 => Some(true),
        }
    }

    /// Products in one lane.
    fn width(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

struct Chains {
    which: Operation,
}

impl Kernel for Chains {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        // As many at a time as the registers hold.
        if L::WIDE {
            self.some::<L, CHAINS>(l);
        } else {
            for _ in 0..CHAINS / FEW_CHAINS {
                self.some::<L, FEW_CHAINS>(l);
            }
        }
    }
}

impl Chains {
    #[inline(always)]
    fn some<L: Products, const COUNT: usize>(&self, l: L) {
        let (a, b) = (black_box(l.splat(1.0)), black_box(l.splat(1e-9)));
        let pairs = black_box(l.load_pairs(&[[bf16::ONE; 2]; LANES]));
        let pair = black_box(l.splat_pair([bf16::ONE; 2]));
        // Each step has weights of its own, and each chain a row: the same product twice is taken
        // out of the loop where it is an instruction of its own.
        let weights = black_box([[1; 4 * LANES]; 8]);
        let rows = black_box([l.splat_bytes([1; 4]); COUNT]);
        let mut floats = [l.splat(0.0); COUNT];
        let mut ints = [l.splat_int(0); COUNT];
        for step in 0..STEPS {
            l.barrier();
            let bytes = l.load_bytes(&weights[step % weights.len()]);
            for ((float, int), four) in floats.iter_mut().zip(&mut ints).zip(&rows) {
                match self.which {
                    Operation::F32 => *float = l.mul_add(a, b, *float),
                    Operation::Bf16 => *float = l.dot_pairs(*float, pairs, pair),
                    Operation::Int8 => *int = l.dot_small(*int, bytes, *four),
                }
            }
        }
        black_box((floats, ints));
    }
}

struct Read<'a> {
    bytes: &'a [u8],
}

impl Kernel for Read<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let mut sums = [l.load_bytes(&[0; 4 * LANES]); 4];
        for four in self.bytes.as_chunks::<{ 4 * LANES }>().0.as_chunks::<4>().0 {
            for (sum, line) in sums.iter_mut().zip(four) {
                l.prefetch(line.as_ptr().wrapping_add(AHEAD));
                *sum = l.or(*sum, l.load_bytes(line));
            }
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rates_are_numbers_above_zero() {
        let ceiling = Ceiling::measure().unwrap();
        let Ceiling { read_bytes, f32_operations, bf16_operations, int8_operations } = ceiling;
        for rate in [read_bytes, f32_operations, bf16_operations, int8_operations] {
            assert!(rate.is_finite() && rate > 0.0, "{ceiling:?}");
        }
    }
}
