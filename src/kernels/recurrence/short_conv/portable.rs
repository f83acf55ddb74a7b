//! The short convolution in plain candle operations.

use candle_core::{Result, Tensor};

use super::super::runs::Run;
use super::args::Taps;
use crate::pointwise::portable::pointwise;

/// See [`super::short_conv`].
pub(super) fn short_conv(
    x: &Tensor,
    taps: Taps<'_>,
    states: &Tensor,
    runs: &[Run],
) -> Result<Tensor> {
    let (count, channels) = taps.weight.dims2()?;
    let mut outputs = Vec::with_capacity(runs.len());
    for Run { rows, slot, starts } in runs {
        let kept = states.narrow(0, *slot, 1)?.reshape((count - 1, channels))?;
        let kept = if *starts { kept.zeros_like()? } else { kept };
        let inputs = Tensor::cat(&[&kept, &x.narrow(0, rows.start, rows.len())?], 0)?;
        let tap = |tap: usize| {
            let weight = taps.weight.narrow(0, tap, 1)?;
            inputs.narrow(0, tap, rows.len())?.broadcast_mul(&weight)
        };
        let mut sum = tap(0)?;
        for other in 1..count {
            sum = (sum + tap(other)?)?;
        }
        if let Some(bias) = taps.bias {
            sum = sum.broadcast_add(bias)?;
        }
        outputs.push(match taps.activation {
            Some(activation) => pointwise(activation, &sum)?,
            None => sum,
        });
        let last = inputs.narrow(0, rows.len(), count - 1)?.force_contiguous()?;
        states.slice_set(&last.reshape((1, ()))?, 0, *slot)?;
    }
    if outputs.is_empty() {
        return x.zeros_like();
    }
    Tensor::cat(&outputs, 0)
}
