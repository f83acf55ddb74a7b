//! Products on a device that the packed kernels don't reach: by kernels for its kind where there
//! are any for so many tokens, else plainly.

use candle_core::{DType, Result, Tensor};

use super::args::{DeviceLayer, DeviceNorm, DeviceWeight, Elements};
use super::cublas::half_product;
use super::{cuda, portable};
use crate::backend::Backend;
use crate::pointwise::{self, Gating, gated_pairs_as};

/// The outputs `[.., N]` of several layers on the same `x [.., K]` in f32.
///
/// On an NVIDIA GPU inputs of bf16 or f16 weights are rounded to their type, as on the CPU; elsewhere
/// weights are widened.
pub fn device_linear_each(x: &Tensor, layers: &[DeviceLayer<'_>]) -> Result<Vec<Tensor>> {
    let mut outputs = Vec::with_capacity(layers.len());
    let mut rounded = Rounded::new(x);
    for some in runs(layers) {
        // The others round the input, and have a kernel for each layer.
        if have_kernel(x, some, some.len())? {
            outputs.extend(cuda::linear_each(x, None, some)?);
            continue;
        }
        for layer in some {
            outputs.push(rounded.product(layer)?);
        }
    }
    Ok(outputs)
}

/// As [`device_linear_each`] of what a norm makes of `x`, if there are kernels that normalize so few rows
/// themselves.
pub fn device_normed_linear_each(
    x: &Tensor,
    norm: DeviceNorm<'_>,
    layers: &[DeviceLayer<'_>],
) -> Result<Option<Vec<Tensor>>> {
    for some in runs(layers) {
        if !normalizes(x, some)? {
            return Ok(None);
        }
    }
    let mut outputs = Vec::with_capacity(layers.len());
    for some in runs(layers) {
        outputs.extend(cuda::linear_each(x, Some(norm), some)?);
    }
    Ok(Some(outputs))
}

/// Whether there is a kernel for all of these layers that normalizes the rows of `x`.
fn normalizes(x: &Tensor, layers: &[DeviceLayer<'_>]) -> Result<bool> {
    let tokens = x.elem_count() / x.dims().last().copied().unwrap_or(1).max(1);
    let mut all = x.dtype() == DType::F32 && have_kernel(x, layers, layers.len())?;
    for layer in layers {
        all = all && cuda::normalizes(tokens, layer)?;
    }
    Ok(all)
}

/// Neighbouring layers of one kind, as many as a launch takes.
fn runs<'a, 'b>(layers: &'a [DeviceLayer<'b>]) -> impl Iterator<Item = &'a [DeviceLayer<'b>]> {
    let alike =
        |a: &DeviceLayer<'_>, b: &DeviceLayer<'_>| a.weight.elements() == b.weight.elements();
    layers.chunk_by(alike).flat_map(|some| some.chunks(cuda::MOST_LAYERS))
}

/// `residual + factor * layer(x)`, both `[.., N]`.
pub fn device_linear_add(
    x: &Tensor,
    layer: DeviceLayer<'_>,
    residual: &Tensor,
    factor: f32,
) -> Result<Tensor> {
    if have_kernel(x, &[layer], 2)? {
        return cuda::linear_add(x, layer, residual, factor);
    }
    let y = Rounded::new(x).product(&layer)?;
    if Backend::of(x.device()).is_cuda() && [residual, &y].iter().all(|x| x.dtype() == DType::F32) {
        return pointwise::cuda::added(residual, factor, &y);
    }
    if factor.to_bits() == 1.0f32.to_bits() {
        return residual + y;
    }
    residual + (y * f64::from(factor))?
}

/// The type in which a layer with this weight is best given so many rows of inputs: the one that it
/// rounds them to, if it rounds them all at once.
pub fn device_input_type(rows: usize, weight: DeviceWeight<'_>) -> DType {
    let rounds = Backend::of(weight.device()).is_cuda() && rows >= cuda::ROUND_FROM;
    match weight.elements() {
        Elements::Dense(dtype @ (DType::BF16 | DType::F16)) if rounds => dtype,
        Elements::Dense(_) | Elements::Packed(_) => DType::F32,
    }
}

/// The gated outputs of `gate` and `up`, the two of `layers`, rounded to a type.
pub fn device_linear_gated(
    x: &Tensor,
    gating: Gating,
    layers: [DeviceLayer<'_>; 2],
    dtype: DType,
) -> Result<Tensor> {
    if layers[0].weight.dims()? == layers[1].weight.dims()? && have_kernel(x, &layers, 3)? {
        return cuda::linear_gated(x, None, gating, layers, dtype);
    }
    let both = device_linear_each(x, &layers)?;
    gated_pairs_as(gating, &both[0], &both[1], dtype)
}

/// As [`device_linear_gated`] of what a norm makes of `x`, if there are kernels that normalize so few rows
/// themselves.
pub fn device_normed_linear_gated(
    x: &Tensor,
    norm: DeviceNorm<'_>,
    gating: Gating,
    layers: [DeviceLayer<'_>; 2],
    dtype: DType,
) -> Result<Option<Tensor>> {
    let fits = layers[0].weight.dims()? == layers[1].weight.dims()? && normalizes(x, &layers)?;
    fits.then(|| cuda::linear_gated(x, Some(norm), gating, layers, dtype)).transpose()
}

/// Whether there is a kernel for all of these layers that is better than products by themselves, which
/// take `saved` kernels more.
fn have_kernel(x: &Tensor, layers: &[DeviceLayer<'_>], saved: usize) -> Result<bool> {
    let tokens = x.elem_count() / x.dims().last().copied().unwrap_or(1).max(1);
    let kind = layers[0].weight.elements();
    let alike = layers.iter().all(|layer| layer.weight.elements() == kind);
    Ok(Backend::of(x.device()).is_cuda()
        && tokens > 0
        && alike
        && cuda::takes(tokens, layers, saved)?)
}

/// Inputs of several layers, rounded to the type of their weights once.
struct Rounded<'a> {
    x: &'a Tensor,
    rounded: Option<Tensor>,
}

impl<'a> Rounded<'a> {
    fn new(x: &'a Tensor) -> Self {
        Self { x, rounded: None }
    }

    fn product(&mut self, layer: &DeviceLayer<'_>) -> Result<Tensor> {
        let DeviceLayer { weight, bias } = *layer;
        let widened;
        let weight = match weight {
            DeviceWeight::Dense(weight) => weight,
            // What is rounded is the weights of many tokens, which were quantized already.
            DeviceWeight::Packed(matrix) => {
                let on_gpu = matrix.device().is_cuda();
                widened = matrix.widen(if on_gpu { DType::BF16 } else { DType::F32 })?;
                &widened
            }
        };
        if !weight.device().is_cuda() || !matches!(weight.dtype(), DType::BF16 | DType::F16) {
            return portable::linear(self.x, weight, bias);
        }
        let rounded = match self.rounded.take() {
            Some(rounded) if rounded.dtype() == weight.dtype() => rounded,
            _ => self.x.to_dtype(weight.dtype())?.contiguous()?,
        };
        let y = half_product(&rounded, weight)?;
        self.rounded = Some(rounded);
        bias.map_or_else(|| Ok(y.clone()), |bias| y.broadcast_add(bias))
    }
}
