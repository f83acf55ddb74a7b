//! Linear layers on weights as they are stored: bf16, f16, f32 or any GGUF quantization, fused with
//! the residual sums and gates around them.
//!
//! Callers don't know the kind. On the CPU the matrix is a [`PackedMatrix`]; on an NVIDIA GPU quantized
//! ones are packed alike, and others are tensors; elsewhere candle holds it.

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{DType, Device, Module, Result, Tensor, bail};

use super::forward::Indices;
use super::norm::RmsNorm;
use super::normed::Normed;
use crate::kernels::backend::Backend;
use crate::kernels::embed::{device_embed, embed};
use crate::kernels::floats::Floats;
use crate::kernels::linear::{
    DeviceLayer, DeviceNorm, DeviceWeight, Layer, device_input_type, device_linear_add,
    device_linear_each, device_linear_gated, device_normed_linear_each, device_normed_linear_gated,
    gated_mlp, input_type, linear, linear_add, linear_each, linear_gated_as,
};
use crate::kernels::packed::{PackedMatrix, PackedOnDevice};
use crate::kernels::pointwise::{Gating, gated_pairs};
use crate::weights::stored::dense_dtype;
use crate::weights::{Loaded, StoredTensor, Weights};

/// A weight matrix `[rows, columns]` of a linear layer, of an embedding, or of both.
#[derive(Clone, Debug)]
pub struct Matrix(Form);

#[derive(Clone, Debug)]
enum Form {
    /// In host memory, for our CPU kernels.
    Packed(Arc<PackedMatrix>),
    /// A tensor on another device.
    Portable(Tensor),
    /// Quantized, on a device with kernels for its kind.
    PackedOnDevice(PackedOnDevice),
    /// A quantized tensor on another device.
    PortableQuantized(QMatMul),
}

impl Matrix {
    /// Loads tensor `name` of shape `[rows, columns]`, rounded as `weights` asks.
    pub fn load(weights: &Weights, name: &str, rows: usize, columns: usize) -> Loaded<Self> {
        let stored = weights.stored(name, &[rows, columns])?;
        Self::from_stored(weights, &stored, weights.rounding())
    }

    /// As [`load`](Self::load), in f32 whatever `weights` ask: of layers whose outputs decide, or that all others go
    /// through. What is quantized in the file keeps its kind.
    pub fn load_unrounded(
        weights: &Weights,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Loaded<Self> {
        let stored = weights.stored(name, &[rows, columns])?;
        let kind = stored.dense_dtype().map(|_| GgmlDType::F32);
        Self::from_stored(weights, &stored, kind)
    }

    /// Moves a stored tensor to the device of `weights`, converted to `kind` if one is given.
    pub fn from_stored(
        weights: &Weights,
        stored: &StoredTensor,
        kind: Option<GgmlDType>,
    ) -> Loaded<Self> {
        if let Some(kind) = kind.filter(|kind| stored.kind() != *kind)
            && stored.dense_dtype().is_none()
        {
            return Err(candle_core::Error::Msg(format!(
                "the weights are quantized already, as {:?}; they can't be rounded again to {kind:?}",
                stored.kind()
            ))
            .into());
        }
        let backend = Backend::of(weights.device());
        let form = if backend.is_cpu() {
            let packed = pack(stored, kind)?;
            weights.tally().add(&packed.form(), packed.size_in_bytes());
            Form::Packed(Arc::new(packed))
        } else if backend.is_cuda() && is_packed_on_device(stored, kind)? {
            let packed = pack(stored, kind)?;
            weights.tally().add(&packed.form(), packed.size_in_bytes());
            Form::PackedOnDevice(packed.to_device(weights.device())?)
        } else {
            // Other devices have no products of kinds that the tensor library doesn't have.
            let kind = kind.unwrap_or(stored.portable_kind());
            weights.tally().add(&format!("{kind:?}"), stored.bytes().len());
            Self::portable(stored, weights.device(), kind)?
        };
        Ok(Self(form))
    }

    fn portable(stored: &StoredTensor, device: &Device, kind: GgmlDType) -> Result<Form> {
        if let Some(dtype) = dense_dtype(kind) {
            return Ok(Form::Portable(stored.to_tensor_on(dtype, device)?));
        }
        let tensor = if stored.kind() == kind {
            stored.to_qtensor()?
        } else {
            QTensor::quantize(&stored.to_tensor(DType::F32)?, kind)?
        };
        let storage = QStorage::from_data(tensor.data()?, device, kind)?;
        let moved = QTensor::new(storage, tensor.shape())?;
        Ok(Form::PortableQuantized(QMatMul::from_qtensor(moved)?))
    }

    /// The rows `ids`: `[ids.len(), columns]` in f32.
    pub(super) fn embed(&self, ids: Indices<'_>, device: &Device) -> Result<Tensor> {
        match &self.0 {
            Form::Packed(matrix) => embed(matrix, ids.host),
            Form::Portable(matrix) => device_embed(matrix, &ids.to_device(device)?),
            Form::PackedOnDevice(matrix) => matrix.embed(&ids.to_device(device)?),
            Form::PortableQuantized(matrix) => matrix.embedding(&ids.to_device(device)?),
        }
    }
}

/// A norm as device kernels take it.
fn device_norm(norm: &RmsNorm) -> DeviceNorm<'_> {
    DeviceNorm { weight: norm.weight(), eps: norm.eps() }
}

