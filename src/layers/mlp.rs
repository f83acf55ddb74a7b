//! The feed-forward part of a layer: `down(activation(gate(x)) * up(x))`, or without a gate
//! `down(activation(up(x)))`.

use candle_core::{D, DType, Result, Tensor};

use super::adapter::{LayerAdapters, Projection};
use super::linear::{Linear, LowRank};
use super::norm::{Norm, NormSpec};
use super::normed::Normed;
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

impl MlpTensors {
    /// The names of the first and of the last projection.
    pub fn names(&self) -> [&'static str; 2] {
        match *self {
            Self::Gated([first, _, last])
            | Self::GateAndUp([first, last])
            | Self::UpAndGate([first, last])
            | Self::Plain([first, last]) => [first, last],
        }
    }
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
    /// How many standard deviations above their mean a token's gates count as zero; others are as far
    /// from zero as from there.
    pub gate_threshold: Option<f32>,
    /// Name of the parameters of a learned activation, which replaces `activation`; only without a
    /// gate.
    pub learned_activation: Option<&'static str>,
    /// Name and variant of the norm of what the last projection is of.
    pub inner_norm: Option<(&'static str, NormSpec)>,
    /// Learned scales of gates and ups. Only with a gate, and not in experts.
    pub scales: Option<GateAndUpScales>,
    /// Names and layout of the projections.
    pub tensors: MlpTensors,
}

/// Learned scales of gates and of ups, one for each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateAndUpScales {
    /// Their names.
    pub names: [&'static str; 2],
    /// What both are multiplied by.
    pub factor: f32,
}

/// The weights of a feed-forward part. Clones share them.
#[derive(Clone, Debug)]
pub struct Mlp {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    activation: Activation,
    gating: Gating,
    gate_factor: f32,
    gate_threshold: Option<f32>,
    learned: Option<Xielu>,
    inner_norm: Option<Norm>,
    /// `[inner]` each: of gates and of ups.
    scales: Option<[Tensor; 2]>,
    /// What is added to gate and up, side by side.
    change: Option<LowRank>,
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
        let norm = |(name, norm): (&str, _)| Norm::load(&weights.scope(name), inner, norm);
        let inner_norm = spec.inner_norm.map(norm).transpose()?;
        let scales = |GateAndUpScales { names, factor }| {
            let load = |name: &str| {
                let scales = weights.dense(name, &[inner], DType::F32)?;
                Ok::<_, WeightError>((scales * f64::from(factor))?)
            };
            Ok::<_, WeightError>([load(names[0])?, load(names[1])?])
        };
        let scales = spec.scales.map(scales).transpose()?;
        Ok(Self { learned, inner_norm, scales, ..Self::new(gate, up, down, &spec) })
    }

    /// A feed-forward part with these projections.
    pub(super) fn new(gate: Option<Linear>, up: Linear, down: Linear, spec: &MlpSpec) -> Self {
        let gating = spec.gating.unwrap_or(Gating::Activation(spec.activation));
        let MlpSpec { activation, gate_factor, gate_threshold, .. } = *spec;
        Self {
            gate,
            up,
            down,
            activation,
            gating,
            gate_factor,
            gate_threshold,
            learned: None,
            inner_norm: None,
            scales: None,
            change: None,
        }
    }

    /// The same weights with a change of low rank to gate and up, whose outputs are side by side.
    #[must_use]
    pub fn with_low_rank(&self, change: LowRank) -> Self {
        Self { change: Some(change), ..self.clone() }
    }

    /// The type in which so many rows of inputs are best given: see [`Linear::input_type`].
    pub fn input_type(&self, rows: usize, adapters: LayerAdapters<'_>) -> DType {
        if self.change.is_some() || adapters.change(&[Projection::Gate, Projection::Up]) {
            return DType::F32;
        }
        let up = self.up.input_type(rows);
        let same = self.gate.as_ref().is_none_or(|gate| gate.input_type(rows) == up);
        if same { up } else { DType::F32 }
    }

