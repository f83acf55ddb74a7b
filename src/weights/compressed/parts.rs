//! The tensors that one matrix is made of, and what may be wrong with them.

use candle_core::quantized::GgmlDType;

use crate::safetensors::{RawTensor, SafetensorsSource};
use crate::stored::StoredTensor;

/// What is wrong with one of the tensors that a matrix is made of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) part: &'static str,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(part: &'static str, reason: impl Into<String>) -> Self {
        Self { part, reason: reason.into() }
    }
}

/// The tensors that one matrix is made of.
pub(super) struct Parts<'a> {
    pub(super) source: &'a SafetensorsSource,
    pub(super) stem: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn get(&self, part: &str) -> Option<RawTensor<'a>> {
        self.source.raw(&format!("{}{part}", self.stem))
    }

    pub(super) fn need(&self, part: &'static str) -> Result<RawTensor<'a>, Fault> {
        self.get(part).ok_or_else(|| Fault::new(part, "missing beside the other parts"))
    }

    /// Two dimensions of a tensor.
    pub(super) fn matrix(
        &self,
        part: &'static str,
    ) -> Result<(RawTensor<'a>, usize, usize), Fault> {
        let tensor = self.need(part)?;
        match *tensor.shape {
            [rows, columns] => Ok((tensor, rows, columns)),
            ref other => Err(Fault::new(part, format!("has shape {other:?}, expected a matrix"))),
        }
    }

    /// 32-bit words of a matrix.
    pub(super) fn words(&self, part: &'static str) -> Result<(Vec<u32>, usize, usize), Fault> {
        let (tensor, rows, columns) = self.matrix(part)?;
        let words = tensor.words().ok_or_else(|| {
            Fault::new(part, format!("dtype {:?} is not supported, expected I32", tensor.dtype))
        })?;
        Ok((words, rows, columns))
    }

    /// Numbers of a tensor of floats.
    pub(super) fn floats(&self, part: &'static str) -> Result<Vec<f32>, Fault> {
        let tensor = self.need(part)?;
        tensor.floats().ok_or_else(|| {
            let reason =
                format!("dtype {:?} is not supported, expected BF16, F16 or F32", tensor.dtype);
            Fault::new(part, reason)
        })
    }
}

/// A dense matrix of this kind from f32 numbers.
pub(super) fn dense(kind: GgmlDType, dims: [usize; 2], values: &[f32]) -> StoredTensor {
    let bytes = match kind {
        GgmlDType::F16 => {
            values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect()
        }
        _ => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
    };
    let kind = if kind == GgmlDType::F16 { kind } else { GgmlDType::BF16 };
    StoredTensor::owned(kind, dims.to_vec(), bytes)
}
