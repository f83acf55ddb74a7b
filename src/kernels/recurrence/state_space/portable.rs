//! The selective state space in plain candle operations.

use candle_core::{Result, Tensor};

use super::super::runs::Run;
use super::args::Heads;

/// See [`super::state_space`].
pub(super) fn state_space(
    x: &Tensor,
    steps: &Tensor,
    heads: Heads<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (rows, count) = steps.dims2()?;
    let Heads { head_dim, state_size, groups, .. } = heads;
    let inner = count * head_dim;
    let steps = time_steps(&steps.broadcast_add(heads.step_bias)?, heads.step_limits)?;
    let fadings = steps.broadcast_mul(heads.decay)?.exp()?;
    let inputs = x.narrow(1, 0, inner)?.reshape((rows, count, 1, head_dim))?;
    // A group's vectors, for each of its heads: [T, H, N].
    let vectors = |first: usize| {
        let own = x.narrow(1, first, groups * state_size)?;
        let own = own.reshape((rows, groups, 1, state_size))?;
        own.broadcast_as((rows, groups, count / groups, state_size))?
            .reshape((rows, count, state_size))
    };
    let writes = vectors(inner)?.broadcast_mul(&steps.unsqueeze(2)?)?;
    let reads = vectors(inner + groups * state_size)?;
    let skip = heads.skip.unsqueeze(1)?;
    let mut outputs = Vec::with_capacity(rows);
    for Run { rows, slot, starts } in runs {
        let kept = states.narrow(0, *slot, 1)?.reshape((count, state_size, head_dim))?;
        let mut state = if *starts { kept.zeros_like()? } else { kept };
        for row in rows.clone() {
            let fading = fadings.get(row)?.reshape((count, 1, 1))?;
            let (input, write) = (inputs.get(row)?, writes.get(row)?.unsqueeze(2)?);
            state = (state.broadcast_mul(&fading)? + write.broadcast_mul(&input)?)?;
            let y = state.broadcast_mul(&reads.get(row)?.unsqueeze(2)?)?.sum(1)?;
            let y = (y + input.squeeze(1)?.broadcast_mul(&skip)?)?;
            outputs.push(y.reshape((1, inner))?);
        }
        states.slice_set(&state.reshape((1, ()))?, 0, *slot)?;
    }
    if outputs.is_empty() {
        return x.narrow(1, 0, inner)?.zeros_like();
    }
    Tensor::cat(&outputs, 0)
}

/// Softplus within limits, written so that it doesn't overflow.
fn time_steps(x: &Tensor, [least, most]: [f32; 2]) -> Result<Tensor> {
    let beyond = (x.abs()?.neg()?.exp()? + 1.0)?.log()?;
    let steps = (x.relu()? + beyond)?.maximum(least)?;
    if most.is_finite() { steps.minimum(most) } else { Ok(steps) }
}
