//! The feed-forward part of a layer: `down(activation(gate(x)) * up(x))`, or without a gate
//! `down(activation(up(x)))`.

use candle_core::{DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::linear::Linear;
use crate::kernels::experts::ExpertLayers;
use crate::kernels::pointwise::{Activation, Gating, Xielu, gated_pairs, pointwise, xielu};
use crate::weights::{WeightError, Weights};

/// Names of a feed-forward part's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpTensors {
    /// Gate, up and down.
    Gated([&'static str; 3]),
    /// Gate and, in the rows behind it, up; then down.
    GateAndUp([&'static str; 2]),
    /// Up and down; there is no gate.
    Plain([&'static str; 2]),
}

/// Shape and variant of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements between the projections.
    pub intermediate_size: usize,
    /// Biases of all projections.
    pub bias: bool,
    /// What is applied to the gate or, without one, between the projections.
    pub activation: Activation,
    /// What gate and up make instead of `activation(gate) * up`.
    pub gating: Option<Gating>,
    /// Where the numbers of an activation are that has learned ones (then the one above is not
    /// used); without a gate only.
    pub learned_activation: Option<&'static str>,
    /// What the tensors are called.
    pub tensors: MlpTensors,
}

/// Weights of a feed-forward part.
#[derive(Debug)]
pub struct Mlp {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    activation: Activation,
    gating: Gating,
    learned: Option<Xielu>,
}

impl Mlp {
    /// Loads the projections.
    pub fn load(weights: &Weights, spec: MlpSpec) -> std::result::Result<Self, WeightError> {
        let MlpSpec { hidden_size: hidden, intermediate_size: inner, bias, .. } = spec;
        let load =
            |name, inputs, outputs| Linear::load(&weights.scope(name), inputs, outputs, bias);
        let (gate, up, down) = match spec.tensors {
            MlpTensors::Gated([gate, up, down]) => {
                (Some(load(gate, hidden, inner)?), load(up, hidden, inner)?, down)
            }
            MlpTensors::GateAndUp([both, down]) => {
                let both = weights.scope(both);
                let half = |rows| Linear::load_rows(&both, hidden, 2 * inner, bias, &[rows]);
                (Some(half(0..inner)?), half(inner..2 * inner)?, down)
            }
            MlpTensors::Plain([up, down]) => (None, load(up, hidden, inner)?, down),
        };
        let learned = spec.learned_activation.map(|name| load_xielu(&weights.scope(name)));
        let learned = learned.transpose()?;
        Ok(Self { learned, ..Self::new(gate, up, load(down, inner, hidden)?, &spec) })
    }

    /// A feed-forward part of these layers.
    pub(super) fn new(gate: Option<Linear>, up: Linear, down: Linear, spec: &MlpSpec) -> Self {
        let gating = spec.gating.unwrap_or(Gating::Activation(spec.activation));
        Self { gate, up, down, activation: spec.activation, gating, learned: None }
    }

    /// `mlp(x)`, both `[.., hidden]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.adapted(x, LayerAdapters::none())
    }

    /// `residual + factor * mlp(x)`, all `[.., hidden]`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        self.adapted_add(x, residual, factor, LayerAdapters::none())
    }

    /// As [`forward`](Self::forward), with the adapters of the rows.
    pub fn adapted(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let inner = self.inner(x, adapters)?;
        adapters.add(Projection::Down, &inner, self.down.forward(&inner)?, 1.0)
    }

    /// As [`forward_add`](Self::forward_add), with the adapters of the rows.
    pub fn adapted_add(
        &self,
        x: &Tensor,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let inner = self.inner(x, adapters)?;
        let sum = self.down.forward_add_scaled(&inner, residual, factor)?;
        adapters.add(Projection::Down, &inner, sum, factor)
    }

    fn inner(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let Some(gate) = &self.gate else {
            return self.activate(&adapters.add(Projection::Up, x, self.up.forward(x)?, 1.0)?);
        };
        if !adapters.change(&[Projection::Gate, Projection::Up]) {
            return Linear::forward_gated(self.gating, gate, &self.up, x);
        }
        // To the bit what `forward_gated` gives for rows that nothing is added to.
        let [gate, up] = Linear::forward_each([gate, &self.up], x)?;
        let gate = adapters.add(Projection::Gate, x, gate, 1.0)?;
        let up = adapters.add(Projection::Up, x, up, 1.0)?;
        gated_pairs(self.gating, &gate, &up)
    }

    /// Where its layers are on a device, if experts can be there like this.
    pub(super) fn on_device(&self) -> Option<ExpertLayers<'_>> {
        if self.learned.is_some() {
            return None;
        }
        let gate = match &self.gate {
            Some(gate) => Some(gate.on_device()?),
            None => None,
        };
        Some(ExpertLayers { gate, up: self.up.on_device()?, down: self.down.on_device()? })
    }

    /// What gate and up make.
    pub(super) fn gating(&self) -> Gating {
        self.gating
    }

    pub(super) fn activate(&self, x: &Tensor) -> Result<Tensor> {
        match self.learned {
            None => pointwise(self.activation, x),
            Some(learned) => xielu(learned, x),
        }
    }
}

/// The stored numbers `alpha_p`, `alpha_n` (both behind a softplus) and, if it is there, `beta`.
fn load_xielu(weights: &Weights) -> std::result::Result<Xielu, WeightError> {
    let number = |name: &str| {
        let shape: &[usize] = if name == "beta" { &[] } else { &[1] };
        let number = weights.dense(name, shape, DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        Ok::<_, WeightError>(number[0])
    };
    let softplus = |x: f32| x.exp().ln_1p();
    let beta = if weights.contains("beta") { number("beta")? } else { 0.5 };
    Ok(Xielu {
        positive: softplus(number("alpha_p")?),
        negative: beta + softplus(number("alpha_n")?),
        beta,
    })
}
