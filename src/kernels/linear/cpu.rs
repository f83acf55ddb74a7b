//! Products with packed weights: from a call's tensors to a region of the thread team.

use std::mem::MaybeUninit;

use candle_core::{DType, Result, Tensor, bail};
use half::bf16;

use super::activations::{Activations, Form, Rows, TILE_STEP};
use super::args::Layer;
use super::job::{Finish, Job, Output};
use super::region;
use crate::cpu::Level;
use crate::fresh::{Parts, Results, filled};
use crate::packed::PackedMatrix;
use crate::pointwise::Gating;
use crate::storage::read;

const NAME: &str = "linear";

/// `residual + factor * linear(x)` by the kernels of a level.
pub(super) fn linear_add(
    level: Level,
    x: &Tensor,
    layer: Layer<'_>,
    residual: &Tensor,
    factor: f32,
) -> Result<Tensor> {
    check_residual(x, layer, residual)?;
    let residual = read(NAME, residual);
    let rows = residual.contiguous()?;
    Ok(linear_as(DType::F32, level, x, &[(layer, Finish::Add { rows, factor })])?.remove(0))
}

/// The gated outputs of two layers by the kernels of a level: in bf16 if `dtype` is, else in f32.
pub(super) fn linear_gated(
    level: Level,
    x: &Tensor,
    gating: Gating,
    gate: Layer<'_>,
    up: Layer<'_>,
    dtype: DType,
) -> Result<Tensor> {
    Ok(linear_as(dtype, level, x, &[(gate, Finish::Gated { gating, up })])?.remove(0))
}

/// `y = down(gated outputs of gate and up)`, or `residual + factor * y`, by the kernels of a level.
pub(super) fn gated_mlp(
    level: Level,
    x: &Tensor,
    gating: Gating,
    [gate, up, down]: [Layer<'_>; 3],
    residual: Option<(&Tensor, f32)>,
) -> Result<Tensor> {
    let inner = gate.matrix.rows();
    let form = Form::of(level, down.matrix.kind());
    if form != Form::Tiles || !inner.is_multiple_of(TILE_STEP) {
        let inner = linear_gated(level, x, gating, gate, up, input_type(level, down.matrix))?;
        return match residual {
            Some((residual, factor)) => linear_add(level, &inner, down, residual, factor),
            None => Ok(linear(level, &inner, &[(down, Finish::Plain)])?.remove(0)),
        };
    }
    check(down, inner)?;
    if let Some((residual, _)) = residual {
        check_residual(x, down, residual)?;
    }
    let residual = residual.map(|(residual, factor)| (read(NAME, residual), factor));
    let last = match &residual {
        Some((rows, factor)) => Finish::Add { rows: rows.contiguous()?, factor: *factor },
        None => Finish::Plain,
    };
    let finish = Finish::Gated { gating, up };
    let tiles = with_activations(level, x, &[(gate, finish)], |x| {
        let fill = |all: &Parts<'_, MaybeUninit<bf16>>| {
            let out = Output::Tiles { all, m: x.m };
            region::run(level, x, &[Job { layer: gate, finish, out }]);
        };
        // SAFETY: the region writes all rows and columns.
        Ok(unsafe { filled(x.m * inner, fill) })
    })?;
    let m = outer(x).iter().product();
    let tiles = Activations::new(level, Rows::Tiles(&tiles), m, inner);
    Ok(outputs(DType::F32, level, &tiles, outer(x), &[(down, last)])?.remove(0))
}

/// The type in which a level is best given rows for a matrix: bf16 where it rounds them to that.
pub(super) fn input_type(level: Level, matrix: &PackedMatrix) -> DType {
    let rounds = matches!(Form::of(level, matrix.kind()), Form::Pairs | Form::Tiles);
    if rounds && matrix.columns().is_multiple_of(2) { DType::BF16 } else { DType::F32 }
}

/// All layers on `x` by the kernels of a level, in one region of the thread team.
pub(super) fn linear(
    level: Level,
    x: &Tensor,
    layers: &[(Layer<'_>, Finish<'_>)],
) -> Result<Vec<Tensor>> {
    linear_as(DType::F32, level, x, layers)
}

