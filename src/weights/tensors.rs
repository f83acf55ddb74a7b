//! Tensors by name: what a model asks for, whatever format they come from.
//!
//! Knows names, shapes and where a tensor lives; never what a tensor means.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use sconce_blocks::Kind;

use super::cut::Cut;
use super::error::WeightError;
use super::progress::{Progress, ProgressSink};
use super::stored::{ForEachChunk, StoredTensor};
use super::tally::WeightTally;

/// Where tensors come from; one implementation per format.
pub trait TensorSource: Send + Sync {
    /// Whether the checkpoint has a tensor of this Hugging Face name.
    fn contains(&self, name: &str) -> bool;
    /// A tensor as stored; nothing is copied.
    fn read(&self, name: &str) -> Result<StoredTensor, WeightError>;
    /// Whole numbers as stored, `None` if there is no such tensor or it has others.
    fn whole_numbers(&self, _name: &str) -> Option<Vec<i64>> {
        None
    }
    /// What a tensor is like, which is known without its bytes where the format has it in a header.
    fn outline(&self, name: &str) -> Result<Outline, WeightError> {
        let tensor = self.read(name)?;
        Ok(Outline {
            name: name.to_owned(),
            kind: tensor.kind(),
            dims: tensor.dims().to_vec(),
            bytes: tensor.bytes().len(),
        })
    }
    /// The file or folder that a tensor is in, for messages.
    fn origin(&self, name: &str) -> String;
    /// The Hugging Face names of all tensors.
    fn names(&self) -> Vec<String>;
    /// Bytes of all tensors, as stored.
    fn total_bytes(&self) -> u64;
    /// Gives the memory of file pages that were read back to the system; reading goes on to work.
    fn release_pages(&self) {}
    /// Calls `look` with a description and the bytes of every tensor that the files have, always in the
    /// same order.
    fn for_each_stored(&self, look: &mut dyn FnMut(&str, &[u8])) -> Result<(), WeightError> {
        let mut names = self.names();
        names.sort_unstable();
        for name in names {
            let tensor = self.read(&name)?;
            look(&format!("{name} {:?} {:?}", tensor.kind(), tensor.dims()), tensor.bytes());
        }
        Ok(())
    }
}

/// A tensor without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Its Hugging Face name.
    pub name: String,
    /// How elements are stored.
    pub kind: Kind,
    /// Outermost first.
    pub dims: Vec<usize>,
    /// Bytes as stored.
    pub bytes: usize,
}

/// A view of a checkpoint below a name prefix.
#[derive(Clone)]
pub struct Weights {
    source: Arc<dyn TensorSource>,
    prefix: String,
    device: Device,
    for_each_chunk: ForEachChunk,
    progress: Option<Progress>,
    rounding: Option<GgmlDType>,
    transposed: bool,
    /// Cuts by the full names of tensors; those of transposed matrices apply to the transpose.
    cuts: Arc<HashMap<String, Cut>>,
    tally: WeightTally,
}

impl Weights {
    /// A view of everything, for a model on `device`.
    pub fn new(source: Arc<dyn TensorSource>, device: Device) -> Self {
        let for_each_chunk: ForEachChunk = |count, work| (0..count).for_each(work);
        Self {
            source,
            prefix: String::new(),
            device,
            for_each_chunk,
            progress: None,
            rounding: None,
            transposed: false,
            cuts: Arc::default(),
            tally: WeightTally::default(),
        }
    }

    /// Restricts the tensors of these full names to parts; a cut of a transposed matrix applies to its
    /// transpose.
    #[must_use]
    pub fn cut(self, cuts: HashMap<String, Cut>) -> Self {
        Self { cuts: Arc::new(cuts), ..self }
    }

    /// Looks at stored numbers in parallel from now on.
    #[must_use]
    pub fn in_parallel(self, for_each_chunk: ForEachChunk) -> Self {
        Self { for_each_chunk, ..self }
    }

    /// Tells `sink` of every tensor that was loaded from now on.
    #[must_use]
    pub fn with_progress(self, sink: ProgressSink) -> Self {
        let progress = Progress::new(self.source.total_bytes(), sink);
        Self { progress: Some(progress), ..self }
    }

    /// Has matrices rounded to `kind` as they are loaded.
    #[must_use]
    pub fn rounded_to(self, kind: Option<GgmlDType>) -> Self {
        Self { rounding: kind, ..self }
    }

    /// Says whether matrices are stored transposed, as `[inputs, outputs]`.
    #[must_use]
    pub fn with_transposed_matrices(self, transposed: bool) -> Self {
        Self { transposed, ..self }
    }

    /// What matrices are to be rounded to as they are loaded, if not kept as stored.
    pub fn rounding(&self) -> Option<GgmlDType> {
        self.rounding
    }

    /// The count of the model's matrices, by the form in which they are stored.
    pub fn tally(&self) -> &WeightTally {
        &self.tally
    }

