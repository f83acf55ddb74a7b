//! Products with packed weights: from a call's tensors to a region of the thread team.

use candle_core::{DType, Result, Tensor, bail};

use super::activations::{Activations, Form, Rows};
use super::args::Layer;
use super::job::{Finish, Job};
use super::region;
use crate::cpu::Level;
use crate::fresh::Results;
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
    let outer = residual.dims().split_last().map(|(_, outer)| outer);
    if outer != x.dims().split_last().map(|(_, outer)| outer)
        || residual.dims().last() != Some(&layer.matrix.rows())
    {
        let n = layer.matrix.rows();
        bail!("linear_add: {:?} x {n} outputs and {:?} differ", x.dims(), residual.dims());
    }
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
    check(up, x)?;
    if gate.matrix.rows() != up.matrix.rows() {
        let (gate, up) = (gate.matrix.rows(), up.matrix.rows());
        bail!("linear_gated: gate and up have {gate} and {up} output features");
    }
    let mut outputs = linear_as(dtype, level, x, &[(gate, Finish::Gated { gating, up })])?;
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
    for (layer, finish) in layers {
        check(*layer, x)?;
        let partner = match finish {
            Finish::Gated { up, .. } => up,
            Finish::Plain | Finish::Add { .. } => layer,
        };
        let wide = |layer: &&Layer<'_>| input_type(level, layer.matrix) == DType::F32;
        if x.dtype() == DType::BF16
            && let Some(layer) = [layer, partner].into_iter().find(wide)
        {
            let (kind, k) = (layer.matrix.kind(), layer.matrix.columns());
            bail!(
                "{NAME}: rows of bf16 for a matrix of {kind:?} with {k} columns, which takes f32"
            );
        }
    }
    let outer = &x.dims()[..x.dims().len() - 1];
    let m = outer.iter().product();
    let k = x.dims()[outer.len()];
    let rows = read(NAME, x);
    let rows = match x.dtype() {
        DType::BF16 => Rows::Rounded(rows.contiguous()?),
        _ => Rows::Floats(rows.contiguous()?),
    };
    let mut activations = Activations::new(level, rows, m, k);
    for (layer, finish) in layers {
        activations.prepare(Form::of(level, layer.matrix.kind()));
        if let Finish::Gated { up, .. } = finish {
            activations.prepare(Form::of(level, up.matrix.kind()));
        }
    }
    let mut outputs: Vec<Results> =
        layers.iter().map(|(layer, _)| Results::new(m * layer.matrix.rows(), dtype)).collect();
    let jobs: Vec<Job<'_>> = layers
        .iter()
        .zip(&mut outputs)
        .map(|((layer, finish), output)| Job::new(*layer, *finish, output))
        .collect();
    region::run(level, &activations, &jobs);
    layers
        .iter()
        .zip(outputs)
        .map(|((layer, _), output)| {
            // SAFETY: the region has written all rows and columns.
            unsafe { output.into_tensor([outer, &[layer.matrix.rows()]].concat()) }
        })
        .collect()
}
