//! The tensors of a projector's file, by Hugging Face names, with what conversion did to them undone.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::super::header::TensorInfo;
use super::super::kinds::Kind;
use super::super::row_order;
use crate::error::WeightError;
use crate::file_bytes::FileBytes;
use crate::stored::StoredTensor;
use crate::tensors::TensorSource;

/// Red, green and blue.
const CHANNELS: usize = 3;

/// Where a tensor is in the file: its parts, and what conversion did to them.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// In order; one, unless the form has several.
    pub(super) parts: Vec<TensorInfo>,
    pub(super) form: Form,
}

/// What conversion did to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Nothing.
    Same,
    /// This is one of three parts: queries, keys or values.
    Third(usize),
    /// This is one of two frames of a video, `[hidden, 3, side, side]` each.
    Frame(usize),
    /// The halves of each head take turns, of which there are so many.
    Turns(usize),
    /// Channels come before the pixels of a patch, in dimensions of their own or in one.
    Channels,
    /// 1 was added.
    PlusOne,
    /// The first two dimensions were swapped.
    Swapped,
}

impl Form {
    /// Parts of a tensor.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::Third(_) => 3,
            Self::Frame(_) => 2,
            _ => 1,
        }
    }

    /// Which of the parts this is.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Third(index) | Self::Frame(index) => index,
            _ => 0,
        }
    }
}

/// Places by Hugging Face names.
pub(super) type ByName = HashMap<String, Place>;

/// The tensors of the file.
#[derive(Debug)]
pub(super) struct ProjectorTensors {
    file: Arc<FileBytes>,
    tensors: ByName,
}

impl ProjectorTensors {
    pub(super) fn new(file: FileBytes, tensors: ByName) -> Self {
        Self { file: Arc::new(file), tensors }
    }

    fn part(&self, info: &TensorInfo) -> Result<StoredTensor, WeightError> {
        let (shape, bytes) = (info.shape.clone(), info.bytes.clone());
        match info.kind {
            Kind::Ggml(kind) => Ok(StoredTensor::in_file(kind, shape, self.file.clone(), bytes)),
            Kind::Coded(kind) => Ok(StoredTensor::in_file(kind, shape, self.file.clone(), bytes)),
            Kind::Whole => Err(WeightError::BadTensor {
                name: info.name.clone(),
                origin: self.file.path().display().to_string(),
                reason: "its kind is not supported in a projector".to_owned(),
            }),
        }
    }

    fn place(&self, Place { parts, form }: &Place) -> Result<StoredTensor, WeightError> {
        let stored: Result<Vec<_>, _> = parts.iter().map(|info| self.part(info)).collect();
        let stored = stored?;
        let shape = stored[0].dims().to_vec();
        let changed = |values: Vec<f32>, shape: Vec<usize>| {
            let bytes = values.into_iter().flat_map(f32::to_le_bytes).collect();
            StoredTensor::owned(GgmlDType::F32, shape, bytes)
        };
        Ok(match form {
            Form::Same => self.part(&parts[0])?,
            Form::Third(_) if stored.iter().all(|part| part.kind() == stored[0].kind()) => {
                let bytes = stored.iter().flat_map(|part| part.bytes().iter().copied());
                StoredTensor::owned(stored[0].kind(), rows_of(&stored), bytes.collect())
            }
            Form::Third(_) => {
                let values: Result<Vec<_>, _> = stored.iter().map(floats).collect();
                changed(values?.concat(), rows_of(&stored))
            }
            Form::Turns(heads) => {
                let bytes = row_order::in_halves(stored[0].bytes(), shape[0], *heads);
                StoredTensor::owned(stored[0].kind(), shape, bytes)
            }
            Form::Frame(_) => {
                let frames = [floats(&stored[0])?, floats(&stored[1])?];
                let pixels = shape[2..].iter().product();
                let [first, second] = frames.each_ref().map(|frame| frame.chunks_exact(pixels));
                let both = first.zip(second).flat_map(|(first, second)| [first, second].concat());
                changed(both.collect(), [&shape[..2], &[2], &shape[2..]].concat())
            }
            Form::Channels => {
                let moved = by_pixel(&floats(&stored[0])?, row(&shape));
                let flat = if shape.len() > 2 { vec![shape[0], row(&shape)] } else { shape };
                changed(moved, flat)
            }
            Form::PlusOne => {
                let values = floats(&stored[0])?.into_iter().map(|value| value - 1.0);
                changed(values.collect(), shape)
            }
            Form::Swapped => {
                let inner = shape[2..].iter().product::<usize>();
                let values = floats(&stored[0])?;
                let places = (0..shape[1]).flat_map(|j| (0..shape[0]).map(move |i| (i, j)));
                let rows = places.flat_map(|(i, j)| {
                    let start = (i * shape[1] + j) * inner;
                    values[start..start + inner].to_vec()
                });
                changed(rows.collect(), [&[shape[1], shape[0]][..], &shape[2..]].concat())
            }
        })
    }
}

