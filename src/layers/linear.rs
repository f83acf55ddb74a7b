//! A linear layer on weights as they are stored: bf16, f16, f32 or any GGUF quant kind.
//!
//! Callers never learn which. On the CPU the matrix moves into a
//! [`PackedMatrix`]; on another device candle holds it.

use std::sync::Arc;

use candle_core::quantized::QMatMul;
use candle_core::{DType, Device, Module, Result, Tensor};

use crate::kernels;
use crate::kernels::packed::PackedMatrix;
use crate::kernels::portable;
use crate::weights::{StoredTensor, WeightError, Weights};

/// A stored weight matrix `[rows, columns]`: of a linear layer, or of an embedding, or of both.
#[derive(Clone, Debug)]
pub struct Matrix(Form);

#[derive(Clone, Debug)]
enum Form {
    /// In our own memory, for our kernels.
    Packed(Arc<PackedMatrix>),
    /// A tensor on a device without kernels of ours.
    Portable(Tensor),
    /// The same, quantized.
    PortableQuantized(QMatMul),
}

impl Matrix {
    /// Loads tensor `name` of shape `[rows, columns]`.
    pub fn load(
        weights: &Weights,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> std::result::Result<Self, WeightError> {
        Self::new(&weights.stored(name, &[rows, columns])?, weights.device())
    }

    /// Moves a stored tensor to where it is used.
    pub fn new(stored: &StoredTensor, device: &Device) -> std::result::Result<Self, WeightError> {
        let form = match stored.dense_dtype() {
            Some(dtype) if device.is_cpu() => {
                Form::Packed(Arc::new(PackedMatrix::from_dense(&stored.to_tensor(dtype)?)?))
            }
            None if device.is_cpu() => {
                Form::Packed(Arc::new(PackedMatrix::from_quantized(&stored.to_qtensor()?)?))
            }
            Some(dtype) => Form::Portable(stored.to_tensor(dtype)?.to_device(device)?),
            None => {
                let tensor = stored.to_qtensor()?;
                let data = tensor.data()?;
                let storage =
                    candle_core::quantized::QStorage::from_data(data, device, tensor.dtype())?;
                let moved = candle_core::quantized::QTensor::new(storage, tensor.shape())?;
                Form::PortableQuantized(QMatMul::from_qtensor(moved)?)
            }
        };
        Ok(Self(form))
    }

    /// `x [.., columns]` times the transpose, plus `bias [rows]`: `[.., rows]` in f32.
    fn product(&self, x: &Tensor, bias: Option<&Bias>) -> Result<Tensor> {
        match &self.0 {
            Form::Packed(matrix) => {
                kernels::linear::linear(x, matrix, bias.map(|bias| bias.host.as_slice()))
            }
            Form::Portable(matrix) => portable::linear(x, matrix, bias.map(|bias| &bias.tensor)),
            Form::PortableQuantized(matrix) => match bias {
                Some(bias) => matrix.forward(x)?.broadcast_add(&bias.tensor),
                None => matrix.forward(x),
            },
        }
    }

    /// Rows `ids`: `[ids.len(), columns]` in f32.
    pub(super) fn embed(&self, ids: &[u32], device: &Device) -> Result<Tensor> {
        match &self.0 {
            Form::Packed(matrix) => kernels::embed::embed(matrix, ids),
            Form::Portable(matrix) => portable::embed(matrix, &Tensor::new(ids, device)?),
            Form::PortableQuantized(matrix) => matrix.embedding(&Tensor::new(ids, device)?),
        }
    }
}

#[derive(Clone, Debug)]
struct Bias {
    host: Vec<f32>,
    tensor: Tensor,
}

/// `y = x W^T + b`
#[derive(Clone, Debug)]
pub struct Linear {
    matrix: Matrix,
    bias: Option<Bias>,
}

impl Linear {
    /// Loads `weight [outputs, inputs]` and, if the architecture has one, `bias [outputs]`.
    pub fn load(
        weights: &Weights,
        inputs: usize,
        outputs: usize,
        bias: bool,
    ) -> std::result::Result<Self, WeightError> {
        let matrix = Matrix::load(weights, "weight", outputs, inputs)?;
        let bias = if bias {
            let tensor = weights.dense("bias", &[outputs], DType::F32)?;
            Some(Bias { host: tensor.to_vec1()?, tensor })
        } else {
            None
        };
        Ok(Self { matrix, bias })
    }

    /// A layer without bias on a matrix that something else may share.
    pub fn from_matrix(matrix: Matrix) -> Self {
        Self { matrix, bias: None }
    }

    /// `x [.., inputs]` to `[.., outputs]`, both f32.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.matrix.product(x, self.bias.as_ref())
    }
}
