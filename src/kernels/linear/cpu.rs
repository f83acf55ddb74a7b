//! Products with packed weights: from a call's tensors to a region of the thread team.

use candle_core::{Device, Result, Tensor, bail};

use super::activations::{Activations, Form};
use super::args::Layer;
use super::job::{Finish, Job};
use super::region;
use crate::cpu::Level;
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
    Ok(linear(level, x, &[(layer, Finish::Add { rows, factor })])?.remove(0))
}

/// The gated outputs of two layers by the kernels of a level.
pub(super) fn linear_gated(
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
    let mut outputs = linear(level, x, &[(gate, Finish::Gated { gating, up })])?;
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

/// All layers on `x` by the kernels of a level, in one region of the thread team.
pub(super) fn linear(
    level: Level,
    x: &Tensor,
    layers: &[(Layer<'_>, Finish<'_>)],
) -> Result<Vec<Tensor>> {
    for (layer, _) in layers {
        check(*layer, x)?;
    }
    let outer = &x.dims()[..x.dims().len() - 1];
    let m = outer.iter().product();
    let k = x.dims()[outer.len()];
    let rows = read(NAME, x);
    let mut activations = Activations::new(level, rows.contiguous()?, m, k);
    for (layer, finish) in layers {
        activations.prepare(Form::of(level, layer.matrix.kind()));
        if let Finish::Gated { up, .. } = finish {
            activations.prepare(Form::of(level, up.matrix.kind()));
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
}
