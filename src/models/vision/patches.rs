//! From pixels to the first hidden states: one product for each patch.

use candle_core::{DType, Device, Result, Tensor};

use super::grid::Grid;
use super::spec::{PatchForm, TowerSpec};
use crate::layers::norm::{Norm, NormSpec};
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
    /// Before and behind the product.
    norms: [Option<Norm>; 2],
    patch: usize,
    /// Whether the channels of a pixel stand together, and not the pixels of a channel.
    by_pixel: bool,
}

impl Patches {
    /// Loads the product. Frames are all the same picture: their weights are added up.
    pub(super) fn load(weights: &Weights, spec: &TowerSpec) -> Loaded<Self> {
        let TowerSpec { patch, hidden, .. } = *spec;
        let inputs = CHANNELS * patch * patch;
        let [before, behind] = spec.patch_norms;
        let norm = |norm: Option<(&str, NormSpec)>, width| {
            norm.map(|(name, spec)| Norm::load(&weights.scope(name), width, spec)).transpose()
        };
        let norms = [norm(before, inputs)?, norm(behind, hidden)?];
        let weights = weights.scope(spec.names.patches);
        let weight = match spec.patches {
            PatchForm::Picture => {
                weights.dense("weight", &[hidden, CHANNELS, patch, patch], DType::F32)?
            }
            PatchForm::Frames(frames) => {
                let shape = [hidden, CHANNELS, frames, patch, patch];
                weights.dense("weight", &shape, DType::F32)?.sum(2)?
            }
            PatchForm::Pixels | PatchForm::Channels => {
                weights.dense("weight", &[hidden, inputs], DType::F32)?
            }
        };
        let weight = weight.reshape((hidden, inputs))?.t()?.contiguous()?;
        let bias = spec.patch_bias.then(|| weights.dense("bias", &[hidden], DType::F32));
        let by_pixel = spec.patches == PatchForm::Pixels;
        Ok(Self { weight, bias: bias.transpose()?, norms, patch, by_pixel })
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
            let lines = (row * side..(row + 1) * side).map(|y| {
                let start = (y * rgb.width + column * side) * CHANNELS;
                &rgb.pixels[start..start + side * CHANNELS]
            });
            if self.by_pixel {
                let bytes = lines.flatten().zip((0..CHANNELS).cycle());
                numbers.extend(bytes.map(|(byte, channel)| normalization.apply(channel, *byte)));
                continue;
            }
            for channel in 0..CHANNELS {
                let bytes = lines.clone().flat_map(|line| line[channel..].iter().step_by(CHANNELS));
                numbers.extend(bytes.map(|byte| normalization.apply(channel, *byte)));
            }
        }
        let shape = (grid.places.len(), CHANNELS * side * side);
        let mut x = Tensor::from_vec(numbers, shape, device)?;
        let [before, behind] = &self.norms;
        if let Some(norm) = before {
            x = norm.forward(&x)?;
        }
        x = x.matmul(&self.weight)?;
        if let Some(bias) = &self.bias {
            x = x.broadcast_add(bias)?;
        }
        match behind {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}
