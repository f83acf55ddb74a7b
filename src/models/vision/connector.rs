//! What makes the features of a token of its patches: norms, products, and what joins the patches.

use candle_core::{DType, Result, Tensor};

use super::layer::activate;
use super::perceiver::Perceiver;
use super::resampler::{Resampler, sinusoids, softmax};
use super::spec::{Stage, TowerActivation};
use crate::layers::linear::Linear;
use crate::layers::norm::Norm;
use crate::weights::{Loaded, Weights};

/// A loaded connector.
#[derive(Debug)]
pub(in crate::models) struct Connector {
    stages: Vec<LoadedStage>,
    /// Patches of a token.
    patches: usize,
}

#[derive(Debug)]
enum LoadedStage {
    Norm(Norm),
    Join,
    Interleave,
    Mean,
    Resample(Box<Resampler>),
    Perceive(Box<Perceiver>),
    Product(Linear),
    /// `[inputs, outputs]` and `[outputs]`
    Convolution(Tensor, Tensor),
    Gated([Linear; 3], TowerActivation),
    /// `[inputs, outputs]`
    Matrix(Tensor),
    /// `[tokens, width]`
    Placed(Tensor),
    Probabilities,
    Activation(TowerActivation),
    Halves(TowerActivation),
    Scale(f32),
    /// `[width]` each.
    Standardize([Tensor; 2]),
}

impl Connector {
    /// Loads the stages behind hidden states of `width` elements, where a token has so many `patches`,
    /// from the weights of the tower and of the connector itself.
    pub(in crate::models) fn load(
        [tower, weights]: [&Weights; 2],
        stages: &[Stage],
        width: usize,
        patches: usize,
    ) -> Loaded<Self> {
        let mut width = width;
        let mut load = |stage: &Stage| {
            Ok(match *stage {
                Stage::Norm(name, spec) => {
                    LoadedStage::Norm(Norm::load(&weights.scope(name), width, spec)?)
                }
                Stage::TowerNorm(name, spec) => {
                    LoadedStage::Norm(Norm::load(&tower.scope(name), width, spec)?)
                }
                Stage::Join | Stage::Interleave => {
                    width *= patches;
                    let interleaves = matches!(stage, Stage::Interleave);
                    if interleaves { LoadedStage::Interleave } else { LoadedStage::Join }
                }
                Stage::Mean => LoadedStage::Mean,
                Stage::Resample(sizes, norm) => {
                    LoadedStage::Resample(Box::new(Resampler::load(weights, sizes, norm, width)?))
                }
                Stage::Perceive(own) => {
                    let weights = weights.scope(own.name);
                    LoadedStage::Perceive(Box::new(Perceiver::load(&weights, own, width)?))
                }
                Stage::Product(name, outputs, bias) => {
                    let inputs = std::mem::replace(&mut width, outputs);
                    let linear = Linear::load(&weights.scope(name), inputs, outputs, bias)?;
                    LoadedStage::Product(linear)
                }
                Stage::Convolution(name, outputs) => {
                    let shape = [outputs, width, patches.isqrt(), patches.isqrt()];
                    let kernel = weights.scope(name).dense("weight", &shape, DType::F32)?;
                    let kernel = kernel.reshape((outputs, width * patches))?.t()?.contiguous()?;
                    width = outputs;
                    let bias = weights.scope(name).dense("bias", &[outputs], DType::F32)?;
                    LoadedStage::Convolution(kernel, bias)
                }
                Stage::Gated([gate, up, down], [inner, outputs], activation) => {
                    let linear = |name: &str, inputs, outputs| {
                        Linear::load(&weights.scope(name), inputs, outputs, false)
                    };
                    let [gate, up] = [linear(gate, width, inner)?, linear(up, width, inner)?];
                    width = outputs;
                    LoadedStage::Gated([gate, up, linear(down, inner, width)?], activation)
                }
                Stage::Matrix(name, outputs) => {
                    let inputs = std::mem::replace(&mut width, outputs);
                    let matrix = weights.dense(name, &[inputs, outputs], DType::F32)?;
                    LoadedStage::Matrix(matrix.contiguous()?)
                }
                Stage::Rows(name, behind, outputs) => {
                    let inputs = std::mem::replace(&mut width, outputs);
                    let table = weights.dense(name, &[inputs + behind, outputs], DType::F32)?;
                    LoadedStage::Matrix(table.narrow(0, 0, inputs)?.contiguous()?)
                }
                Stage::Placed(side) => {
                    LoadedStage::Placed(sinusoids([side; 2], width, weights.device())?)
                }
                Stage::Probabilities => LoadedStage::Probabilities,
                Stage::Activation(activation) => LoadedStage::Activation(activation),
                Stage::Halves(activation) => {
                    width /= 2;
                    LoadedStage::Halves(activation)
                }
                Stage::Scale(factor) => LoadedStage::Scale(factor),
                Stage::Standardize([bias, scale]) => LoadedStage::Standardize([
                    tower.dense(bias, &[width], DType::F32)?,
                    tower.dense(scale, &[width], DType::F32)?,
                ]),
            })
        };
        Ok(Self { stages: stages.iter().map(&mut load).collect::<Loaded<_>>()?, patches })
    }

    /// `x [patches, hidden]`, of a grid of this `size` or of a line, to `[tokens, output]`.
    pub(in crate::models) fn forward(&self, x: &Tensor, size: [usize; 2]) -> Result<Tensor> {
        let mut x = x.clone();
        for stage in &self.stages {
            let each = |x: &Tensor| x.reshape(((), self.patches, x.dim(1)?));
            x = match stage {
                LoadedStage::Norm(norm) => norm.forward(&x)?,
                LoadedStage::Join => each(&x)?.flatten_from(1)?,
                LoadedStage::Interleave => each(&x)?.transpose(1, 2)?.flatten_from(1)?,
                LoadedStage::Mean => each(&x)?.mean(1)?,
                LoadedStage::Resample(resampler) => resampler.forward(&x, size)?,
                LoadedStage::Perceive(perceiver) => perceiver.forward(&x)?,
                LoadedStage::Product(linear) => linear.forward(&x)?,
                LoadedStage::Convolution(kernel, bias) => {
                    let joined = each(&x)?.transpose(1, 2)?.flatten_from(1)?;
                    joined.matmul(kernel)?.broadcast_add(bias)?
                }
                LoadedStage::Gated([gate, up, down], activation) => {
                    let gate = activate(*activation, &gate.forward(&x)?)?;
                    down.forward(&(gate * up.forward(&x)?)?)?
                }
                LoadedStage::Matrix(matrix) => x.matmul(matrix)?,
                LoadedStage::Placed(places) => (x + places)?,
                LoadedStage::Probabilities => softmax(&x)?,
                LoadedStage::Activation(activation) => activate(*activation, &x)?,
                LoadedStage::Halves(activation) => {
                    let half = x.dim(1)? / 2;
                    let gate = x.narrow(1, half, half)?.contiguous()?;
                    (x.narrow(1, 0, half)? * activate(*activation, &gate)?)?
                }
                LoadedStage::Scale(factor) => (x * f64::from(*factor))?,
                LoadedStage::Standardize([bias, scale]) => {
                    x.broadcast_sub(bias)?.broadcast_mul(scale)?
                }
            };
        }
        Ok(x)
    }
}