/// Rows and columns of a weight matrix.
fn dims_of(stored: &StoredTensor) -> Result<(usize, usize)> {
    let &[rows, columns] = stored.dims() else {
        bail!("a weight matrix has two dimensions, not {:?}", stored.dims())
    };
    Ok((rows, columns))
}

/// The matrix in host memory, rounded to `kind` if one is given.
fn pack(stored: &StoredTensor, kind: Option<GgmlDType>) -> Result<PackedMatrix> {
    let (rows, columns) = dims_of(stored)?;
    PackedMatrix::pack(stored.kind(), rows, columns, stored.bytes(), kind)
}

/// Whether a GPU has kernels for the kind in which the matrix would be packed.
fn is_packed_on_device(stored: &StoredTensor, kind: Option<GgmlDType>) -> Result<bool> {
    let (_, columns) = dims_of(stored)?;
    Ok(PackedOnDevice::has_kernels(PackedMatrix::kind_of(stored.kind(), columns, kind)))
}

/// A change of low rank to a linear layer, `up(down(x))`.
#[derive(Clone, Debug)]
pub struct LowRank {
    down: Linear,
    up: Linear,
}

impl LowRank {
    /// Loads `0.weight [rank, inputs]` and `1.weight [outputs, rank]`.
    pub fn load(weights: &Weights, inputs: usize, rank: usize, outputs: usize) -> Loaded<Self> {
        Ok(Self {
            down: Linear::load(&weights.scope("0"), inputs, rank, false)?,
            up: Linear::load(&weights.scope("1"), rank, outputs, false)?,
        })
    }

    /// `projected` plus the change of what `x` is projected to.
    pub fn add(&self, x: &Tensor, projected: &Tensor) -> Result<Tensor> {
        self.up.forward_add(&self.down.forward(x)?, projected)
    }
}

/// `y = x W^T + b`
#[derive(Clone, Debug)]
pub struct Linear {
    matrix: Matrix,
    bias: Option<Floats>,
}

impl Linear {
    /// Loads `weight [outputs, inputs]` and, if the architecture has one, `bias [outputs]`.
    pub fn load(weights: &Weights, inputs: usize, outputs: usize, bias: bool) -> Loaded<Self> {
        let matrix = Matrix::load(weights, "weight", outputs, inputs)?;
        let bias = if bias {
            Some(Floats::of(weights.dense("bias", &[outputs], DType::F32)?)?)
        } else {
            None
        };
        Ok(Self { matrix, bias })
    }