/// As [`linear`], with outputs in bf16 if `dtype` is, else in f32.
fn linear_as(
    dtype: DType,
    level: Level,
    x: &Tensor,
    layers: &[(Layer<'_>, Finish<'_>)],
) -> Result<Vec<Tensor>> {
    with_activations(level, x, layers, |rows| outputs(dtype, level, rows, outer(x), layers))
}

/// All dimensions but the last one, of a tensor that has any.
fn outer(x: &Tensor) -> &[usize] {
    x.dims().split_last().map_or(&[], |(_, outer)| outer)
}

/// Calls `run` with the rows of `x` in all forms that the layers take.
fn with_activations<T>(
    level: Level,
    x: &Tensor,
    layers: &[(Layer<'_>, Finish<'_>)],
    run: impl FnOnce(&Activations<'_>) -> Result<T>,
) -> Result<T> {
    let Some(k) = x.dims().last() else { bail!("{NAME}: a scalar has no rows") };
    let each = layers.iter().flat_map(|(layer, finish)| [Some(*layer), finish.partner()]);
    let each = each.flatten();
    for layer in each.clone() {
        check(layer, *k)?;
        if x.dtype() == DType::BF16 && input_type(level, layer.matrix) != DType::BF16 {
            let kind = layer.matrix.kind();
            bail!("{NAME}: rows of bf16 for {kind:?} with {k} columns, which takes f32");
        }
    }
    for (layer, finish) in layers {
        let Some(up) = finish.partner() else { continue };
        let [gate, up] = [*layer, up].map(|layer| layer.matrix.rows());
        if gate != up {
            bail!("linear_gated: gate and up have {gate} and {up} output features");
        }
    }
    let rows = read(NAME, x);
    let rows = match x.dtype() {
        DType::BF16 => Rows::Rounded(rows.contiguous()?),
        _ => Rows::Floats(rows.contiguous()?),
    };
    let mut activations = Activations::new(level, rows, outer(x).iter().product(), *k);
    for layer in each {
        activations.prepare(Form::of(level, layer.matrix.kind()));
    }
    run(&activations)
}

fn check(layer: Layer<'_>, k: usize) -> Result<()> {
    let Layer { matrix, bias } = layer;
    if k != matrix.columns() {
        bail!("{NAME}: the input has {k} features, the weight {}", matrix.columns());
    }
    if let Some(bias) = bias.filter(|bias| bias.len() != matrix.rows()) {
        bail!("{NAME}: {} biases for {} output features", bias.len(), matrix.rows());
    }
    Ok(())
}

fn check_residual(x: &Tensor, layer: Layer<'_>, residual: &Tensor) -> Result<()> {
    let n = layer.matrix.rows();
    if residual.dims().last() != Some(&n) || outer(residual) != outer(x) {
        bail!("linear_add: {:?} x {n} outputs and {:?} differ", x.dims(), residual.dims());
    }
    Ok(())
}

/// What all layers make of rows, as tensors `[outer, n]` of bf16 if `dtype` is, else of f32.
fn outputs(
    dtype: DType,
    level: Level,
    x: &Activations<'_>,
    outer: &[usize],
    layers: &[(Layer<'_>, Finish<'_>)],
) -> Result<Vec<Tensor>> {
    let mut outputs: Vec<Results> =
        layers.iter().map(|(layer, _)| Results::new(x.m * layer.matrix.rows(), dtype)).collect();
    let jobs: Vec<Job<'_>> = layers
        .iter()
        .zip(&mut outputs)
        .map(|((layer, finish), output)| Job {
            layer: *layer,
            finish: *finish,
            out: Output::Rows(output.parts()),
        })
        .collect();
    region::run(level, x, &jobs);
    layers
        .iter()
        .zip(outputs)
        .map(|((layer, _), output)| {
            // SAFETY: the region has written all rows and columns.
            unsafe { output.into_tensor([outer, &[layer.matrix.rows()]].concat()) }
        })
        .collect()
}
