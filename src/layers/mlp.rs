//! The feed-forward part of a layer: `down(activation(gate(x)) * up(x))`, or without a gate
//! `down(activation(up(x)))`.

use candle_core::{D, DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::linear::Linear;
use crate::kernels::experts::ExpertLayers;
use crate::kernels::pointwise::{Activation, Gating, Xielu, gated_pairs, pointwise, xielu};
use crate::weights::{Loaded, WeightError, Weights};

/// Names and layout of a feed-forward part's projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MlpTensors {
    /// Gate, up and down.
    Gated([&'static str; 3]),
    /// Gate and up fused, the rows of up after those of gate; then down.
    GateAndUp([&'static str; 2]),
    /// Up and gate fused, the rows of gate after those of up; then down.
    UpAndGate([&'static str; 2]),
    /// Up and down; there is no gate.
    Plain([&'static str; 2]),
}

/// The shape and the variant of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements between the projections.
    pub intermediate_size: usize,
    /// Whether the projections have biases.
    pub bias: bool,
    /// Whether down has one even if the others have none.
    pub down_bias: bool,
    /// Activation of the gate or, without one, between the projections.
    pub activation: Activation,
    /// How gate and up are combined, if not as `activation(gate) * up`.
    pub gating: Option<Gating>,
    /// Factor of the gate, before its activation.
    pub gate_factor: f32,
    /// Name of the parameters of a learned activation, which replaces `activation`; only without a
    /// gate.
    pub learned_activation: Option<&'static str>,
    /// Names and layout of the projections.
    pub tensors: MlpTensors,
}

/// The weights of a feed-forward part.
#[derive(Debug)]
pub struct Mlp {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    activation: Activation,
    gating: Gating,
    gate_factor: f32,
    learned: Option<Xielu>,
}

impl Mlp {
    /// Loads the weights of `spec`.
    pub fn load(weights: &Weights, spec: MlpSpec) -> Loaded<Self> {
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
            MlpTensors::UpAndGate([both, down]) => {
                let both = weights.scope(both);
                let half = |rows| Linear::load_rows(&both, hidden, 2 * inner, bias, &[rows]);
                (Some(half(inner..2 * inner)?), half(0..inner)?, down)
            }
            MlpTensors::Plain([up, down]) => (None, load(up, hidden, inner)?, down),
        };
        let learned = spec.learned_activation.map(|name| load_xielu(&weights.scope(name)));
        let learned = learned.transpose()?;
        let down = Linear::load(&weights.scope(down), inner, hidden, bias || spec.down_bias)?;
        Ok(Self { learned, ..Self::new(gate, up, down, &spec) })
    }

    /// A feed-forward part with these projections.
    pub(super) fn new(gate: Option<Linear>, up: Linear, down: Linear, spec: &MlpSpec) -> Self {
        let gating = spec.gating.unwrap_or(Gating::Activation(spec.activation));
        let (activation, gate_factor) = (spec.activation, spec.gate_factor);
        Self { gate, up, down, activation, gating, gate_factor, learned: None }
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
        let plain = self.gate_factor.to_bits() == 1.0f32.to_bits();
        if plain && !adapters.change(&[Projection::Gate, Projection::Up]) {
            let dtype = if adapters.change(&[Projection::Down]) {
                DType::F32
            } else {
                self.down.input_type(x.elem_count() / x.dim(D::Minus1)?.max(1))
            };
            return Linear::forward_gated_as(dtype, self.gating, [gate, &self.up], x);
        }
        // Rows without an adapter get the bits of `forward_gated`.
        let [gate, up] = Linear::forward_each([gate, &self.up], x)?;
        let mut gate = adapters.add(Projection::Gate, x, gate, 1.0)?;
        if !plain {
            gate = (gate * f64::from(self.gate_factor))?;
        }
        let up = adapters.add(Projection::Up, x, up, 1.0)?;
        gated_pairs(self.gating, &gate, &up)
    }

    /// The projections as the device kernels of experts take them, if they are on a device.
    pub(super) fn on_device(&self) -> Option<ExpertLayers<'_>> {
        if self.learned.is_some() || self.gate_factor.to_bits() != 1.0f32.to_bits() {
            return None;
        }
        let gate = match &self.gate {
            Some(gate) => Some(gate.on_device()?),
            None => None,
        };
        Some(ExpertLayers { gate, up: self.up.on_device()?, down: self.down.on_device()? })
    }

    /// How gate and up are combined.
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

/// Loads `alpha_p`, `alpha_n` (both through a softplus) and, if it is there, `beta`.
fn load_xielu(weights: &Weights) -> Loaded<Xielu> {
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
