//! Linear attention by the gated delta rule, after a short convolution; its output is normalized
//! and gated.
//!
//! Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024, section 3.4; in the form of
//! Qwen3-Next.

use std::ops::Range;

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::pointwise::{Activation, Gating, gated_pairs};
use crate::kernels::recurrence::delta_rule::{Gates, Heads, delta_rule};
use crate::kernels::recurrence::short_conv::short_conv;
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::layers::norm::RmsNorm;
use crate::weights::{Loaded, Weights};

/// Sizes and variant of linear attention by the gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaRuleSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Numbers and sizes of heads.
    pub heads: Heads,
    /// Tokens that the convolution sees.
    pub taps: usize,
    /// Activation of the convolution.
    pub activation: Activation,
    /// Epsilon of the norm of the output.
    pub norm_eps: f32,
    /// Factor of how much a token writes: 1, or 2 where it may turn what a state says of its key around.
    pub write_scale: f32,
}

impl DeltaRuleSpec {
    /// Number of elements of the states of the convolution and of the heads.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![(self.taps - 1) * self.heads.inputs(), self.heads.state()]
    }

    /// Number of elements of a row before the output projection.
    pub(super) fn outputs(&self) -> usize {
        self.heads.outputs()
    }
}

/// The weights of linear attention by the gated delta rule.
#[derive(Debug)]
pub(super) struct DeltaRule {
    heads: Heads,
    inputs: Inputs,
    write_scale: f32,
    taps: ConvTaps,
    /// `[values]`
    rate: Tensor,
    /// `[values]`
    bias: Tensor,
    norm: RmsNorm,
}

/// The projections of hidden states.
#[derive(Debug)]
enum Inputs {
    /// To queries, keys and values, to the gate of the output, to `write` and to `decay`.
    Joint([Linear; 4]),
    /// The same with a projection each to queries, keys and values.
    Separate([Linear; 6]),
}

impl Inputs {
    /// Loads four projections, which may all be fused to `in_proj`, or by twos to `in_proj_qkvz` and
    /// `in_proj_ba`; or six.
    fn load(weights: &Weights, hidden: usize, heads: Heads) -> Loaded<Self> {
        let whole =
            |name: &str, outputs| Linear::load(&weights.scope(name), hidden, outputs, false);
        let part = |name: &str, outputs, rows: &[Range<usize>]| {
            Linear::load_rows(&weights.scope(name), hidden, outputs, false, rows)
        };
        let (outputs, values) = (heads.outputs(), heads.values);
        if weights.contains("q_proj.weight") {
            let keys = heads.keys * heads.key_dim;
            return Ok(Self::Separate([
                whole("q_proj", keys)?,
                whole("k_proj", keys)?,
                whole("v_proj", outputs)?,
                whole("g_proj", outputs)?,
                whole("b_proj", values)?,
                whole("a_proj", values)?,
            ]));
        }
        if weights.contains("in_proj.weight") {
            let counts = [heads.inputs(), outputs, values, values];
            let all: usize = counts.iter().sum();
            let own = |index: usize| {
                let start: usize = counts[..index].iter().sum();
                let rows = start..start + counts[index];
                part("in_proj", all, std::slice::from_ref(&rows))
            };
            return Ok(Self::Joint([own(0)?, own(1)?, own(2)?, own(3)?]));
        }
        let [qkv, gate] = if weights.contains("in_proj_qkvz.weight") {
            let [query, key, value, gate] = grouped(heads.keys, by_key_head(heads));
            let qkv = [query, key, value].concat();
            let rows = heads.inputs() + outputs;
            [part("in_proj_qkvz", rows, &qkv)?, part("in_proj_qkvz", rows, &gate)?]
        } else {
            [whole("in_proj_qkv", heads.inputs())?, whole("in_proj_z", outputs)?]
        };
        let [write, decay] = if weights.contains("in_proj_ba.weight") {
            let [write, decay] = grouped(heads.keys, [values / heads.keys; 2]);
            let load = |rows: &[Range<usize>]| part("in_proj_ba", 2 * values, rows);
            [load(&write)?, load(&decay)?]
        } else {
            [whole("in_proj_b", values)?, whole("in_proj_a", values)?]
        };
        Ok(Self::Joint([qkv, gate, write, decay]))
    }

