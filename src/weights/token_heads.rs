//! Two linear layers that BGE-M3 has beside its checkpoint, in files of PyTorch: a zip with a pickle
//! that names tensors, and with their bytes.
//!
//! A pickle can name code to run. These two are read by an interpreter of the few instructions that
//! tensors need, which makes plain data of them and calls nothing; no other weights are read from
//! pickles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use candle_core::pickle::{PthTensors, TensorInfo};
use candle_core::{DType, Tensor};

use super::error::WeightError;
use super::file_bytes::FileBytes;
use super::folder::ModelFolder;

/// How much each token says what a text is about: `[1, hidden]`.
const SPARSE: &str = "sparse_linear.pt";
/// Each token's vector for late interaction: `[size, hidden]`.
const COLBERT: &str = "colbert_linear.pt";
/// The files that a folder has both of, or neither.
pub(crate) const FILES: [&str; 2] = [SPARSE, COLBERT];
/// A matrix of 4096 squared in f32.
const MOST_BYTES: usize = 64 << 20;

/// Where the two layers are.
#[derive(Clone, Debug)]
pub struct TokenHeadFiles {
    sparse: PathBuf,
    colbert: PathBuf,
}

/// A linear layer, in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearLayer {
    /// `[outputs, inputs]`, by rows.
    pub weight: Vec<Vec<f32>>,
    /// `[outputs]`.
    pub bias: Vec<f32>,
}

impl TokenHeadFiles {
    /// The files of a folder, if it has any.
    ///
    /// # Errors
    /// It has one of them alone.
    pub(crate) fn find(folder: &ModelFolder) -> Result<Option<Self>, WeightError> {
        let ModelFolder::Disk(root) = folder else { return Ok(None) };
        let [sparse, colbert] = FILES.map(|name| root.join(name));
        let (found, missing) = match (sparse.exists(), colbert.exists()) {
            (false, false) => return Ok(None),
            (true, true) => return Ok(Some(Self { sparse, colbert })),
            (true, false) => (SPARSE, COLBERT),
            (false, true) => (COLBERT, SPARSE),
        };
        let reason = format!("{missing} is missing; it belongs to {found}");
        Err(WeightError::Incomplete { folder: root.clone(), reason })
    }

    /// The layer that weighs tokens, `[1, hidden_size]`.
    ///
    /// # Errors
    /// The file is too large, damaged or not of this format, or the layer has another shape.
    pub fn sparse(&self, hidden_size: usize) -> Result<LinearLayer, WeightError> {
        read(&self.sparse, Some(1), hidden_size)
    }

    /// The layer that makes vectors of tokens, `[any, hidden_size]`.
    ///
    /// # Errors
    /// As [`TokenHeadFiles::sparse`].
    pub fn colbert(&self, hidden_size: usize) -> Result<LinearLayer, WeightError> {
        read(&self.colbert, None, hidden_size)
    }
}

fn read(path: &Path, outputs: Option<usize>, inputs: usize) -> Result<LinearLayer, WeightError> {
    let bytes = FileBytes::open(path)?.bytes().len();
    if bytes > MOST_BYTES {
        let reason =
            format!("has {bytes} bytes, expected one linear layer of at most {MOST_BYTES}");
        return Err(WeightError::corrupt(path, reason));
    }
    let file = caught(path, || PthTensors::new(path, None))?;
    let origin = path.display().to_string();
    let info = |name: &str| {
        let missing =
            || WeightError::MissingTensor { name: name.to_owned(), origin: origin.clone() };
        file.tensor_infos().get(name).ok_or_else(missing)
    };
    let outputs = match (outputs, info("weight")?.layout.dims()) {
        (None, [outputs, _]) => (*outputs).max(1),
        (known, _) => known.unwrap_or(inputs),
    };
    // The shape is checked before bytes are read: it says how many are asked for.
    let tensor = |name: &str, expected: &[usize]| {
        let info = info(name)?;
        let bad = |reason: String| WeightError::BadTensor {
            name: name.to_owned(),
            origin: origin.clone(),
            reason,
        };
        check(info, expected, &origin)?;
        if size_in_bytes(info).is_none_or(|size| size > bytes) {
            return Err(bad(format!("it is larger than the file of {bytes} bytes")));
        }
        let Some(tensor) = caught(path, || file.get(name))? else {
            return Err(bad("it has no bytes".to_owned()));
        };
        let tensor = tensor.to_dtype(DType::F32)?;
        let values = tensor.flatten_all()?.to_vec1::<f32>()?;
        match values.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(bad(format!("it holds {value}, which is no weight"))),
            None => Ok::<Tensor, WeightError>(tensor),
        }
    };
    Ok(LinearLayer {
        weight: tensor("weight", &[outputs, inputs])?.to_vec2()?,
        bias: tensor("bias", &[outputs])?.to_vec1()?,
    })
}

/// Refuses another shape than the expected one, and what are no floating-point numbers.
fn check(info: &TensorInfo, expected: &[usize], origin: &str) -> Result<(), WeightError> {
    let (name, origin) = (info.name.clone(), origin.to_owned());
    let found = info.layout.dims().to_vec();
    if found != expected {
        let expected = expected.to_vec();
        return Err(WeightError::WrongShape { name, origin, found, expected });
    }
    if !matches!(info.dtype, DType::F32 | DType::F16 | DType::BF16) {
        let reason = format!("it is of {:?}, expected F32, F16 or BF16", info.dtype);
        return Err(WeightError::BadTensor { name, origin, reason });
    }
    Ok(())
}

fn size_in_bytes(info: &TensorInfo) -> Option<usize> {
    let size = |bytes: usize, dimension: &usize| bytes.checked_mul(*dimension);
    info.layout.dims().iter().try_fold(info.dtype.size_in_bytes(), size)
}

/// What the reader makes of a file. It panics where a pickle has fewer arguments than a tensor needs.
fn caught<T>(path: &Path, read: impl FnOnce() -> candle_core::Result<T>) -> Result<T, WeightError> {
    let unreadable = |reason: &str| {
        let reason = format!(
            "not a linear layer as torch.save writes it, a zip with a pickle ({reason}); \
             download it again"
        );
        WeightError::corrupt(path, reason)
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| unreadable(&error.to_string())),
        Err(_) => Err(unreadable("its pickle is incomplete")),
    }
}
