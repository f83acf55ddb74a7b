//! The gated delta rule in plain candle operations.

use candle_core::{D, Result, Tensor};

use super::super::runs::Run;
use super::args::{Gates, Heads, LENGTH_EPS};
use crate::pointwise::softplus;

/// See [`super::delta_rule`].
pub(super) fn delta_rule(
    qkv: &Tensor,
    gates: Gates<'_>,
    heads: Heads,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let Heads { keys, values, key_dim, value_dim, .. } = heads;
    let rows = qkv.dim(0)?;
    #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
    let root = (key_dim as f64).sqrt();
    // [T, values, key_dim, 1]
    let query = (shared(qkv, heads, 0)? / root)?;
    let key = shared(qkv, heads, 1)?;
    let value = qkv.narrow(1, 2 * keys * key_dim, values * value_dim)?;
    let value = value.reshape((rows, values, 1, value_dim))?;
    let write = (gates.write.neg()?.exp()? + 1.0)?.recip()?.reshape((rows, values, 1, 1))?;
    let write = (write * f64::from(gates.write_scale))?;
    let decay = gates.decay.broadcast_add(gates.bias)?.reshape((rows, values, ()))?;
    let rate = gates.rate.reshape((values, 1))?;
    let decay = match gates.bound {
        None => softplus(&decay)?.broadcast_mul(&rate)?,
        Some(bound) => ((decay.broadcast_mul(&rate)?.exp()? + 1.0)?.recip()? * f64::from(bound))?,
    };
    let decay = decay.exp()?.unsqueeze(3)?;
    let mut outputs = Vec::with_capacity(rows);
    for Run { rows, slot, starts } in runs {
        let kept = states.narrow(0, *slot, 1)?.reshape((values, key_dim, value_dim))?;
        let mut state = if *starts { kept.zeros_like()? } else { kept };
        for row in rows.clone() {
            let (key, query) = (key.get(row)?, query.get(row)?);
            state = state.broadcast_mul(&decay.get(row)?)?;
            let said = state.broadcast_mul(&key)?.sum_keepdim(1)?;
            let new = (value.get(row)? - said)?.broadcast_mul(&write.get(row)?)?;
            state = (state + key.broadcast_mul(&new)?)?;
            outputs.push(state.broadcast_mul(&query)?.sum(1)?.reshape((1, ()))?);
        }
        states.slice_set(&state.reshape((1, ()))?.force_contiguous()?, 0, *slot)?;
    }
    if outputs.is_empty() {
        return Tensor::zeros((rows, heads.outputs()), qkv.dtype(), qkv.device());
    }
    Tensor::cat(&outputs, 0)
}

/// The normalized queries (0) or keys (1) of all value heads: `[T, values, key_dim, 1]`.
fn shared(qkv: &Tensor, heads: Heads, which: usize) -> Result<Tensor> {
    let Heads { keys, values, key_dim, tiled, .. } = heads;
    let (rows, group) = (qkv.dim(0)?, values / keys);
    let own = qkv.narrow(1, which * keys * key_dim, keys * key_dim)?;
    let own = own.reshape((rows, keys, key_dim))?;
    let squares = own.sqr()?.sum_keepdim(D::Minus1)?;
    let own = own.broadcast_div(&(squares + f64::from(LENGTH_EPS))?.sqrt()?)?;
    let of_each = if tiled {
        own.unsqueeze(1)?.broadcast_as((rows, group, keys, key_dim))?
    } else {
        own.unsqueeze(2)?.broadcast_as((rows, keys, group, key_dim))?
    };
    of_each.reshape((rows, values, key_dim, 1))
}
