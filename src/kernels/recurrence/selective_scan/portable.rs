//! The selective scan in plain candle operations.

use candle_core::{Result, Tensor};

use super::super::runs::Run;
use super::args::Channels;
use crate::pointwise::softplus;

/// See [`super::selective_scan`].
pub(super) fn selective_scan(
    [x, steps, vectors]: [&Tensor; 3],
    channels: Channels<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (size, width) = channels.decay.dims2()?;
    let steps = softplus(steps)?;
    let inputs = (x * &steps)?;
    let mut outputs = Vec::new();
    for Run { rows, slot, starts } in runs {
        let kept = states.narrow(0, *slot, 1)?.reshape((size, width))?;
        let mut state = if *starts { kept.zeros_like()? } else { kept };
        for row in rows.clone() {
            let fading = channels.decay.broadcast_mul(&steps.get(row)?)?.exp()?;
            let vectors = vectors.get(row)?;
            let part = |first| vectors.narrow(0, first, size)?.unsqueeze(1);
            let taken = part(0)?.broadcast_mul(&inputs.get(row)?.unsqueeze(0)?)?;
            state = ((state * fading)? + taken)?;
            let y = state.broadcast_mul(&part(size)?)?.sum(0)?;
            outputs.push((y + (x.get(row)? * channels.skip)?)?.unsqueeze(0)?);
        }
        states.slice_set(&state.reshape((1, ()))?, 0, *slot)?;
    }
    if outputs.is_empty() { x.zeros_like() } else { Tensor::cat(&outputs, 0) }
}