    /// The view one level down: `scope("model").scope("layers").scope(3)`.
    #[must_use]
    pub fn scope(&self, name: impl Display) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }

    /// The view below a prefix that is given with its dots.
    #[must_use]
    pub fn scope_as(&self, prefix: &str) -> Self {
        Self { prefix: format!("{}{prefix}", self.prefix), ..self.clone() }
    }

    /// The device that the model runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// All tensors of the view without their bytes, in the order of their names below it.
    pub fn outlines(&self) -> Result<Vec<Outline>, WeightError> {
        let mut names = self.source.names();
        names.retain(|name| name.starts_with(&self.prefix));
        names.sort_unstable();
        let below = |name: &String| {
            let outline = self.source.outline(name)?;
            Ok(Outline { name: name[self.prefix.len()..].to_owned(), ..outline })
        };
        names.iter().map(below).collect()
    }

    /// Whether the view has a tensor called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.source.contains(&format!("{}{name}", self.prefix))
    }

    /// A tensor as stored, with its shape and its numbers checked.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<StoredTensor, WeightError> {
        self.stored_rows(name, shape, None)
    }

    /// Some rows of a tensor as stored; `shape` is that of the whole tensor.
    pub fn stored_rows(
        &self,
        name: &str,
        shape: &[usize],
        rows: Option<&[Range<usize>]>,
    ) -> Result<StoredTensor, WeightError> {
        let name = format!("{}{name}", self.prefix);
        if !self.source.contains(&name) {
            let origin = self.source.origin(&name);
            return Err(WeightError::MissingTensor { name, origin });
        }
        let mut tensor = self.source.read(&name)?;
        if self.transposed && tensor.dims().len() == 2 {
            tensor = tensor.transposed()?;
        }
        if let Some(cut) = self.cuts.get(&name) {
            let cut = cut.of(&tensor, |other| self.source.read(other));
            tensor = cut.map_err(|error| WeightError::BadTensor {
                origin: self.source.origin(&name),
                reason: format!("it can't be split: {error}"),
                name: name.clone(),
            })?;
        }
        // Dimensions of one say nothing about where an element is; some files leave them out.
        let sizes = |dims: &[usize]| dims.iter().copied().filter(|dim| *dim != 1).collect();
        let (found, expected): (Vec<usize>, Vec<usize>) = (sizes(tensor.dims()), sizes(shape));
        if found == expected {
            tensor = tensor.with_dims(shape);
        } else {
            let origin = self.source.origin(&name);
            let (found, expected) = (tensor.dims().to_vec(), shape.to_vec());
            return Err(WeightError::WrongShape { name, origin, found, expected });
        }
        if let Some(rows) = rows {
            tensor.keep_rows(rows)?;
        }
        if let Some(fault) = tensor.first_fault(self.for_each_chunk) {
            let origin = self.source.origin(&name);
            let reason = format!("{fault}; the file is corrupt");
            return Err(WeightError::BadTensor { name, origin, reason });
        }
        tensor.count_in(self.progress.clone());
        Ok(tensor)
    }

    /// A tensor of `count` whole numbers.
    pub fn whole_numbers(&self, name: &str, count: usize) -> Result<Vec<i64>, WeightError> {
        let name = format!("{}{name}", self.prefix);
        let origin = self.source.origin(&name);
        let Some(numbers) = self.source.whole_numbers(&name) else {
            if !self.source.contains(&name) {
                return Err(WeightError::MissingTensor { name, origin });
            }
            let reason = "it has other numbers than whole ones of 32 or 64 bits".to_owned();
            return Err(WeightError::BadTensor { name, origin, reason });
        };
        if numbers.len() != count {
            let (found, expected) = (vec![numbers.len()], vec![count]);
            return Err(WeightError::WrongShape { name, origin, found, expected });
        }
        Ok(numbers)
    }

    /// A small dense tensor (norm, bias) in `dtype` on the model's device, dequantized if need be.
    pub fn dense(&self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor, WeightError> {
        Ok(self.stored(name, shape)?.to_tensor_on(dtype, &self.device)?)
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

#[cfg(test)]
impl MemoryTensors {
    /// Tensors `[1, 2]` of zeros with these names.
    pub(crate) fn named(names: &[&str]) -> Self {
        let tensor = || Tensor::zeros((1, 2), DType::F32, &Device::Cpu).unwrap();
        Self::new(names.iter().map(|name| ((*name).to_owned(), tensor())).collect())
    }
}

impl TensorSource for MemoryTensors {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        let Some(tensor) = self.tensors.get(name) else {
            let origin = self.origin(name);
            return Err(WeightError::MissingTensor { name: name.to_owned(), origin });
        };
        let Some((kind, bytes)) = bytes_of(tensor)? else {
            return Err(WeightError::BadTensor {
                name: name.to_owned(),
                origin: self.origin(name),
                reason: format!("dtype {:?} is not supported, expected BF16, F16 or F32", {
                    tensor.dtype()
                }),
            });
        };
        Ok(StoredTensor::owned(kind, tensor.dims().to_vec(), bytes))
    }

    fn whole_numbers(&self, name: &str) -> Option<Vec<i64>> {
        let tensor = self.tensors.get(name).filter(|tensor| tensor.dtype().is_int())?;
        tensor.to_dtype(DType::I64).and_then(|tensor| tensor.flatten_all()?.to_vec1()).ok()
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

/// A tensor's numbers as a file would hold them, if they can be weights.
pub(crate) fn bytes_of(tensor: &Tensor) -> Result<Option<(GgmlDType, Vec<u8>)>, WeightError> {
    let flat = tensor.flatten_all()?;
    Ok(match tensor.dtype() {
        DType::F32 => {
            let values = flat.to_vec1::<f32>()?;
            Some((GgmlDType::F32, values.into_iter().flat_map(f32::to_le_bytes).collect()))
        }
        DType::F16 => {
            let values = flat.to_vec1::<f16>()?;
            Some((GgmlDType::F16, values.into_iter().flat_map(f16::to_le_bytes).collect()))
        }
        DType::BF16 => {
            let values = flat.to_vec1::<bf16>()?;
            Some((GgmlDType::BF16, values.into_iter().flat_map(bf16::to_le_bytes).collect()))
        }
        _ => None,
    })
}