/// Elements of a row: of all dimensions behind the first, or of a vector.
fn row(shape: &[usize]) -> usize {
    if shape.len() == 1 { shape[0] } else { shape[1..].iter().product() }
}

/// The shape of the rows of all together.
fn rows_of(stored: &[StoredTensor]) -> Vec<usize> {
    let mut shape = stored[0].dims().to_vec();
    shape[0] = stored.iter().map(|part| part.dims()[0]).sum();
    shape
}

fn floats(stored: &StoredTensor) -> Result<Vec<f32>, WeightError> {
    Ok(stored.to_tensor(DType::F32)?.flatten_all()?.to_vec1::<f32>()?)
}

/// Rows of elements whose channels stand one behind the other, with those of a pixel together.
fn by_pixel(values: &[f32], row: usize) -> Vec<f32> {
    let pixels = row / CHANNELS;
    let mut moved = Vec::with_capacity(values.len());
    for row in values.chunks_exact(row) {
        for pixel in 0..pixels {
            moved.extend((0..CHANNELS).map(|channel| row[channel * pixels + pixel]));
        }
    }
    moved
}

impl TensorSource for ProjectorTensors {
    fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        if let Some(place) = self.tensors.get(name) {
            return self.place(place);
        }
        let origin = self.origin(name);
        Err(WeightError::MissingTensor { name: name.to_owned(), origin })
    }

    fn origin(&self, name: &str) -> String {
        let path = self.file.path().display();
        match self.tensors.get(name) {
            Some(place) => format!("{path} (as `{}`)", place.parts[0].name),
            None => path.to_string(),
        }
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    fn total_bytes(&self) -> u64 {
        let parts = self.tensors.values().flat_map(|place| &place.parts);
        parts.map(|info| info.bytes.len() as u64).sum()
    }

    fn release_pages(&self) {
        self.file.release(0..self.file.bytes().len());
    }
}

/// The tensors of a decoder's files and of a projector's.
pub(super) struct Pair {
    pub(super) model: Arc<dyn TensorSource>,
    pub(super) projector: ProjectorTensors,
}

impl TensorSource for Pair {
    fn contains(&self, name: &str) -> bool {
        self.model.contains(name) || self.projector.contains(name)
    }

    fn read(&self, name: &str) -> Result<StoredTensor, WeightError> {
        if self.projector.contains(name) {
            return self.projector.read(name);
        }
        self.model.read(name)
    }

    fn origin(&self, name: &str) -> String {
        if self.projector.contains(name) {
            return self.projector.origin(name);
        }
        self.model.origin(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.model.names();
        names.extend(self.projector.names());
        names
    }

    fn total_bytes(&self) -> u64 {
        self.model.total_bytes() + self.projector.total_bytes()
    }

    fn release_pages(&self) {
        self.model.release_pages();
        self.projector.release_pages();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_a_pixel_come_together() {
        let planes = [1.0, 2.0, 11.0, 12.0, 21.0, 22.0, 3.0, 4.0, 13.0, 14.0, 23.0, 24.0];
        let pixels = [1.0, 11.0, 21.0, 2.0, 12.0, 22.0, 3.0, 13.0, 23.0, 4.0, 14.0, 24.0];
        assert_eq!(by_pixel(&planes, 6), pixels);
    }
}
