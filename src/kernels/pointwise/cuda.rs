//! Elementwise operations on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor, bail};

use super::args::{Activation, Gating, UnaryOp, Xielu};
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, narrow, output_buffer, output_type, source,
};

static SOURCE: Source = source!("pointwise/kernel");

const THREADS: usize = 256;
/// Elements that a thread takes.
const EACH: usize = 4;

kernel_struct! {
    struct Pointwise {
        x: Address,
        up: Address,
        out: Address,
        count: u32,
        out_type: u32,
        op: ElementwiseOp,
    }
}

kernel_struct! {
    /// An elementwise operation and its parameters, as in `elementwise.cuh`.
    #[derive(Debug, Default)]
    pub(crate) struct ElementwiseOp {
        op: u32,
        a: f32,
        b: f32,
        c: f32,
    }
}

impl ElementwiseOp {
    /// Every element stays as it is.
    pub(crate) const NONE: Self = Self { op: u32::MAX, a: 0.0, b: 0.0, c: 0.0 };
}

impl From<UnaryOp> for ElementwiseOp {
    fn from(op: UnaryOp) -> Self {
        let (op, [a, b, c]) = match op {
            UnaryOp::Activation(Activation::Silu) => (0, [0.0; 3]),
            UnaryOp::Activation(Activation::Gelu) => (1, [0.0; 3]),
            UnaryOp::Activation(Activation::GeluTanh) => (2, [0.0; 3]),
            UnaryOp::Activation(Activation::Relu) => (3, [0.0; 3]),
            UnaryOp::Activation(Activation::ReluSquared) => (4, [0.0; 3]),
            UnaryOp::SoftCap(cap) => (5, [cap, 0.0, 0.0]),
            UnaryOp::Sigmoid => (6, [0.0; 3]),
            UnaryOp::Xielu(Xielu { positive, negative, beta }) => (7, [positive, negative, beta]),
        };
        Self { op, a, b, c }
    }
}

impl From<Gating> for ElementwiseOp {
    fn from(gating: Gating) -> Self {
        match gating {
            Gating::Activation(activation) => UnaryOp::Activation(activation).into(),
            Gating::Clamped { alpha, limit } => Self { op: 8, a: alpha, b: limit, c: 0.0 },
            Gating::Limited { limit } => Self { op: 9, a: limit, b: 0.0, c: 0.0 },
            Gating::Bounded { limit } => Self { op: 11, a: limit, b: 0.0, c: 0.0 },
        }
    }
}

/// `op` of every element of `x`.
pub(super) fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    run(op.into(), x, None, DType::F32)
}

/// The gated elements of `gate` and `up`, rounded to a type.
pub(super) fn gated(gating: Gating, gate: &Tensor, up: &Tensor, dtype: DType) -> Result<Tensor> {
    if gate.dims() != up.dims() {
        bail!("gated: {:?} and {:?} differ", gate.dims(), up.dims());
    }
    run(gating.into(), gate, Some(up), dtype)
}

/// `x + factor * y`.
pub(crate) fn added(x: &Tensor, factor: f32, y: &Tensor) -> Result<Tensor> {
    if x.dims() != y.dims() {
        bail!("added: {:?} and {:?} differ", x.dims(), y.dims());
    }
    run(ElementwiseOp { op: 10, a: factor, b: 0.0, c: 0.0 }, x, Some(y), DType::F32)
}

fn run(op: ElementwiseOp, x: &Tensor, up: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
    let x = x.contiguous()?;
    let up = up.map(Tensor::contiguous).transpose()?;
    let out = output_buffer(x.dims(), dtype, x.device())?;
    let arguments = Pointwise {
        x: Address::of(&x, DType::F32)?,
        up: Address::of_some(up.as_ref(), DType::F32)?,
        out: Address::to_write(&out, dtype)?,
        count: narrow(x.elem_count())?,
        out_type: output_type(dtype)?,
        op,
    };
    let grid = [x.elem_count().div_ceil(EACH * THREADS), 1, 1];
    let launch = Launch { source: &SOURCE, kernel: "pointwise", grid, threads: THREADS, shared: 0 };
    // SAFETY: all three have as many elements as are counted.
    unsafe { launch.run(x.device(), arguments)? };
    Ok(out)
}
