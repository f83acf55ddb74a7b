//! Normalization of rows on NVIDIA GPUs.

use candle_core::{D, DType, Result, Tensor, bail};

use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, narrow, output_buffer, output_type, source,
};

static SOURCE: Source = source!("norm/kernel");

const THREADS: usize = 256;

kernel_struct! {
    struct Norm {
        x: Address,
        weight: Address,
        bias: Address,
        residual: Address,
        out: Address,
        out_type: u32,
        width: u32,
        eps: f32,
        centered: u32,
    }
}

/// `residual + x / sqrt(mean(x^2) + eps) * weight` over the last dimension of `x [.., D]`, rounded to a type.
pub(super) fn rms_norm(
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    residual: Option<&Tensor>,
    dtype: DType,
) -> Result<Tensor> {
    normalize(x, (weight, None), residual, eps, dtype)
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension of `x [.., D]`, rounded to
/// a type.
pub(super) fn layer_norm(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
    dtype: DType,
) -> Result<Tensor> {
    normalize(x, (weight, Some(bias)), None, eps, dtype)
}

/// A layer norm if there is a bias, else an RMS norm.
fn normalize(
    x: &Tensor,
    (weight, bias): (&Tensor, Option<&Tensor>),
    residual: Option<&Tensor>,
    eps: f32,
    dtype: DType,
) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    if width == 0 || weight.dims() != [width] || bias.is_some_and(|bias| bias.dims() != [width]) {
        bail!("a norm of rows of {width} with weights {:?}", weight.dims());
    }
    if residual.is_some_and(|residual| residual.dims() != x.dims()) {
        bail!("a norm of {:?} and a residual of another shape", x.dims());
    }
    let x = x.contiguous()?;
    let residual = residual.map(Tensor::contiguous).transpose()?;
    let out = output_buffer(x.dims(), dtype, x.device())?;
    let arguments = Norm {
        x: Address::of(&x, DType::F32)?,
        weight: Address::of(weight, DType::F32)?,
        bias: Address::of_some(bias, DType::F32)?,
        residual: Address::of_some(residual.as_ref(), DType::F32)?,
        out: Address::to_write(&out, dtype)?,
        out_type: output_type(dtype)?,
        width: narrow(width)?,
        eps,
        centered: u32::from(bias.is_some()),
    };
    let grid = [x.elem_count() / width, 1, 1];
    let launch = Launch { source: &SOURCE, kernel: "normalize", grid, threads: THREADS, shared: 0 };
    // SAFETY: the shapes were checked, and there is a block for each row.
    unsafe { launch.run(x.device(), arguments)? };
    Ok(out)
}
