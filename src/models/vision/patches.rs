//! From pixels to the first hidden states: one product for each patch.

use candle_core::{DType, Device, Result, Tensor};

use super::grid::Grid;
use super::spec::TowerSpec;
use crate::pictures::picture::{Normalization, Rgb};
use crate::weights::{Loaded, Weights};

const CHANNELS: usize = 3;

/// The product of patches.
#[derive(Debug)]
pub(super) struct Patches {
    /// `[channels * patch * patch, hidden]`
    weight: Tensor,
    /// `[hidden]`
    bias: Option<Tensor>,
    patch: usize,
}

impl Patches {
    /// Loads a product over frames, which are all the same picture: their weights are added up.
    pub(super) fn load(weights: &Weights, spec: &TowerSpec) -> Loaded<Self> {
        let TowerSpec { patch, frames, hidden, .. } = *spec;
        let weights = weights.scope("patch_embed.proj");
        let shape = [hidden, CHANNELS, frames, patch, patch];
        let weight = weights.dense("weight", &shape, DType::F32)?.sum(2)?;
        let weight = weight.reshape((hidden, CHANNELS * patch * patch))?.t()?.contiguous()?;
        let bias = spec.patch_bias.then(|| weights.dense("bias", &[hidden], DType::F32));
        Ok(Self { weight, bias: bias.transpose()?, patch })
    }

    /// `[patches, hidden]` of a picture.
    pub(super) fn forward(
        &self,
        rgb: &Rgb,
        grid: &Grid,
        normalization: &Normalization,
        device: &Device,
    ) -> Result<Tensor> {
        let side = self.patch;
        let mut numbers = Vec::with_capacity(rgb.pixels.len());
        for [row, column] in &grid.places {
            for channel in 0..CHANNELS {
                for y in row * side..(row + 1) * side {
                    let start = (y * rgb.width + column * side) * CHANNELS + channel;
                    let bytes = rgb.pixels[start..].iter().step_by(CHANNELS).take(side);
                    numbers.extend(bytes.map(|byte| normalization.apply(channel, *byte)));
                }
            }
        }
        let shape = (grid.places.len(), CHANNELS * side * side);
        let x = Tensor::from_vec(numbers, shape, device)?.matmul(&self.weight)?;
        match &self.bias {
            Some(bias) => x.broadcast_add(bias),
            None => Ok(x),
        }
    }
}
