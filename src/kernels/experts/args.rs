//! Experts of a layer, and how a token's are chosen.

use candle_core::Tensor;

use crate::linear::DeviceLayer;

/// The layers of one expert.
#[derive(Clone, Copy, Debug)]
pub struct ExpertLayers<'a> {
    /// The gate projection, whose output is activated, if the expert has one.
    pub gate: Option<DeviceLayer<'a>>,
    /// The up projection.
    pub up: DeviceLayer<'a>,
    /// The down projection.
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

/// How experts are chosen for a token, and weighted.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// How scores are made.
    pub score: Score,
    /// Experts of a token.
    pub per_token: usize,
    /// How many groups of equal size there are, how many of them are chosen, and how many of its best
    /// scores count for a group.
    pub groups: Option<[usize; 3]>,
    /// Divide the chosen experts' scores by their sum.
    pub renormalize: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// `[E]` in f32: added to scores for the choice alone.
    pub bias: Option<&'a Tensor>,
    /// `[E]` in f32: factors of weights.
    pub expert_scale: Option<&'a Tensor>,
}
