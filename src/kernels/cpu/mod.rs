//! One instruction set behind one vocabulary: sixteen f32 lanes.
//!
//! A kernel is written once, generic over `Lanes`, and compiled for every [`Level`]. A level's
//! token (such as `Avx512`) can only be made by asking the CPU, so holding one proves that its
//! instructions exist. All levels have the same lane count; they may differ in rounding (fused or
//! separate multiply and add), never in which elements meet in which order within a level.
//!
//! A level may have tile registers beside its lanes (`amx`), which products with packed weights and attention
//! ask for.
//!
//! Shape of the idea: the vector trait of memchr, and the token types of pulp.

pub(super) use caches::{nearest_alone, open_pages};
pub(super) use lanes::{Element, Kernel, LANES, Lanes, Products, load_tail};
pub use level::Level;

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod caches;
mod lanes;
mod level;
pub(super) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod products;
mod scalar;
#[cfg(test)]
mod tests;
