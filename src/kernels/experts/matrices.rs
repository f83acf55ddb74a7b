//! The matrices of all experts of a layer on NVIDIA GPUs, by their addresses.

use candle_core::{DType, Result, Tensor};

use crate::cuda::launch::Address;
use crate::linear::{DeviceLayer, Elements};

/// One layer of all experts: addresses `[E]` of their weights.
#[derive(Debug)]
pub(super) struct Matrices {
    pub(super) weights: Tensor,
    biases: Option<Tensor>,
    /// `[rows, inputs]` of each.
    pub(super) shape: (usize, usize),
    pub(super) elements: Elements,
    /// Whether 16 bytes of a row can be read at once.
    pub(super) aligned: bool,
    /// Keeps the memory that the addresses are of.
    _kept: Vec<Tensor>,
}

impl Matrices {
    /// `None` if layers differ, or if there are no kernels for their weights.
    pub(super) fn of(layers: &[DeviceLayer<'_>]) -> Result<Option<Self>> {
        let first = layers[0];
        let (elements, shape) = (first.weight.elements(), first.weight.dims()?);
        let known = match elements {
            Elements::Dense(dtype) => matches!(dtype, DType::BF16 | DType::F16 | DType::F32),
            Elements::Packed(_) => true,
        };
        let mut alike = true;
        for layer in layers {
            alike &= layer.weight.elements() == elements
                && layer.weight.dims()? == shape
                && layer.bias.is_some() == first.bias.is_some();
        }
        if !known || !alike {
            return Ok(None);
        }
        let device = first.weight.device();
        let memories = layers.iter().map(|layer| layer.weight.memory());
        let weights = memories.clone().map(|memory| Address::of(memory, memory.dtype()));
        let weights = weights.collect::<Result<Vec<_>>>()?;
        let biases = layers.iter().filter_map(|layer| layer.bias);
        let kept: Vec<Tensor> = memories.chain(biases.clone()).cloned().collect();
        let biases =
            biases.map(|bias| Address::of(bias, DType::F32)).collect::<Result<Vec<_>>>()?;
        Ok(Some(Self {
            aligned: shape.1 % 8 == 0 && weights.iter().all(|address| address.is_aligned()),
            weights: Address::list(&weights, device)?,
            biases: (!biases.is_empty()).then(|| Address::list(&biases, device)).transpose()?,
            shape,
            elements,
            _kept: kept,
        }))
    }

    /// Whether the elements are quantized.
    pub(super) fn are_packed(&self) -> bool {
        matches!(self.elements, Elements::Packed(_))
    }

    /// The addresses of weights, and of biases.
    pub(super) fn addresses(&self) -> Result<[Address; 2]> {
        let biases = Address::of_some(self.biases.as_ref(), DType::I64)?;
        Ok([Address::of(&self.weights, DType::I64)?, biases])
    }
}
