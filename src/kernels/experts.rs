//! Experts on a GPU, where the host doesn't wait to learn which tokens go where.

use candle_core::{Device, Result, Tensor};

use super::cuda;
use super::linear::DeviceLayer;
use super::pointwise::Gating;

/// One expert's layers.
#[derive(Clone, Copy, Debug)]
pub struct ExpertLayers<'a> {
    /// The one that is activated, if there is a gate.
    pub gate: Option<DeviceLayer<'a>>,
    /// Into the expert.
    pub up: DeviceLayer<'a>,
    /// Out of it.
    pub down: DeviceLayer<'a>,
}

/// How the router's numbers become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// Each on its own.
    Sigmoid,
    /// The same, but experts are chosen by the numbers before, of which more differ.
    SigmoidOfChosen,
}

/// How experts are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// What scores are.
    pub score: Score,
    /// Experts that a token goes to.
    pub per_token: usize,
    /// Groups of equal size, how many are looked at, how many scores count for one.
    pub groups: Option<[usize; 3]>,
    /// Divide the chosen experts' scores by their sum.
    pub renormalize: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// `[E]` in f32: counts for the choice alone.
    pub bias: Option<&'a Tensor>,
    /// `[E]` in f32: factors of weights.
    pub expert_scale: Option<&'a Tensor>,
}

/// The experts of a layer.
#[derive(Debug)]
pub struct DeviceExperts(cuda::experts::OnDevice);

impl DeviceExperts {
    /// Experts on `device`, if there are kernels for such ones.
    pub fn new(device: &Device, experts: &[ExpertLayers<'_>]) -> Result<Option<Self>> {
        if !cuda::on(device) {
            return Ok(None);
        }
        Ok(cuda::experts::OnDevice::new(experts)?.map(Self))
    }

    /// Whether they are the better way for so many tokens.
    pub fn takes(&self, tokens: usize, rule: &Rule<'_>) -> bool {
        self.0.takes(tokens, rule)
    }

    /// `residual + factor * experts(x)`, all `[T, hidden]`, by the router's `scores [T, E]`. Experts
    /// without a gate have `activate` between their layers. If `weighs_inputs`, an expert is given
    /// its weight times the token, instead of what it gives being weighed.
    pub fn forward_add(
        &self,
        [x, scores, residual]: [&Tensor; 3],
        rule: &Rule<'_>,
        gating: Gating,
        activate: impl Fn(&Tensor) -> Result<Tensor>,
        (factor, weighs_inputs): (f32, bool),
    ) -> Result<Tensor> {
        let chosen = self.0.choose(scores, rule)?;
        let inner = self.0.enter(x, &chosen, gating, weighs_inputs)?;
        let inner = if self.0.is_gated() { inner } else { activate(&inner)? };
        self.0.leave(&inner, &chosen, residual, factor, weighs_inputs)
    }
}