    /// Loads the `rows` of `weight [outputs, inputs]` and `bias [outputs]`, in their order.
    pub fn load_rows(
        weights: &Weights,
        inputs: usize,
        outputs: usize,
        bias: bool,
        rows: &[Range<usize>],
    ) -> Loaded<Self> {
        let matrix = weights.stored_rows("weight", &[outputs, inputs], Some(rows))?;
        let matrix = Matrix::from_stored(weights, &matrix, weights.rounding())?;
        let bias = if bias {
            let stored = weights.stored_rows("bias", &[outputs], Some(rows))?;
            Some(Floats::of(stored.to_tensor(DType::F32)?.to_device(weights.device())?)?)
        } else {
            None
        };
        Ok(Self { matrix, bias })
    }

    /// A layer with this matrix, which something else may share, and a bias `[outputs]` or none.
    pub fn from_matrix(matrix: Matrix, bias: Option<Tensor>) -> Result<Self> {
        Ok(Self { matrix, bias: bias.map(Floats::of).transpose()? })
    }

    /// The layer with this bias, `[outputs]`.
    pub fn with_bias(self, bias: Tensor) -> Result<Self> {
        Ok(Self { bias: Some(Floats::of(bias)?), ..self })
    }

    /// `x [.., inputs]` to `[.., outputs]`, both f32.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.matrix.0 {
            Form::Packed(matrix) => linear(x, self.layer(matrix)),
            Form::Portable(weight) => {
                Ok(device_linear_each(x, &[self.device_layer(weight.into())])?.remove(0))
            }
            Form::PackedOnDevice(matrix) => {
                Ok(device_linear_each(x, &[self.device_layer(matrix.into())])?.remove(0))
            }
            Form::PortableQuantized(matrix) => match &self.bias {
                Some(bias) => matrix.forward(x)?.broadcast_add(&bias.tensor),
                None => matrix.forward(x),
            },
        }
    }

    /// Applies several layers to the same input.
    pub fn forward_each<const N: usize>(layers: [&Self; N], x: &Tensor) -> Result<[Tensor; N]> {
        let mut packed = Vec::with_capacity(N);
        packed.extend(layers.iter().filter_map(|layer| layer.packed()));
        if let Ok(packed) = <[Layer<'_>; N]>::try_from(packed) {
            return linear_each(x, packed);
        }
        let on_device: Vec<_> = layers.iter().filter_map(|layer| layer.on_device()).collect();
        if on_device.len() == N {
            let outputs = device_linear_each(x, &on_device)?;
            return Ok(outputs.try_into().expect("one output per layer"));
        }
        let outputs = layers.iter().map(|layer| layer.forward(x)).collect::<Result<Vec<_>>>()?;
        Ok(outputs.try_into().expect("one output per layer"))
    }

    /// As [`forward_each`](Self::forward_each) of rows behind a norm, which few rows on a GPU go through on
    /// the way.
    pub fn normed_each<const N: usize>(layers: [&Self; N], x: &Normed<'_>) -> Result<[Tensor; N]> {
        let on_device: Vec<_> = layers.iter().filter_map(|layer| layer.on_device()).collect();
        if let Some((x, norm)) = x.before()
            && on_device.len() == N
            && let Some(outputs) = device_normed_linear_each(x, device_norm(norm), &on_device)?
        {
            return Ok(outputs.try_into().expect("one output per layer"));
        }
        Self::forward_each(layers, x.tensor()?)
    }

    /// `residual + y`
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.forward_add_scaled(x, residual, 1.0)
    }

    /// `residual + factor * y`
    pub fn forward_add_scaled(&self, x: &Tensor, residual: &Tensor, factor: f32) -> Result<Tensor> {
        match (self.packed(), self.on_device()) {
            (Some(layer), _) => linear_add(x, layer, residual, factor),
            (None, Some(layer)) => device_linear_add(x, layer, residual, factor),
            (None, None) => residual + (self.forward(x)? * f64::from(factor))?,
        }
    }

    /// `gate(x)` and `up(x)` combined by `gating`, commonly `activation(gate(x)) * up(x)`.
    pub fn forward_gated(gating: Gating, gate: &Self, up: &Self, x: &Tensor) -> Result<Tensor> {
        Self::forward_gated_as(DType::F32, gating, [gate, up], x)
    }

    /// As [`forward_gated`](Self::forward_gated), rounded to a type: see
    /// [`input_type`](Self::input_type).
    pub fn forward_gated_as(
        dtype: DType,
        gating: Gating,
        [gate, up]: [&Self; 2],
        x: &Tensor,
    ) -> Result<Tensor> {
        if let (Some(gate), Some(up)) = (gate.packed(), up.packed()) {
            return linear_gated_as(dtype, x, gating, gate, up);
        }
        if let (Some(gate), Some(up)) = (gate.on_device(), up.on_device()) {
            return device_linear_gated(x, gating, [gate, up], dtype);
        }
        gated_pairs(gating, &gate.forward(x)?, &up.forward(x)?)?.to_dtype(dtype)
    }

    /// As [`forward_gated_as`](Self::forward_gated_as) of rows behind a norm.
    pub fn normed_gated_as(
        dtype: DType,
        gating: Gating,
        [gate, up]: [&Self; 2],
        x: &Normed<'_>,
    ) -> Result<Tensor> {
        if let Some((x, norm)) = x.before()
            && let (Some(gate), Some(up)) = (gate.on_device(), up.on_device())
            && let Some(gated) =
                device_normed_linear_gated(x, device_norm(norm), gating, [gate, up], dtype)?
        {
            return Ok(gated);
        }
        Self::forward_gated_as(dtype, gating, [gate, up], x.tensor()?)
    }

    /// `y = down(gated(x))` of what [`forward_gated`](Self::forward_gated) makes of rows behind a norm, or
    /// `residual + factor * y`, if there are kernels that go from one product to the next.
    pub fn gated_mlp(
        gating: Gating,
        layers: [&Self; 3],
        x: &Normed<'_>,
        residual: Option<(&Tensor, f32)>,
    ) -> Result<Option<Tensor>> {
        let [Some(gate), Some(up), Some(down)] = layers.map(Self::packed) else { return Ok(None) };
        gated_mlp(x.tensor()?, gating, [gate, up, down], residual).map(Some)
    }

    /// The type in which this layer is best given so many rows of inputs. It gives the same bits for
    /// f32 as for what these are rounded to.
    pub fn input_type(&self, rows: usize) -> DType {
        match (self.packed(), self.on_device()) {
            (Some(layer), _) => input_type(layer),
            (None, Some(layer)) => device_input_type(rows, layer.weight),
            (None, None) => DType::F32,
        }
    }

    /// The layer as device kernels take it, if it is on a device that has any for it.
    pub(super) fn on_device(&self) -> Option<DeviceLayer<'_>> {
        match &self.matrix.0 {
            Form::Portable(weight) => Some(self.device_layer(weight.into())),
            Form::PackedOnDevice(matrix) => Some(self.device_layer(matrix.into())),
            Form::Packed(_) | Form::PortableQuantized(_) => None,
        }
    }

    fn packed(&self) -> Option<Layer<'_>> {
        let Form::Packed(matrix) = &self.matrix.0 else { return None };
        Some(self.layer(matrix))
    }

    fn layer<'a>(&'a self, matrix: &'a PackedMatrix) -> Layer<'a> {
        Layer { matrix, bias: self.bias.as_ref().map(|bias| bias.host.as_slice()) }
    }

    fn device_layer<'a>(&'a self, weight: DeviceWeight<'a>) -> DeviceLayer<'a> {
        DeviceLayer { weight, bias: self.bias.as_ref().map(|bias| &bias.tensor) }
    }
}
