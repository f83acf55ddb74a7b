//! `x [M, K] * weight [N, K]^T` on packed weights, with what stands around it in a layer: biases,
//! several matrices on the same input, a residual sum, a gated pair.
//!
//! Each output element is one chain of additions along K in one lane, the same chain in every tile
//! shape, so an output row is equal to the bit whether it is computed alone or among 512 others.
//! One call is one region of the thread team: panels of 64 columns (and blocks of rows, if there
//! are many) are its chunks.
//!
//! Tiles that keep a block of the result in registers: Goto and van de Geijn, "Anatomy of
//! High-Performance Matrix Multiplication", 2008.

use candle_core::{CpuStorage, Device, Layout, Result, Storage, Tensor, bail};

use super::backend::cpu_level;
use super::cpu::{LANES, Level};
use super::packed::PackedMatrix;
use super::packed::formats::PANEL;
use super::pointwise::Gating;
use super::storage;

use self::activations::{Activations, Form};
pub use self::device::{DeviceLayer, device_linear_add, device_linear_each, device_linear_gated};
use self::region::{Finish, Job};

mod activations;
mod ahead;
mod blocks;
mod dense;
mod device;
mod finish;
mod region;
#[cfg(test)]
mod tests;

/// Results of one row and one panel, before what comes after the product.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums([[f32; LANES]; PANEL / LANES]);

/// A weight `[N, K]` and, if there is one, its bias `[N]`.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// The weight.
    pub matrix: &'a PackedMatrix,
    /// What is added to each output row.
    pub bias: Option<&'a [f32]>,
}

/// `x [.., K]` in f32 times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]`.
pub fn linear(x: &Tensor, layer: Layer<'_>) -> Result<Tensor> {
    let [y] = linear_each(x, [layer])?;
    Ok(y)
}

/// Several layers on the same input.
pub fn linear_each<const N: usize>(x: &Tensor, layers: [Layer<'_>; N]) -> Result<[Tensor; N]> {
    let outputs = linear_at(cpu_level(), x, &layers.map(|layer| (layer, Finish::Plain)))?;
    Ok(outputs.try_into().expect("one output per layer"))
}

/// `residual + factor * linear(x)`, both `[.., N]`.
pub fn linear_add(x: &Tensor, layer: Layer<'_>, residual: &Tensor, factor: f32) -> Result<Tensor> {
    linear_add_at(cpu_level(), x, layer, residual, factor)
}

fn linear_add_at(
    level: Level,
    x: &Tensor,
    layer: Layer<'_>,
    residual: &Tensor,
    factor: f32,
) -> Result<Tensor> {
    let outer = residual.dims().split_last().map(|(_, outer)| outer);
    if outer != x.dims().split_last().map(|(_, outer)| outer)
        || residual.dims().last() != Some(&layer.matrix.rows())
    {
        let n = layer.matrix.rows();
        bail!("linear_add: {:?} x {n} outputs and {:?} differ", x.dims(), residual.dims());
    }
    with_floats(residual, |rows| {
        let mut outputs = linear_at(level, x, &[(layer, Finish::Add { rows, factor })])?;
        Ok(outputs.remove(0))
    })
}

/// What `gate(x)` and `up(x)` make, commonly `activation(gate(x)) * up(x)`.
pub fn linear_gated(x: &Tensor, gating: Gating, gate: Layer<'_>, up: Layer<'_>) -> Result<Tensor> {
    linear_gated_at(cpu_level(), x, gating, gate, up)
}

fn linear_gated_at(
    level: Level,
    x: &Tensor,
    gating: Gating,
    gate: Layer<'_>,
    up: Layer<'_>,
) -> Result<Tensor> {
    check(up, x)?;
    if gate.matrix.rows() != up.matrix.rows() {
        let (gate, up) = (gate.matrix.rows(), up.matrix.rows());
        bail!("linear_gated: gate and up have {gate} and {up} output features");
    }
    let mut outputs = linear_at(level, x, &[(gate, Finish::Gated { gating, up })])?;
    Ok(outputs.remove(0))
}

fn check(layer: Layer<'_>, x: &Tensor) -> Result<()> {
    let Layer { matrix, bias } = layer;
    let Some(k) = x.dims().last() else { bail!("linear: a scalar has no rows") };
    if *k != matrix.columns() {
        bail!("linear: the input has {k} features, the weight {}", matrix.columns());
    }
    if let Some(bias) = bias.filter(|bias| bias.len() != matrix.rows()) {
        bail!("linear: {} biases for {} output features", bias.len(), matrix.rows());
    }
    Ok(())
}

/// One region: all layers on `x`.
fn linear_at(level: Level, x: &Tensor, layers: &[(Layer<'_>, Finish<'_>)]) -> Result<Vec<Tensor>> {
    for (layer, _) in layers {
        check(*layer, x)?;
    }
    let outer = &x.dims()[..x.dims().len() - 1];
    let m = outer.iter().product();
    let k = x.dims()[outer.len()];
    with_floats(x, |rows| {
        let mut activations = Activations::new(level, rows, m, k);
        for (layer, finish) in layers {
            activations.prepare(Form::of(layer.matrix.kind()));
            if let Finish::Gated { up, .. } = finish {
                activations.prepare(Form::of(up.matrix.kind()));
            }
        }
        let mut outputs: Vec<Vec<f32>> =
            layers.iter().map(|(layer, _)| Vec::with_capacity(m * layer.matrix.rows())).collect();
        let jobs: Vec<Job<'_>> = layers
            .iter()
            .zip(&mut outputs)
            .map(|((layer, finish), output)| Job::new(*layer, *finish, output, m))
            .collect();
        region::run(level, &activations, &jobs);
        layers
            .iter()
            .zip(outputs)
            .map(|((layer, _), mut output)| {
                let n = layer.matrix.rows();
                // SAFETY: the capacity is there, and the region has written all rows and columns.
                unsafe { output.set_len(m * n) };
                Tensor::from_vec(output, [outer, &[n]].concat(), &Device::Cpu)
            })
            .collect()
    })
}

/// Hands the elements of a contiguous f32 tensor on the CPU to `then`.
fn with_floats<T>(x: &Tensor, then: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    let (storage, layout) = x.storage_and_layout();
    let cpu = cpu_storage(&storage)?;
    then(floats(cpu, layout)?)
}

fn cpu_storage(storage: &Storage) -> Result<&CpuStorage> {
    match storage {
        Storage::Cpu(cpu) => Ok(cpu),
        _ => bail!("linear: packed weights are multiplied on the CPU"),
    }
}

fn floats<'a>(cpu: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    storage::contiguous::<f32>("linear", cpu, layout)
}
