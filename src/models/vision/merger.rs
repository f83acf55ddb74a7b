//! What makes one token of several patches: a norm and two products.

use candle_core::{Result, Tensor};

use super::spec::TowerSpec;
use crate::kernels::pointwise::{Activation, pointwise};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// A loaded merger.
#[derive(Debug)]
pub(super) struct Merger {
    norm: Norm,
    /// Whether the norm is over all elements of a token, and not over those of each patch.
    joined_first: bool,
    products: [Linear; 2],
    /// Elements of all patches of a token.
    width: usize,
}

impl Merger {
    pub(super) fn load(weights: &Weights, spec: &TowerSpec, joined_first: bool) -> Loaded<Self> {
        let width = spec.hidden * spec.merge * spec.merge;
        let [first, second] = spec.merger.products.map(|name| weights.scope(name));
        let normed = if joined_first { width } else { spec.hidden };
        Ok(Self {
            norm: Norm::load(&weights.scope(spec.merger.norm), normed, spec.norm)?,
            joined_first,
            products: [
                Linear::load(&first, width, width, true)?,
                Linear::load(&second, width, spec.output, true)?,
            ],
            width,
        })
    }

    /// `x [patches, hidden]` to `[tokens, output]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = if self.joined_first {
            self.norm.forward(&x.reshape(((), self.width))?)?
        } else {
            self.norm.forward(x)?.reshape(((), self.width))?
        };
        let [first, second] = &self.products;
        second.forward(&pointwise(Activation::Gelu, &first.forward(&x)?)?)
    }
}
