//! One layer of a tower: attention and a feed-forward part, each behind a norm and added to its input.

use candle_core::{Result, Tensor};

use super::spec::{TowerActivation, TowerSpec};
use crate::kernels::pointwise::{Activation, Gating, pointwise};
use crate::layers::full_attention::{FullAttention, Heads, Texts};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// A loaded layer.
#[derive(Debug)]
pub(super) struct Layer {
    norms: [Norm; 2],
    attention: FullAttention,
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    activation: TowerActivation,
}

impl Layer {
    pub(super) fn load(weights: &Weights, spec: &TowerSpec) -> Loaded<Self> {
        let TowerSpec { hidden, mlp, .. } = *spec;
        let linear =
            |name: &str, inputs, outputs| Linear::load(&weights.scope(name), inputs, outputs, true);
        let norm = |name| Norm::load(&weights.scope(name), hidden, spec.norm);
        let qkv = weights.scope("attn.qkv");
        let third = |index: usize| {
            let rows = index * hidden..(index + 1) * hidden;
            Linear::load_rows(&qkv, hidden, 3 * hidden, true, std::slice::from_ref(&rows))
        };
        let part = |name: &str| format!("mlp.{name}");
        let gate = mlp.gate.map(|gate| linear(&part(gate), hidden, mlp.intermediate));
        Ok(Self {
            norms: [norm("norm1")?, norm("norm2")?],
            attention: FullAttention {
                query: third(0)?,
                key: third(1)?,
                value: third(2)?,
                output: linear("attn.proj", hidden, hidden)?,
                heads: Heads { count: spec.heads, dim: spec.head_dim() },
            },
            gate: gate.transpose()?,
            up: linear(&part(mlp.names[0]), hidden, mlp.intermediate)?,
            down: linear(&part(mlp.names[1]), mlp.intermediate, hidden)?,
            activation: mlp.activation,
        })
    }

    /// `x [patches, hidden]` after this layer, in which patches see those of their own window.
    pub(super) fn forward(&self, x: &Tensor, windows: &Texts) -> Result<Tensor> {
        let [before_attention, before_mlp] = &self.norms;
        let x = self.attention.forward_add(x, &before_attention.forward(x)?, windows)?;
        let inner = self.inner(&before_mlp.forward(&x)?)?;
        self.down.forward_add(&inner, &x)
    }

    fn inner(&self, x: &Tensor) -> Result<Tensor> {
        match (&self.gate, self.activation) {
            (Some(gate), TowerActivation::Common(activation)) => {
                Linear::forward_gated(Gating::from(activation), gate, &self.up, x)
            }
            (Some(gate), quick) => activate(quick, &gate.forward(x)?)? * self.up.forward(x)?,
            (None, activation) => activate(activation, &self.up.forward(x)?),
        }
    }
}

fn activate(activation: TowerActivation, x: &Tensor) -> Result<Tensor> {
    const FACTOR: f64 = 1.702;
    match activation {
        TowerActivation::Common(activation) => pointwise(activation, x),
        TowerActivation::QuickGelu => pointwise(Activation::Silu, &(x * FACTOR)?)? / FACTOR,
    }
}
