//! What gives each expert a score.

use std::cell::RefCell;

use candle_core::{DType, Result, Tensor, bail};

use super::spec::{MoeSpec, RememberingRouter};
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// What the router of the last layer saw of each token, `[num_tokens, width]`, in one forward pass.
pub type RouterMemory = RefCell<Option<Tensor>>;

/// A router.
#[derive(Debug)]
pub(super) enum Router {
    /// A linear layer.
    Linear(Linear),
    /// Layers that see what the router of the layer before saw, too.
    Remembering(Box<Remembering>),
}

/// A projection to few elements, to which those of the layer before are added, and layers behind it.
#[derive(Debug)]
pub(super) struct Remembering {
    down: Linear,
    /// `[width]`: factors of what is remembered, unless the layer is the first one.
    factors: Option<Tensor>,
    norm: Norm,
    inner: [Linear; 2],
    out: Linear,
}

impl Router {
    /// Loads the router of experts, with so many `outputs`.
    pub(super) fn load(weights: &Weights, spec: &MoeSpec, outputs: usize) -> Loaded<Self> {
        let (weights, hidden) = (weights.scope(spec.router), spec.expert.hidden_size);
        let Some(RememberingRouter { width, norm }) = spec.remembering else {
            return Ok(Self::Linear(load_router(&weights, hidden, outputs, spec.router_bias)?));
        };
        let behind = weights.scope("router_mlp");
        let inner = |name| load_router(&behind.scope(name), width, width, true);
        let factors = "router_states_scale";
        let factors = weights
            .contains(factors)
            .then(|| weights.dense(factors, &[width], DType::F32))
            .transpose()?;
        Ok(Self::Remembering(Box::new(Remembering {
            down: load_router(&weights.scope("down_proj"), hidden, width, true)?,
            factors,
            norm: Norm::load(&behind.scope("norm"), width, norm)?,
            inner: [inner("fc1")?, inner("fc2")?],
            out: load_router(&behind.scope("out_proj"), width, outputs, false)?,
        })))
    }

    /// The scores of experts for rows of `x [num_tokens, hidden]`: `[num_tokens, experts]`.
    pub(super) fn scores(&self, x: &Tensor, memory: &RouterMemory) -> Result<Tensor> {
        match self {
            Self::Linear(layer) => layer.forward(x),
            Self::Remembering(own) => own.scores(x, memory),
        }
    }
}

impl Remembering {
    fn scores(&self, x: &Tensor, memory: &RouterMemory) -> Result<Tensor> {
        let mut seen = self.down.forward(x)?;
        if let Some(before) = memory.take() {
            let Some(factors) = &self.factors else {
                bail!("a router behind another one has no `router_states_scale`");
            };
            seen = (seen + before.broadcast_mul(factors)?)?;
        }
        memory.replace(Some(seen.clone()));
        let mut x = self.norm.forward(&seen)?;
        for layer in &self.inner {
            x = pointwise(Activation::Gelu, &layer.forward(&x)?)?;
        }
        self.out.forward(&x)
    }
}

/// Loads a small layer whose output decides between experts, with weights in f32.
pub(super) fn load_router(
    weights: &Weights,
    inputs: usize,
    outputs: usize,
    bias: bool,
) -> Loaded<Linear> {
    let bias = bias.then(|| weights.dense("bias", &[outputs], DType::F32)).transpose()?;
    let matrix = Matrix::load_unrounded(weights, "weight", outputs, inputs)?;
    Ok(Linear::from_matrix(matrix, bias)?)
}