    /// `mlp(x)`, both `[.., hidden]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.adapted(&Normed::plain(x), LayerAdapters::none())
    }

    /// `residual + factor * mlp(x)`, all `[.., hidden]`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        self.adapted_add(&Normed::plain(x), residual, factor, LayerAdapters::none())
    }

    /// As [`forward`](Self::forward), with the adapters of the rows.
    pub fn adapted(&self, x: &Normed<'_>, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        if let Some(y) = self.at_once(x, None, adapters)? {
            return Ok(y);
        }
        let inner = self.inner(x, adapters)?;
        adapters.add(Projection::Down, &inner, self.down.forward(&inner)?, 1.0)
    }

    /// As [`forward_add`](Self::forward_add), with the adapters of the rows.
    pub fn adapted_add(
        &self,
        x: &Normed<'_>,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        if let Some(sum) = self.at_once(x, Some((residual, factor)), adapters)? {
            return Ok(sum);
        }
        let inner = self.inner(x, adapters)?;
        let sum = self.down.forward_add_scaled(&inner, residual, factor)?;
        adapters.add(Projection::Down, &inner, sum, factor)
    }

    /// The gate, if nothing comes between gate and up and their combination.
    fn plain_gate(&self, adapters: LayerAdapters<'_>) -> Option<&Linear> {
        let plain = self.gate_factor.to_bits() == 1.0f32.to_bits()
            && self.gate_threshold.is_none()
            && self.change.is_none()
            && self.scales.is_none()
            && !adapters.change(&[Projection::Gate, Projection::Up]);
        self.gate.as_ref().filter(|_| plain)
    }

    /// Whether the last projection alone takes the inner rows, as they are.
    fn down_alone(&self, adapters: LayerAdapters<'_>) -> bool {
        self.inner_norm.is_none() && !adapters.change(&[Projection::Down])
    }

    /// `y = mlp(x)`, or `residual + factor * y`, where nothing but an activation comes between the
    /// projections and there are kernels that go from one to the next.
    fn at_once(
        &self,
        x: &Normed<'_>,
        residual: Option<(&Tensor, f32)>,
        adapters: LayerAdapters<'_>,
    ) -> Result<Option<Tensor>> {
        if !self.down_alone(adapters) {
            return Ok(None);
        }
        let Some(gate) = self.plain_gate(adapters) else { return Ok(None) };
        Linear::gated_mlp(self.gating, [gate, &self.up, &self.down], x, residual)
    }

    /// What the last projection is of.
    fn inner(&self, x: &Normed<'_>, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let inner = self.activated(x, adapters)?;
        self.inner_norm.as_ref().map_or(Ok(inner.clone()), |norm| norm.forward(&inner))
    }

    fn activated(&self, x: &Normed<'_>, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let Some(gate) = &self.gate else {
            let x = x.tensor()?;
            return self.activate(&adapters.add(Projection::Up, x, self.up.forward(x)?, 1.0)?);
        };
        if let Some(gate) = self.plain_gate(adapters) {
            let dtype = if self.down_alone(adapters) {
                self.down.input_type(x.rows()?)
            } else {
                DType::F32
            };
            return Linear::normed_gated_as(dtype, self.gating, [gate, &self.up], x);
        }
        let x = x.tensor()?;
        // Rows without an adapter get the bits of `forward_gated`.
        let [gate, up] = Linear::forward_each([gate, &self.up], x)?;
        let mut gate = adapters.add(Projection::Gate, x, gate, 1.0)?;
        let mut up = up;
        if let Some(change) = &self.change {
            let both = change.add(x, &Tensor::cat(&[&gate, &up], D::Minus1)?)?;
            let inner = both.dim(D::Minus1)? / 2;
            gate = both.narrow(D::Minus1, 0, inner)?.contiguous()?;
            up = both.narrow(D::Minus1, inner, inner)?.contiguous()?;
        }
        if let Some([gates, ups]) = &self.scales {
            gate = gate.broadcast_mul(gates)?;
            up = up.broadcast_mul(ups)?;
        }
        if self.gate_factor.to_bits() != 1.0f32.to_bits() {
            gate = (gate * f64::from(self.gate_factor))?;
        }
        if let Some(deviations) = self.gate_threshold {
            gate = above(&gate, deviations)?;
        }
        let up = adapters.add(Projection::Up, x, up, 1.0)?;
        gated_pairs(self.gating, &gate, &up)
    }

    /// The projections as the device kernels of experts take them, if they are on a device.
    pub(super) fn on_device(&self) -> Option<ExpertLayers<'_>> {
        if self.learned.is_some()
            || self.inner_norm.is_some()
            || self.scales.is_some()
            || self.gate_threshold.is_some()
            || self.gate_factor.to_bits() != 1.0f32.to_bits()
        {
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

/// How far the elements of each row are above a threshold, `deviations` standard deviations beyond their
/// mean; zero for those below.
fn above(x: &Tensor, deviations: f32) -> Result<Tensor> {
    let mean = x.mean_keepdim(D::Minus1)?;
    let deviation = x.broadcast_sub(&mean)?.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
    x.broadcast_sub(&(mean + deviation * f64::from(deviations))?)?.relu()
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
