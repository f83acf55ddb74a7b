//! Tensors by name: what a model asks for, whatever format they come from.
//!
//! Knows names, shapes and where a tensor lives; never what a tensor means.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use candle_core::quantized::QTensor;
use candle_core::{DType, Device, Tensor};

use super::error::WeightError;

/// One tensor as stored.
#[derive(Clone, Debug)]
pub enum StoredTensor {
    /// bf16, f16 or f32, on the CPU.
    Dense(Tensor),
    /// A GGUF quant kind, on the CPU.
    Quantized(Arc<QTensor>),
}

impl StoredTensor {
    /// Its dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        match self {
            Self::Dense(tensor) => tensor.dims(),
            Self::Quantized(tensor) => tensor.shape().dims(),
        }
    }
}

/// Where tensors come from; one implementation per format.
pub trait TensorSource: Send + Sync {
    /// Whether the checkpoint has a tensor of this Hugging Face name.
    fn contains(&self, name: &str) -> bool;
    /// Reads a tensor as stored.
    fn read(&self, name: &str) -> Result<StoredTensor, WeightError>;
    /// The file or folder, for messages.
    fn origin(&self, name: &str) -> String;
    /// Names of all tensors.
    fn names(&self) -> Vec<String>;
    /// Bytes of all tensors, as stored.
    fn total_bytes(&self) -> u64;
    /// Gives the memory of file pages that were read back to the system; reading goes on to work.
    fn release_pages(&self) {}
}

/// A view of a checkpoint below a name prefix.
#[derive(Clone)]
pub struct Weights {
    source: Arc<dyn TensorSource>,
    prefix: String,
    device: Device,
}

impl Weights {
    /// A view of everything, for a model on `device`.
    pub fn new(source: Arc<dyn TensorSource>, device: Device) -> Self {
        Self { source, prefix: String::new(), device }
    }

    /// The view one level down: `scope("model").scope("layers").scope(3)`.
    #[must_use]
    pub fn scope(&self, name: impl Display) -> Self {
        let prefix = format!("{}{name}.", self.prefix);
        Self { source: self.source.clone(), prefix, device: self.device.clone() }
    }

    /// Where the model runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether `name` exists here.
    pub fn contains(&self, name: &str) -> bool {
        self.source.contains(&format!("{}{name}", self.prefix))
    }

    /// A tensor as stored, with its shape checked.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<StoredTensor, WeightError> {
        let name = format!("{}{name}", self.prefix);
        if !self.source.contains(&name) {
            let origin = self.source.origin(&name);
            return Err(WeightError::MissingTensor { name, origin });
        }
        let tensor = self.source.read(&name)?;
        if tensor.dims() != shape {
            let origin = self.source.origin(&name);
            let (found, expected) = (tensor.dims().to_vec(), shape.to_vec());
            return Err(WeightError::WrongShape { name, origin, found, expected });
        }
        Ok(tensor)
    }

    /// A small dense tensor (norm, bias) in `dtype` on the model's device, dequantized if need be.
    pub fn dense(&self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor, WeightError> {
        let tensor = match self.stored(name, shape)? {
            StoredTensor::Dense(tensor) => tensor,
            StoredTensor::Quantized(tensor) => tensor.dequantize(&Device::Cpu)?,
        };
        Ok(tensor.to_dtype(dtype)?.to_device(&self.device)?)
    }
}

/// Tensors held in memory, under their Hugging Face names.
pub struct MemoryTensors {
    tensors: HashMap<String, Tensor>,
}

impl MemoryTensors {
    /// A source of these tensors, which live on the CPU.
    pub fn new(tensors: HashMap<String, Tensor>) -> Self {
        Self { tensors }
    }
}

impl TensorSource for MemoryTensors {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        self.tensors.get(name).cloned().map(StoredTensor::Dense).ok_or_else(|| {
            WeightError::MissingTensor { name: name.to_owned(), origin: self.origin(name) }
        })
    }

    fn origin(&self, _name: &str) -> String {
        "memory".to_owned()
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|t| (t.elem_count() * t.dtype().size_in_bytes()) as u64).sum()
    }
}
