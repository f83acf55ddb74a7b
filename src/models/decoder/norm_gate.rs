//! A gate of low rank behind a norm.

use candle_core::{Result, Tensor};

use super::spec::DecoderSpec;
use crate::kernels::pointwise::{Activation, pointwise, sigmoid};
use crate::layers::linear::Linear;
use crate::weights::{Loaded, WeightError, Weights};

/// The projections of a gate.
pub(super) struct NormGate {
    down: Linear,
    up: Linear,
}

impl NormGate {
    /// Loads those of a layer's norms that there are.
    pub(super) fn load(weights: &Weights, spec: &DecoderSpec) -> Loaded<[Option<Self>; 2]> {
        let Some(gates) = spec.norm_gates else { return Ok([None, None]) };
        let (hidden, rank) = (spec.mlp.hidden_size, gates.rank);
        let [mixer, mlp] = gates.norms.map(|name| {
            let own = weights.scope(name);
            own.contains("W_down.weight").then(|| {
                let down = Linear::load(&own.scope("W_down"), hidden, rank, false)?;
                let up = Linear::load(&own.scope("W_up"), rank, hidden, false)?;
                Ok::<_, WeightError>(Self { down, up })
            })
        });
        Ok([mixer.transpose()?, mlp.transpose()?])
    }

    /// `x [num_tokens, hidden]` times its gate.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = pointwise(Activation::Silu, &self.down.forward(x)?)?;
        x * sigmoid(&self.up.forward(&inner)?)?
    }
}
