//! The experts of a layer: which ones a token goes to, and kernels of a GPU for all of them, where the
//! host doesn't wait to learn which tokens go where.

use candle_core::{Device, Result, Tensor};

pub use self::args::ExpertLayers;
pub use self::routing::{Groups, Routing, Score};
use super::backend::Backend;
use super::pointwise::Gating;

mod args;
mod cuda;
mod matrices;
mod routing;

/// The experts of a layer, with kernels for them.
#[derive(Debug)]
pub struct DeviceExperts(cuda::OnDevice);

impl DeviceExperts {
    /// Experts on `device`; `None` if there are no kernels for them. The vectors, `[E]` each, are
    /// biases of scores for the choice alone, and factors of experts' weights.
    pub fn new(
        device: &Device,
        experts: &[ExpertLayers<'_>],
        vectors: [Option<&[f32]>; 2],
    ) -> Result<Option<Self>> {
        if !Backend::of(device).is_cuda() {
            return Ok(None);
        }
        Ok(cuda::OnDevice::new(experts, vectors)?.map(Self))
    }

    /// Whether the kernels are the better way for so many tokens; `weighs_inputs` as for
    /// [`forward_add`](Self::forward_add).
    pub fn takes(&self, tokens: usize, routing: Routing, weighs_inputs: bool) -> bool {
        self.0.takes(tokens, routing, weighs_inputs)
    }

    /// `residual + factor * experts(x)`, all `[T, hidden]`, by the router's `scores [T, E]`. Experts
    /// without a gate have `activate` between their layers, which is given `[T * P, inner]` for the `P`
    /// experts of each token and gives as much; `gating` is for those with gates. If `weighs_inputs`, weights are
    /// applied to what experts are given, else to what they give.
    pub fn forward_add(
        &self,
        [x, scores, residual]: [&Tensor; 3],
        routing: Routing,
        gating: Option<Gating>,
        activate: impl Fn(&Tensor) -> Result<Tensor>,
        (factor, weighs_inputs): (f32, bool),
    ) -> Result<Tensor> {
        let chosen = self.0.choose(scores, routing, weighs_inputs)?;
        let inner = self.0.enter(x, &chosen, gating, weighs_inputs)?;
        let inner = if self.0.is_gated() { inner } else { activate(&inner)? };
        self.0.leave(&inner, &chosen, residual, factor, weighs_inputs)
    }
}
