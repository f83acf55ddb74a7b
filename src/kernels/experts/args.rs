//! Experts of a layer, and how a token's are chosen.

use candle_core::Tensor;

use crate::kernels::linear::DeviceLayer;

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

/// How the router's logits become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
    /// The sigmoid of each logit; experts are chosen by the logits themselves, of which more differ.
    SigmoidOfChosen,
}

/// How experts are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// How scores are made.
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
