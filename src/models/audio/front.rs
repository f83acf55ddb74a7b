//! From log-mel vectors to the first hidden states of a segment.

use candle_core::{DType, Device, Result, Tensor};

use super::spec::{AudioSpec, Front};
use crate::layers::linear::Linear;
use crate::weights::{Loaded, Weights};

/// Loaded convolutions, and the embedding of positions.
#[derive(Debug)]
pub(super) enum LoadedFront {
    Whisper {
        convolutions: [Convolution; 2],
        /// `[positions, hidden]`
        positions: Tensor,
    },
    Chunks {
        convolutions: [Convolution; 3],
        output: Linear,
        /// `[positions of a chunk, hidden]`
        positions: Tensor,
        frames: usize,
    },
}

/// A convolution over three neighbours, in time or in time and frequency.
#[derive(Debug)]
pub(super) struct Convolution {
    /// `[outputs, inputs, 3]` or `[outputs, inputs, 3, 3]`
    kernel: Tensor,
    /// `[1, outputs, 1]` or `[1, outputs, 1, 1]`
    bias: Tensor,
    stride: usize,
}

impl Convolution {
    fn load(weights: &Weights, shape: &[usize], stride: usize) -> Loaded<Self> {
        let mut biased = vec![1; shape.len()];
        biased[1] = shape[0];
        let bias = weights.dense("bias", &[shape[0]], DType::F32)?.reshape(biased)?;
        Ok(Self { kernel: weights.dense("weight", shape, DType::F32)?, bias, stride })
    }

    /// With GELU behind it.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = match self.kernel.rank() {
            3 => x.conv1d(&self.kernel, 1, self.stride, 1, 1)?,
            _ => x.conv2d(&self.kernel, 1, self.stride, 1, 1)?,
        };
        x.broadcast_add(&self.bias)?.gelu_erf()
    }
}

impl LoadedFront {
    pub(super) fn load(weights: &Weights, spec: &AudioSpec) -> Loaded<Self> {
        let AudioSpec { mels, hidden, .. } = *spec;
        match spec.front {
            Front::Whisper { positions } => {
                let shape = [positions, hidden];
                let positions =
                    weights.scope("embed_positions").dense("weight", &shape, DType::F32)?;
                let first = Convolution::load(&weights.scope("conv1"), &[hidden, mels, 3], 1)?;
                let second = Convolution::load(&weights.scope("conv2"), &[hidden, hidden, 3], 2)?;
                Ok(Self::Whisper { convolutions: [first, second], positions })
            }
            Front::Chunks { channels, frames, .. } => {
                let convolution = |name, inputs| {
                    Convolution::load(&weights.scope(name), &[channels, inputs, 3, 3], 2)
                };
                let inputs = channels * mels.div_ceil(8);
                Ok(Self::Chunks {
                    convolutions: [
                        convolution("conv2d1", 1)?,
                        convolution("conv2d2", channels)?,
                        convolution("conv2d3", channels)?,
                    ],
                    output: Linear::load(&weights.scope("conv_out"), inputs, hidden, false)?,
                    positions: sines(frames.div_ceil(8), hidden, weights.device())?,
                    frames,
                })
            }
        }
    }

    /// The states of all positions of a segment, `[positions, hidden]`, from features `[mels, frames]` row by
    /// row.
    pub(super) fn forward(
        &self,
        features: Vec<f32>,
        mels: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let length = features.len() / mels;
        match self {
            Self::Whisper { convolutions, positions } => {
                let mut x = Tensor::from_vec(features, (1, mels, length), device)?;
                for convolution in convolutions {
                    x = convolution.forward(&x)?;
                }
                x.squeeze(0)?.t()?.contiguous()? + positions
            }
            Self::Chunks { convolutions, output, positions, frames } => {
                let chunks = length / frames;
                let x = Tensor::from_vec(features, (mels, chunks, *frames), device)?;
                let mut x = x.transpose(0, 1)?.contiguous()?.unsqueeze(1)?;
                for convolution in convolutions {
                    x = convolution.forward(&x)?;
                }
                // [chunks, channels, frequencies, positions]
                let x = x.permute((0, 3, 1, 2))?.contiguous()?.flatten_from(2)?;
                let (_, length, inputs) = x.dims3()?;
                let x = output.forward(&x.reshape((chunks * length, inputs))?)?;
                let x = x.reshape((chunks, length, x.dim(1)?))?.broadcast_add(positions)?;
                x.flatten_to(1)
            }
        }
    }
}

/// Sines and then cosines of positions, of wavelengths from 2π to 20 000π: `[positions, hidden]`.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]
fn sines(positions: usize, hidden: usize, device: &Device) -> Result<Tensor> {
    let half = hidden / 2;
    let step = (10_000_f64.ln() / half.saturating_sub(1).max(1) as f64) as f32;
    let angle = |position: usize, pair: usize| position as f32 * (-step * pair as f32).exp();
    let row = |position: usize| {
        let sines = (0..half).map(move |pair| angle(position, pair).sin());
        sines.chain((0..half).map(move |pair| angle(position, pair).cos()))
    };
    let numbers: Vec<f32> = (0..positions).flat_map(row).collect();
    Tensor::from_vec(numbers, (positions, 2 * half), device)
}
