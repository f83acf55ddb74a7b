//! The gated delta rule: a matrix for each head that forgets, and that takes of each token what it
//! doesn't say of the token's key already.
//!
//! Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024,
//! section 3.1. With the state `S [key_dim, value_dim]`, a normalized key `k` and query `q`, a token
//! makes `S' = decay * S`, `S = S' + k (write * (v - S'^T k))^T` and gives `S^T q`.

use candle_core::{Result, Tensor, bail};

use self::args::NAME;
pub use self::args::{Gates, Heads};
use crate::backend::Backend;
use crate::step::Step;

mod args;
mod cpu;
mod cuda;
mod portable;
#[cfg(test)]
mod tests;

/// The outputs `[T, values * value_dim]` of all heads, of `qkv [T, inputs]`: each token's queries, keys
/// and values. `states [slots, values * key_dim * value_dim]` are changed.
/// Where each element of a key has a decay of its own, `decay * S` is of each row of `S` (Kimi Delta Attention:
/// Kimi Team, "Kimi Linear", 2025).
/// Queries and keys are divided by their length, queries by the root of `key_dim` too.
///
/// # Errors
///
/// Shapes or runs that don't fit; no state is changed then.
pub fn delta_rule(
    qkv: &Tensor,
    gates: Gates<'_>,
    heads: Heads,
    states: &Tensor,
    step: &Step,
) -> Result<Tensor> {
    let (rows, inputs) = qkv.dims2()?;
    let (slots, kept) = states.dims2()?;
    let Heads { keys, values, key_dim, value_dim, .. } = heads;
    if keys == 0 || !values.is_multiple_of(keys) || key_dim == 0 || value_dim == 0 {
        bail!("{NAME}: {heads:?}");
    }
    if inputs != heads.inputs() || kept != heads.state() {
        bail!("{NAME}: rows of {inputs} and states of {kept} for {heads:?}");
    }
    let by_element = gates.is_by_element(heads);
    let decays = if by_element { values * key_dim } else { values };
    let of_tokens = gates.write.dims() == [rows, values] && gates.decay.dims() == [rows, decays];
    let of_heads = gates.rate.dims() == [values] && gates.bias.dims() == [decays];
    if !of_tokens || !of_heads || gates.bound.is_some() && !by_element {
        bail!("{NAME}: gates of other shapes than {rows} rows of {values} heads");
    }
    match Backend::of(qkv.device()) {
        Backend::Cpu(level) => {
            cpu::delta_rule(level, qkv, gates, heads, states, &step.runs(NAME, rows, slots)?)
        }
        Backend::Cuda => {
            step.check_runs(NAME, rows, slots)?;
            cuda::delta_rule(qkv, gates, heads, states, step)
        }
        Backend::Portable => {
            portable::delta_rule(qkv, gates, heads, states, &step.runs(NAME, rows, slots)?)
        }
    }
}
