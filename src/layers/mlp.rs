//! The feed-forward part of a layer: `down(activation(gate(x)) * up(x))`, or without a gate
//! `down(activation(up(x)))`.

use candle_core::{DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::linear::Linear;
use crate::kernels::pointwise::{Activation, Xielu, pointwise, xielu};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements between the projections.
    pub intermediate_size: usize,
    /// Biases of all projections.
    pub bias: bool,
    /// What is applied to the gate or, without one, between the projections.
    pub activation: Activation,
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
    learned: Option<Xielu>,
}

impl Mlp {
    /// Loads the projections.
    pub fn load(weights: &Weights, spec: MlpSpec) -> std::result::Result<Self, WeightError> {
        let MlpSpec { hidden_size: hidden, intermediate_size: inner, bias, activation, .. } = spec;
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
        Ok(Self { gate, up, down: load(down, inner, hidden)?, activation, learned })
    }

    /// Loads expert `index` of `count` from `[count, 2 * inner, hidden]`, gates before ups, and
    /// `[count, hidden, inner]`.
    pub(super) fn load_stacked(
        weights: &Weights,
        [gate_up, down]: [&str; 2],
        spec: MlpSpec,
        index: usize,
        count: usize,
    ) -> std::result::Result<Self, WeightError> {
        let MlpSpec { hidden_size: hidden, intermediate_size: inner, activation, .. } = spec;
        let part = |name, shape: [usize; 3], first: usize, rows: usize| {
            let start = index * shape[1] + first;
            Linear::load_part(weights, name, &shape, start..start + rows)
        };
        Ok(Self {
            gate: Some(part(gate_up, [count, 2 * inner, hidden], 0, inner)?),
            up: part(gate_up, [count, 2 * inner, hidden], inner, inner)?,
            down: part(down, [count, hidden, inner], 0, hidden)?,
            activation,
            learned: None,
        })
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
            return Linear::forward_gated(self.activation, gate, &self.up, x);
        }
        // To the bit what `forward_gated` gives for rows that nothing is added to.
        let [gate, up] = Linear::forward_each([gate, &self.up], x)?;
        let gate = adapters.add(Projection::Gate, x, gate, 1.0)?;
        let up = adapters.add(Projection::Up, x, up, 1.0)?;
        pointwise(self.activation, &gate)? * up
    }

    fn activate(&self, x: &Tensor) -> Result<Tensor> {
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