    /// Queries, keys and values side by side; the gate, `write` and `decay`.
    fn forward(&self, x: &Tensor) -> Result<[Tensor; 4]> {
        match self {
            Self::Joint(all) => Linear::forward_each(all.each_ref(), x),
            Self::Separate(all) => {
                let [query, key, value, gate, write, decay] =
                    Linear::forward_each(all.each_ref(), x)?;
                Ok([Tensor::cat(&[query, key, value], 1)?, gate, write, decay])
            }
        }
    }
}

impl DeltaRule {
    /// Loads the projections of [`Inputs`]. The rate is `-exp(A_log)`, or stored as `A`.
    pub(super) fn load(weights: &Weights, spec: DeltaRuleSpec) -> Loaded<Self> {
        let DeltaRuleSpec { hidden_size, heads, taps, activation, norm_eps, write_scale } = spec;
        let values = heads.values;
        let names = ["norm.weight", "out_norm.weight", "o_norm.weight"];
        let norm = names.into_iter().find(|name| weights.contains(name)).unwrap_or(names[0]);
        let norm = weights.dense(norm, &[heads.value_dim], DType::F32)?;
        Ok(Self {
            heads,
            inputs: Inputs::load(weights, hidden_size, heads)?,
            write_scale,
            taps: load_taps(weights, heads, taps)?.activated(activation),
            rate: if weights.contains("A") {
                weights.dense("A", &[values], DType::F32)?
            } else {
                weights.dense("A_log", &[values], DType::F32)?.exp()?.neg()?
            },
            bias: weights.dense("dt_bias", &[values], DType::F32)?,
            norm: RmsNorm::new(norm, norm_eps),
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [conv, rule] = states else { bail!("{} states, expected 2", states.len()) };
        let [qkv, gate, write, decay] = self.inputs.forward(x)?;
        let qkv = short_conv(&qkv, self.taps.taps(), conv, step)?;
        let (write_scale, rate, bias) = (self.write_scale, &self.rate, &self.bias);
        let gates = Gates { write: &write, write_scale, decay: &decay, rate, bias, bound: None };
        let y = delta_rule(&qkv, gates, self.heads, rule, step)?;
        let heads = (y.dim(0)?, self.heads.values, self.heads.value_dim);
        let y = self.norm.forward(&y.reshape(heads)?)?.reshape(gate.dims2()?)?;
        gated_pairs(Gating::Activation(Activation::Silu), &gate, &y)
    }
}

/// Loads the convolution of queries, keys and values: one, or one of each.
fn load_taps(weights: &Weights, heads: Heads, taps: usize) -> Loaded<ConvTaps> {
    if weights.contains("conv1d.weight") {
        return ConvTaps::load(&weights.scope("conv1d"), heads.inputs(), taps, false);
    }
    let each = ["q_conv1d", "k_conv1d", "v_conv1d"].map(|name| weights.scope(name));
    let keys = heads.keys * heads.key_dim;
    ConvTaps::load_parts(&each, &[keys, keys, heads.outputs()], taps).or_else(|error| {
        // Transformers saves the convolution of all channels in three parts as equal as they can be.
        let all = heads.inputs();
        let part = all.div_ceil(3);
        let parts = [part, part, all.saturating_sub(2 * part)];
        ConvTaps::load_parts(&each, &parts, taps).map_err(|_| error)
    })
}

/// Numbers of rows of a key head's query, key, values and gates.
fn by_key_head(heads: Heads) -> [usize; 4] {
    let own = heads.outputs() / heads.keys;
    [heads.key_dim, heads.key_dim, own, own]
}

/// The rows of each kind in a tensor that is fused key head by key head.
fn grouped<const N: usize>(key_heads: usize, counts: [usize; N]) -> [Vec<Range<usize>>; N] {
    let all: usize = counts.iter().sum();
    std::array::from_fn(|kind| {
        let before: usize = counts[..kind].iter().sum();
        let starts = (0..key_heads).map(|head| head * all + before);
        starts.map(|start| start..start + counts[kind]).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_each_kind_are_found_head_by_head() {
        let [query, key, value] = grouped(2, [2, 1, 3]);
        assert_eq!((query, key, value), (vec![0..2, 6..8], vec![2..3, 8..9], vec![3..6, 9..12]));
    }
}
