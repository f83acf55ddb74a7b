//! Checkpoints whose matrices other software has quantized: FP8, GPTQ, AWQ, MXFP4,
//! compressed-tensors.
//!
//! A matrix `x.weight` is made of the tensors that stand for it (`x.qweight`, `x.scales`, ...) when
//! it is asked for: 4-bit codes become 4-bit blocks with the same zero points, signed 8-bit codes
//! become 8-bit blocks, and what fits no block becomes dense. Which tensors are there decides, not
//! the configuration, so layers that were left out of the quantization are read as they are.

mod codes;
mod fp4;
mod fp8;
mod packed;
mod parts;

use safetensors::tensor::Dtype;
use serde_json::Value;

use super::error::WeightError;
use super::safetensors::SafetensorsSource;
use super::stored::StoredTensor;
use super::tensors::TensorSource;
use parts::{Fault, Parts};

/// How a checkpoint's matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// 8-bit floats with a scale for all, for rows or for blocks of this many rows and columns.
    Fp8(Option<(usize, usize)>),
    /// GPTQ: codes along the inputs; zero points are stored less `zero_offset`.
    Gptq { zero_offset: u8 },
    /// AWQ: codes along the outputs, interleaved.
    Awq,
    /// Experts as 4-bit floats with a power of two for 32 of them.
    Mxfp4,
    /// compressed-tensors: any of the schemes above or 8-bit integers, told apart by tensors. No tensor tells
    /// whether matrices of 8-bit integers meet activations with a scale for each token.
    CompressedTensors { by_token: bool },
}

/// Endings of the tensors that matrices are made of.
const PARTS: [&str; 12] = [
    "qweight",
    "qzeros",
    "scales",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_inv",
    "weight_global_scale",
    "weight_zero_point",
    "weight_shape",
    "weight_g_idx",
    "input_scale",
];

/// Safetensors in which some matrices are stored in parts.
#[derive(Debug)]
pub struct CompressedSource {
    inner: SafetensorsSource,
    scheme: Scheme,
}

impl CompressedSource {
    /// The tensors of a checkpoint with this `quantization_config`; the source itself where the
    /// method is none that is known.
    pub(crate) fn new(
        inner: SafetensorsSource,
        quantization: &Value,
    ) -> Result<Self, SafetensorsSource> {
        match scheme(quantization) {
            Some(scheme) => Ok(Self { inner, scheme }),
            None => Err(inner),
        }
    }

    /// The name without its ending, if it names a matrix that is stored in parts.
    fn stem<'n>(&self, name: &'n str) -> Option<&'n str> {
        let stem = name.strip_suffix("weight").filter(|stem| stem.ends_with('.'))?;
        let has = |part: &str| self.inner.contains(&format!("{stem}{part}"));
        let scaled = || has("weight_scale") || has("weight_scale_inv");
        (has("qweight") || has("weight_packed") || scaled()).then_some(stem)
    }

    /// The name of experts without its ending, if they are 4-bit floats.
    fn experts<'n>(&self, name: &'n str) -> Option<&'n str> {
        let stem = name.strip_suffix("_blocks").filter(|_| self.scheme == Scheme::Mxfp4)?;
        self.inner.contains(name).then_some(stem)
    }

    fn build(&self, stem: &str) -> Result<StoredTensor, Fault> {
        let parts = Parts { source: &self.inner, stem };
        match self.scheme {
            Scheme::Mxfp4 => fp4::matrix(&parts),
            Scheme::Fp8(block) => fp8::matrix(&parts, block),
            Scheme::Gptq { zero_offset } => packed::gptq(&parts, zero_offset)?.stored(),
            Scheme::Awq => packed::awq(&parts)?.stored(),
            Scheme::CompressedTensors { by_token } => match parts.get("weight_packed") {
                Some(packed) if packed.dtype == Dtype::U8 => fp4::matrix(&parts),
                Some(_) => packed::compressed_tensors(&parts)?.stored(),
                None if parts.need("weight")?.dtype == Dtype::I8 => {
                    let stored = packed::int8(&parts)?.stored()?;
                    Ok(if by_token { stored.by_token() } else { stored })
                }
                None => fp8::matrix(&parts, None),
            },
        }
    }
}

fn scheme(quantization: &Value) -> Option<Scheme> {
    let text = |key: &str| quantization.get(key).and_then(Value::as_str);
    match text("quant_method")? {
        "fp8" => {
            let sizes = quantization.get("weight_block_size").and_then(Value::as_array);
            let sizes = sizes.map(|sizes| {
                let size = |at: usize| usize::try_from(sizes.get(at)?.as_u64()?).ok();
                size(0).zip(size(1)).filter(|(rows, columns)| *rows > 0 && *columns > 0)
            });
            match sizes {
                None => Some(Scheme::Fp8(None)),
                Some(sizes) => sizes.map(|sizes| Scheme::Fp8(Some(sizes))),
            }
        }
        "gptq" => {
            let second = text("checkpoint_format") == Some("gptq_v2");
            Some(Scheme::Gptq { zero_offset: u8::from(!second) })
        }
        "awq" if text("version").unwrap_or("gemm").eq_ignore_ascii_case("gemm") => {
            Some(Scheme::Awq)
        }
        "mxfp4" => Some(Scheme::Mxfp4),
        "compressed-tensors" => {
            Some(Scheme::CompressedTensors { by_token: is_by_token(quantization) })
        }
        _ => None,
    }
}

/// Whether activations of all layers are quantized as 8-bit integers around zero, each token's by its own largest.
fn is_by_token(quantization: &Value) -> bool {
    let Some(groups) = quantization.get("config_groups").and_then(Value::as_object) else {
        return false;
    };
    let by_token = |group: &Value| {
        let inputs = &group["input_activations"];
        inputs["num_bits"] == 8
            && inputs["type"] == "int"
            && inputs["strategy"] == "token"
            && inputs["symmetric"] == true
            && inputs["dynamic"] == true
    };
    !groups.is_empty() && groups.values().all(by_token)
}

impl TensorSource for CompressedSource {
    fn contains(&self, name: &str) -> bool {
        self.inner.contains(name) || self.stem(name).is_some()
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        let (stem, built) = match (self.experts(name), self.stem(name)) {
            (Some(stem), _) => (stem, fp4::experts(&Parts { source: &self.inner, stem })),
            (None, Some(stem)) => (stem, self.build(stem)),
            (None, None) => return self.inner.read(name),
        };
        built.map_err(|Fault { part, reason }| WeightError::BadTensor {
            name: format!("{stem}{part}"),
            origin: self.inner.origin(&format!("{stem}{part}")),
            reason,
        })
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.inner.whole_numbers(name)
    }

    fn origin(&self, name: &str) -> String {
        let part = self.stem(name).and_then(|stem| {
            let names = PARTS.iter().map(|part| format!("{stem}{part}"));
            names.into_iter().find(|name| self.inner.contains(name))
        });
        self.inner.origin(part.as_deref().unwrap_or(name))
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.inner.names() {
            match name.rsplit_once('.').filter(|(_, ending)| PARTS.contains(ending)) {
                Some((stem, "qweight" | "weight_packed")) => names.push(format!("{stem}.weight")),
                Some(_) => {}
                None => names.push(name),
            }
        }
        names
    }

    fn total_bytes(&self) -> u64 {
        self.inner.total_bytes()
    }

    fn release_pages(&self) {
        self.inner.release_pages();
    }

    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        self.inner.for_each_stored(look)
    }
}

#[cfg(test)]
mod tests;
