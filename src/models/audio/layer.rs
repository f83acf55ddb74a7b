//! One layer of an encoder: attention and a feed-forward part, each behind a norm and added to its input.

use candle_core::{Result, Tensor};

use super::spec::{AudioSpec, EPS};
use crate::layers::full_attention::{FullAttention, Heads, Texts};
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, NormSpec};
use crate::models::vision::{TowerActivation, activate};
use crate::weights::{Loaded, Weights};

/// A loaded layer.
#[derive(Debug)]
pub(super) struct Layer {
    norms: [Norm; 2],
    attention: FullAttention,
    up: Linear,
    down: Linear,
    activation: TowerActivation,
}

impl Layer {
    pub(super) fn load(weights: &Weights, spec: &AudioSpec) -> Loaded<Self> {
        let AudioSpec { hidden, heads, intermediate, activation, key_bias, .. } = *spec;
        let attention = weights.scope("self_attn");
        let square = |name, bias| Linear::load(&attention.scope(name), hidden, hidden, bias);
        let norm = |name| Norm::load(&weights.scope(name), hidden, NormSpec::layer(EPS, true));
        Ok(Self {
            norms: [norm("self_attn_layer_norm")?, norm("final_layer_norm")?],
            attention: FullAttention {
                query: square("q_proj", true)?,
                key: square("k_proj", key_bias)?,
                value: square("v_proj", true)?,
                output: square("out_proj", true)?,
                heads: Heads { count: heads, dim: hidden / heads },
            },
            up: Linear::load(&weights.scope("fc1"), hidden, intermediate, true)?,
            down: Linear::load(&weights.scope("fc2"), intermediate, hidden, true)?,
            activation,
        })
    }

    /// `x [positions, hidden]` after this layer.
    pub(super) fn forward(&self, x: &Tensor, segment: &Texts) -> Result<Tensor> {
        let [before_attention, before_mlp] = &self.norms;
        let x = self.attention.forward_add(x, &before_attention.forward(x)?, segment)?;
        let inner = activate(self.activation, &self.up.forward(&before_mlp.forward(&x)?)?)?;
        self.down.forward_add(&inner, &x)
    }
}
