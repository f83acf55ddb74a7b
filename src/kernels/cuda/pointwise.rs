//! A function of each number, or of each pair of numbers.

use candle_core::{DType, Result, Tensor, bail};

use super::super::gated::Gating;
use super::super::pointwise::{Activation, Function, Xielu};
use super::launch::{Address, Launch, narrow, output_buffer};
use super::layout::kernel_struct;
use super::source::{Source, source};

static SOURCE: Source = source!("cuda/pointwise");

const THREADS: usize = 256;

kernel_struct! {
    struct Pointwise {
        x: Address,
        up: Address,
        out: Address,
        count: u32,
        numbers: Numbers,
    }
}

kernel_struct! {
    /// A function and what it is made of, as in `activations.cuh`.
    #[derive(Debug, Default)]
    pub(super) struct Numbers {
        function: u32,
        a: f32,
        b: f32,
        c: f32,
    }
}

impl Numbers {
    /// Numbers stay as they are.
    pub(super) const NONE: Self = Self { function: u32::MAX, a: 0.0, b: 0.0, c: 0.0 };
}

impl From<Function> for Numbers {
    fn from(function: Function) -> Self {
        let (function, [a, b, c]) = match function {
            Function::Activation(Activation::Silu) => (0, [0.0; 3]),
            Function::Activation(Activation::Gelu) => (1, [0.0; 3]),
            Function::Activation(Activation::GeluTanh) => (2, [0.0; 3]),
            Function::Activation(Activation::Relu) => (3, [0.0; 3]),
            Function::Activation(Activation::ReluSquared) => (4, [0.0; 3]),
            Function::SoftCap(cap) => (5, [cap, 0.0, 0.0]),
            Function::Sigmoid => (6, [0.0; 3]),
            Function::Xielu(Xielu { positive, negative, beta }) => (7, [positive, negative, beta]),
        };
        Self { function, a, b, c }
    }
}

impl From<Gating> for Numbers {
    fn from(gating: Gating) -> Self {
        match gating {
            Gating::Activation(activation) => Function::Activation(activation).into(),
            Gating::Clamped { alpha, limit } => Self { function: 8, a: alpha, b: limit, c: 0.0 },
        }
    }
}

/// `function(x)` of every element.
pub(in crate::kernels) fn pointwise(function: Function, x: &Tensor) -> Result<Tensor> {
    run(function.into(), x, None)
}

/// What every pair of elements makes.
pub(in crate::kernels) fn gated(gating: Gating, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.dims() != up.dims() {
        bail!("gated: {:?} and {:?} differ", gate.dims(), up.dims());
    }
    run(gating.into(), gate, Some(up))
}

fn run(numbers: Numbers, x: &Tensor, up: Option<&Tensor>) -> Result<Tensor> {
    let x = x.contiguous()?;
    let up = up.map(Tensor::contiguous).transpose()?;
    let out = output_buffer(x.dims(), DType::F32, x.device())?;
    let arguments = Pointwise {
        x: Address::of(&x, DType::F32)?,
        up: Address::of_some(up.as_ref(), DType::F32)?,
        out: Address::to_write(&out, DType::F32)?,
        count: narrow(x.elem_count())?,
        numbers,
    };
    let grid = [x.elem_count().div_ceil(THREADS), 1, 1];
    let launch = Launch { source: &SOURCE, kernel: "pointwise", grid, threads: THREADS, shared: 0 };
    // SAFETY: all three have as many elements as are counted.
    unsafe { launch.run(x.device(), arguments)? };
    Ok(out)
}
