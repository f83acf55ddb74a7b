//! What makes one of the four patches of a square between two layers.

use candle_core::{Device, Result, Tensor};

use super::attention::Attention;
use super::connector::Connector;
use super::spec::{self, TowerSpec};
use crate::layers::full_attention::{Heads, Texts};
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// Patches of a square.
const SQUARE: usize = 4;

/// A loaded merger.
#[derive(Debug)]
pub(super) struct Merger {
    norm: Norm,
    attention: Attention,
    stages: Connector,
    heads: Heads,
    /// The layer that it stands behind.
    pub(super) layer: usize,
}

impl Merger {
    /// Loads what `own` says, from the weights of the tower.
    pub(super) fn load(weights: &Weights, own: &spec::Merger, tower: &TowerSpec) -> Loaded<Self> {
        let (hidden, weights) = (tower.hidden, weights.scope(own.name));
        Ok(Self {
            norm: Norm::load(&weights.scope(own.norm), hidden, tower.norm)?,
            attention: Attention::load(&weights, tower)?,
            stages: Connector::load([&weights, &weights], &own.stages, hidden, SQUARE)?,
            heads: Heads { count: tower.heads, dim: tower.head_dim() },
            layer: own.layer,
        })
    }

    /// `x [patches, hidden]`, square after square, to `[patches / 4, hidden]`.
    pub(super) fn forward(&self, x: &Tensor, device: &Device) -> Result<Tensor> {
        let (patches, hidden) = x.dims2()?;
        let squares = Texts::new(&vec![SQUARE; patches / SQUARE], self.heads, device)?;
        let x = self.attention.forward_add(x, &self.norm.forward(x)?, &squares)?;
        let means = x.reshape((patches / SQUARE, SQUARE, hidden))?.mean(1)?;
        self.stages.forward(&x, [1, patches])? + means
    }
}
