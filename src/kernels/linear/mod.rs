//! `x [M, K] * weight [N, K]^T` on packed weights, with what stands around it in a layer: biases,
//! several matrices on the same input, a residual sum, a gated pair.
//!
//! Each output element is one chain of additions along K, in one lane or one place of a tile
//! register, and the same chain in every tile shape: an output row is equal to the bit whether it
//! is computed alone or among 512 others. One call is one region of the thread team: panels of 64
//! columns (and blocks of rows, if there are many) are its chunks.
//!
//! Tiles that keep a block of the result in registers: Goto and van de Geijn, "Anatomy of
//! High-Performance Matrix Multiplication", 2008.

use candle_core::{DType, Result, Tensor};

pub(super) use self::args::Elements;
pub use self::args::{DeviceLayer, DeviceNorm, DeviceWeight, Layer};
pub use self::device::{
    device_input_type, device_linear_add, device_linear_each, device_linear_gated,
    device_normed_linear_each, device_normed_linear_gated,
};
use self::job::Finish;
use super::backend::cpu_level;
use super::pointwise::Gating;

mod activations;
mod ahead;
mod args;
#[cfg(target_arch = "x86_64")]
mod block_tiles;
mod blocks;
mod cpu;
#[cfg_attr(not(feature = "cuda"), path = "no_cublas.rs")]
mod cublas;
pub(super) mod cuda;
mod dense;
mod device;
mod finish;
pub(super) mod form;
mod job;
pub(super) mod packed;
#[cfg(target_arch = "x86_64")]
mod pair_tiles;
pub mod portable;
mod region;
mod scaled_rows;
#[cfg(target_arch = "x86_64")]
mod scaled_tiles;
#[cfg(test)]
mod tests;
mod twelve_bits;
mod unpacked;

/// `x [.., K]` in f32, or in its [`input_type`], times the transpose of `weight [N, K]`, plus
/// `bias [N]`: `[.., N]`.
pub fn linear(x: &Tensor, layer: Layer<'_>) -> Result<Tensor> {
    let [y] = linear_each(x, [layer])?;
    Ok(y)
}

/// The outputs of several layers on the same input.
pub fn linear_each<const N: usize>(x: &Tensor, layers: [Layer<'_>; N]) -> Result<[Tensor; N]> {
    let outputs = cpu::linear(cpu_level(), x, &layers.map(|layer| (layer, Finish::Plain)))?;
    Ok(outputs.try_into().expect("one output per layer"))
}

/// `residual + factor * linear(x)`, both `[.., N]`.
pub fn linear_add(x: &Tensor, layer: Layer<'_>, residual: &Tensor, factor: f32) -> Result<Tensor> {
    cpu::linear_add(cpu_level(), x, layer, residual, factor)
}

/// The gated outputs of `gate` and `up`, commonly `activation(gate(x)) * up(x)`.
pub fn linear_gated(x: &Tensor, gating: Gating, gate: Layer<'_>, up: Layer<'_>) -> Result<Tensor> {
    linear_gated_as(DType::F32, x, gating, gate, up)
}

/// As [`linear_gated`], rounded to a type.
pub fn linear_gated_as(
    dtype: DType,
    x: &Tensor,
    gating: Gating,
    gate: Layer<'_>,
    up: Layer<'_>,
) -> Result<Tensor> {
    cpu::linear_gated(cpu_level(), x, gating, gate, up, dtype)?.to_dtype(dtype)
}

/// `y = down(linear_gated(x, gating, gate, up))` of `[gate, up, down]`, or `residual + factor * y`.
pub fn gated_mlp(
    x: &Tensor,
    gating: Gating,
    layers: [Layer<'_>; 3],
    residual: Option<(&Tensor, f32)>,
) -> Result<Tensor> {
    cpu::gated_mlp(cpu_level(), x, gating, layers, residual)
}

/// The type in which a layer is best given rows. It gives the same bits for f32 as for what these
/// are rounded to.
pub fn input_type(layer: Layer<'_>) -> DType {
    cpu::input_type(cpu_level(), layer.matrix)
}
