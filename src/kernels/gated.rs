//! `activation(gate) * up`, the middle of a gated MLP.
//!
//! Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear
//! Units", 2016, in its tanh form.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::cpu::{Kernel, LANES, Lanes, Level, load_tail, math};
use super::fresh::{Parts, filled};
use super::{pool, portable, storage};

/// The function applied to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`, also called swish.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// Elements of one chunk.
const CHUNK: usize = 1 << 14;

/// `activation(gate) * up`, both of the same shape in f32.
pub fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.dims() != up.dims() {
        bail!("gated: gate {:?} and up {:?} differ", gate.dims(), up.dims());
    }
    if !gate.device().is_cpu() {
        return portable::gated(activation, gate, up);
    }
    gated_at(Level::current(), activation, gate, up)
}

fn gated_at(level: Level, activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2_no_bwd(up, &Gated { level, activation })
}

struct Gated {
    level: Level,
    activation: Activation,
}

impl CustomOp2 for Gated {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let gate = storage::contiguous::<f32>(self.name(), gate, layout)?;
        let up = storage::contiguous::<f32>(self.name(), up, up_layout)?;
        let len = gate.len();
        if up.len() != len {
            bail!("gated: {len} and {} elements differ", up.len());
        }
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_chunk(len.div_ceil(CHUNK), |chunk| {
                let range = chunk * CHUNK..len.min((chunk + 1) * CHUNK);
                // SAFETY: the ranges of different chunks don't overlap.
                let out = unsafe { out.part(range.clone()) };
                let (gate, up) = (&gate[range.clone()], &up[range]);
                self.level.run(GatedRange { activation: self.activation, gate, up, out });
            });
        };
        // SAFETY: the chunks cover all elements and `GatedRange` writes each of its own.
        let out = unsafe { filled(len, run) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

struct GatedRange<'a> {
    activation: Activation,
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for GatedRange<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (gate, gate_tail) = self.gate.as_chunks::<LANES>();
        let (up, up_tail) = self.up.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gate.iter().zip(up).zip(out) {
            l.write(one(l, self.activation, l.load(gate), l.load(up)), out);
        }
        let mut tail = [0.0; LANES];
        let (gate, up) = (load_tail(l, gate_tail), load_tail(l, up_tail));
        l.store(one(l, self.activation, gate, up), &mut tail);
        for (out, value) in out_tail.iter_mut().zip(tail) {
            out.write(value);
        }
    }
}

#[inline(always)]
fn one<L: Lanes>(l: L, activation: Activation, gate: L::V, up: L::V) -> L::V {
    let activated = match activation {
        Activation::Silu => l.mul(gate, math::sigmoid(l, gate)),
        Activation::GeluTanh => {
            let cube = l.mul(l.mul(gate, gate), gate);
            let inner = l.mul_add(cube, l.splat(0.044_715), gate);
            let tanh = math::tanh(l, l.mul(inner, l.splat(0.797_884_6)));
            l.mul(l.mul(gate, l.splat(0.5)), l.add(l.splat(1.0), tanh))
        }
    };
    l.mul(activated, up)
}

#[cfg(test)]
mod tests;
