//! One layer of a tower: attention and a feed-forward part, each behind a norm and added to its input.

use candle_core::{DType, Result, Tensor};

use super::attention::Attention;
use super::product::{Product, Shape};
use super::spec::{TowerActivation, TowerSpec};
use crate::kernels::pointwise::{Activation, Gating, pointwise};
use crate::layers::full_attention::Texts;
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded layer.
#[derive(Debug)]
pub(super) struct Layer {
    norms: [Norm; 2],
    attention: Attention,
    gate: Option<Product>,
    up: Product,
    down: Product,
    activation: TowerActivation,
    /// Of what attention and the feed-forward part give.
    after_norms: Option<[Norm; 2]>,
    /// `[hidden]` each, of the same.
    scales: Option<[Tensor; 2]>,
}

impl Layer {
    pub(super) fn load(weights: &Weights, spec: &TowerSpec) -> Loaded<Self> {
        let TowerSpec { hidden, mlp, names, .. } = *spec;
        let product = |name: &str, inputs, outputs| {
            let shape = Shape { inputs, outputs, bias: mlp.bias };
            Product::load(&weights.scope(name), shape, None, spec.bounded)
        };
        let norm = |name| Norm::load(&weights.scope(name), hidden, spec.norm);
        let norms = |[first, second]: [&'static str; 2]| {
            Ok::<_, WeightError>([norm(first)?, norm(second)?])
        };
        let scale = |name| weights.dense(name, &[hidden], DType::F32);
        let scales = |[first, second]: [&'static str; 2]| {
            Ok::<_, WeightError>([scale(first)?, scale(second)?])
        };
        let gate = mlp.gate.map(|gate| product(gate, hidden, mlp.intermediate));
        Ok(Self {
            norms: norms(names.norms)?,
            attention: Attention::load(weights, spec)?,
            gate: gate.transpose()?,
            up: product(mlp.names[0], hidden, mlp.intermediate)?,
            down: product(mlp.names[1], mlp.intermediate, hidden)?,
            activation: mlp.activation,
            after_norms: spec.after_norms.map(norms).transpose()?,
            scales: spec.scales.map(scales).transpose()?,
        })
    }

    /// `x [patches, hidden]` after this layer, in which patches see those of their own window.
    pub(super) fn forward(&self, x: &Tensor, windows: &Texts) -> Result<Tensor> {
        let [before_attention, before_mlp] = &self.norms;
        let normed = before_attention.forward(x)?;
        if self.after_norms.is_none() && self.scales.is_none() {
            let x = self.attention.forward_add(x, &normed, windows)?;
            let inner = self.inner(&before_mlp.forward(&x)?)?;
            return match self.down.unbounded() {
                Some(down) => down.forward_add(&inner, &x),
                None => x + self.down.forward(&inner)?,
            };
        }
        let x = (x + self.finished(0, self.attention.forward(&normed, windows)?)?)?;
        let inner = self.inner(&before_mlp.forward(&x)?)?;
        x + self.finished(1, self.down.forward(&inner)?)?
    }

    /// What a part gives, before it is added.
    fn finished(&self, part: usize, x: Tensor) -> Result<Tensor> {
        let x = match &self.after_norms {
            Some(norms) => norms[part].forward(&x)?,
            None => x,
        };
        match &self.scales {
            Some(scales) => x.broadcast_mul(&scales[part]),
            None => Ok(x),
        }
    }

    fn inner(&self, x: &Tensor) -> Result<Tensor> {
        let Some(gate) = &self.gate else {
            return activate(self.activation, &self.up.forward(x)?);
        };
        match (gate.unbounded(), self.up.unbounded(), self.activation) {
            (Some(gate), Some(up), TowerActivation::Common(activation)) => {
                Linear::forward_gated(Gating::from(activation), gate, up, x)
            }
            (_, _, activation) => activate(activation, &gate.forward(x)?)? * self.up.forward(x)?,
        }
    }
}

/// The activation of every element of `x`.
pub(in crate::models) fn activate(activation: TowerActivation, x: &Tensor) -> Result<Tensor> {
    const FACTOR: f64 = 1.702;
    match activation {
        TowerActivation::Common(activation) => pointwise(activation, x),
        TowerActivation::QuickGelu => pointwise(Activation::Silu, &(x * FACTOR)?)? / FACTOR,
    }
}
