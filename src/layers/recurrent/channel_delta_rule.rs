//! Linear attention by the delta rule whose states forget each element of a key at a rate of its own, after
//! a short convolution; its output is normalized and gated.
//!
//! Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025, section 3.

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::pointwise::{Activation, sigmoid};
use crate::kernels::recurrence::delta_rule::{Gates, Heads, delta_rule};
use crate::kernels::recurrence::short_conv::short_conv;
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::layers::norm::RmsNorm;
use crate::weights::{Loaded, Weights};

/// Sizes and variant of linear attention that forgets elements of keys one by one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelDeltaRuleSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Number of heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Activation of the convolution.
    pub activation: Activation,
    /// The least logarithm of a decay, if there is one.
    pub bound: Option<f32>,
    /// Epsilon of the norm of the output.
    pub norm_eps: f32,
}

impl ChannelDeltaRuleSpec {
    fn heads(&self) -> Heads {
        let Self { heads, head_dim, .. } = *self;
        let (key_dim, value_dim, tiled) = (head_dim, head_dim, false);
        Heads { keys: heads, values: heads, key_dim, value_dim, tiled }
    }

    /// Number of elements of the states of the convolution and of the heads.
    pub(super) fn states(&self) -> Vec<usize> {
        let heads = self.heads();
        vec![(self.taps - 1) * heads.inputs(), heads.state()]
    }

    /// Number of elements of a row before the output projection.
    pub(super) fn outputs(&self) -> usize {
        self.heads().outputs()
    }
}

/// The weights of linear attention that forgets elements of keys one by one.
#[derive(Debug)]
pub(super) struct ChannelDeltaRule {
    heads: Heads,
    bound: Option<f32>,
    /// Projections to queries, to keys, to values and to `write`.
    inputs: [Linear; 4],
    gate: Projection,
    decay: Projection,
    taps: ConvTaps,
    /// `[heads]`
    rate: Tensor,
    /// `[heads * head_dim]`
    bias: Tensor,
    norm: RmsNorm,
}

impl ChannelDeltaRule {
    pub(super) fn load(weights: &Weights, spec: ChannelDeltaRuleSpec) -> Loaded<Self> {
        let ChannelDeltaRuleSpec { hidden_size, heads, head_dim, norm_eps, .. } = spec;
        let inner = heads * head_dim;
        let linear =
            |name: &str, outputs| Linear::load(&weights.scope(name), hidden_size, outputs, false);
        let convolutions = ["q_conv1d", "k_conv1d", "v_conv1d"].map(|name| weights.scope(name));
        let taps = ConvTaps::load_each(&convolutions, inner, spec.taps)?;
        let norm = weights.dense("o_norm.weight", &[head_dim], DType::F32)?;
        let gates = |name| Projection::load(weights, name, [hidden_size, head_dim, inner]);
        Ok(Self {
            heads: spec.heads(),
            bound: spec.bound,
            inputs: [
                linear("q_proj", inner)?,
                linear("k_proj", inner)?,
                linear("v_proj", inner)?,
                linear("b_proj", heads)?,
            ],
            gate: gates(["g_proj", "g_a_proj", "g_b_proj"])?,
            decay: gates(["f_proj", "f_a_proj", "f_b_proj"])?,
            taps: taps.activated(spec.activation),
            rate: if weights.contains("A") {
                weights.dense("A", &[heads], DType::F32)?
            } else {
                weights.dense("A_log", &[heads], DType::F32)?.exp()?.neg()?
            },
            bias: weights.dense("dt_bias", &[inner], DType::F32)?,
            norm: RmsNorm::new(norm, norm_eps),
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [conv, rule] = states else { bail!("{} states, expected 2", states.len()) };
        let [query, key, value, write] = Linear::forward_each(self.inputs.each_ref(), x)?;
        let qkv = Tensor::cat(&[query, key, value], 1)?;
        let qkv = short_conv(&qkv, self.taps.taps(), conv, step)?;
        let decay = self.decay.forward(x)?;
        let (rate, bias, bound) = (&self.rate, &self.bias, self.bound);
        let gates = Gates { write: &write, write_scale: 1.0, decay: &decay, rate, bias, bound };
        let y = delta_rule(&qkv, gates, self.heads, rule, step)?;
        let (rows, inner) = y.dims2()?;
        let y = y.reshape((rows, self.heads.values, self.heads.value_dim))?;
        let y = self.norm.forward(&y)?.reshape((rows, inner))?;
        y * sigmoid(&self.gate.forward(x)?)?
    }
}

/// A projection, which may be stored as the product of two matrices of low rank.
#[derive(Debug)]
enum Projection {
    Whole(Linear),
    LowRank([Linear; 2]),
}

impl Projection {
    /// The linear layer of the first name, else those of the others.
    fn load(
        weights: &Weights,
        [whole, down, up]: [&str; 3],
        [inputs, rank, outputs]: [usize; 3],
    ) -> Loaded<Self> {
        let load = |name: &str, inputs, outputs| {
            Linear::load(&weights.scope(name), inputs, outputs, false)
        };
        if weights.contains(&format!("{whole}.weight")) {
            return load(whole, inputs, outputs).map(Self::Whole);
        }
        Ok(Self::LowRank([load(down, inputs, rank)?, load(up, rank, outputs)?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Whole(layer) => layer.forward(x),
            Self::LowRank([down, up]) => up.forward(&down.forward(x)?),
        }
    }
}
