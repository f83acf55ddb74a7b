//! One tensor as stored: its kind, its dimensions and its bytes, which stay where the file has
//! them.
//!
//! Nothing is copied until somebody asks for a tensor of the tensor library. Dropping a
//! [`StoredTensor`] gives its pages of the mapped file back to the system, so a model that moves
//! tensor after tensor into its own memory never holds its weights twice.

use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Result, Tensor, bail};
use sconce_blocks::{Coded, Kind, W8A8_COLUMNS, dequantize};

use super::file_bytes::FileBytes;
use super::finite;
use super::progress::Progress;

/// Calls its second argument with `0`, `1`, ... below the first, each once, in any order and in
/// parallel as far as it can; returns when all calls have.
pub type ForEachChunk = fn(usize, &(dyn Fn(usize) + Sync));

/// Bytes that one call of a [`ForEachChunk`] looks at: large against the cost of a call, small
/// against a tensor.
const CHUNK_BYTES: usize = 1 << 20;
/// What the tensor library's widest block element asks of an address.
const ALIGNMENT: usize = 8;

/// A tensor of a checkpoint, not yet moved anywhere.
pub struct StoredTensor {
    kind: Kind,
    dims: Vec<usize>,
    content: Content,
    progress: Option<Progress>,
}

enum Content {
    File { file: Arc<FileBytes>, range: Range<usize> },
    Owned(Vec<u8>),
}

impl StoredTensor {
    /// The part `range` of a file, which holds `dims` elements of `kind`.
    pub(crate) fn in_file(
        kind: impl Into<Kind>,
        dims: Vec<usize>,
        file: Arc<FileBytes>,
        range: Range<usize>,
    ) -> Self {
        let kind = kind.into();
        Self { kind, dims, content: Content::File { file, range }, progress: None }
    }

    /// A tensor whose bytes no file has in this order.
    pub fn owned(kind: impl Into<Kind>, dims: Vec<usize>, bytes: Vec<u8>) -> Self {
        let kind = kind.into();
        Self { kind, dims, content: Content::Owned(bytes), progress: None }
    }

    /// Counts this tensor's bytes as loaded when it is dropped.
    pub(crate) fn count_in(&mut self, progress: Option<Progress>) {
        self.progress = progress;
    }

    /// How elements are stored: F32, F16, BF16 or a quant kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A matrix of 8-bit blocks, all of which have their row's scale, as one to be multiplied with activations
    /// quantized by token; any other tensor as it is, and a matrix of rows that are too long.
    pub(crate) fn by_token(mut self) -> Self {
        let fits = self.dims.last().is_some_and(|columns| *columns <= W8A8_COLUMNS);
        if fits && self.kind == Kind::Ggml(GgmlDType::Q8_0) {
            self.kind = Kind::W8A8;
        }
        self
    }

    /// The tensor with other dimensions of as many elements.
    pub(crate) fn with_dims(mut self, dims: &[usize]) -> Self {
        debug_assert_eq!(self.dims.iter().product::<usize>(), dims.iter().product::<usize>());
        self.dims = dims.to_vec();
        self
    }

    /// Drops all rows but those of `ranges`, as [`Self::rows`] gives them.
    pub(crate) fn keep_rows(&mut self, ranges: &[Range<usize>]) -> Result<()> {
        let (rows, inner) = self.matrix_dims()?;
        let joined = ranges.is_sorted_by(|a, b| a.end == b.start);
        let kept: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        if joined && kept == rows && ranges.first().is_some_and(|first| first.start == 0) {
            // All of them: what was read or made is not copied.
            self.dims = [Some(rows), inner].into_iter().flatten().collect();
        } else {
            (self.dims, self.content) = self.part(ranges)?;
        }
        Ok(())
    }

    /// The number of rows, and of elements of each row where the tensor is no vector.
    fn matrix_dims(&self) -> Result<(usize, Option<usize>)> {
        Ok(match self.dims.as_slice() {
            [] => bail!("a tensor without dimensions has no rows"),
            [rows] => (*rows, None),
            [outer @ .., inner] => (outer.iter().product(), Some(*inner)),
        })
    }

    /// These rows alone, one range after the other, as a matrix (or as a vector, if it is one).
    /// Ranges of a file that follow each other stay where they are; others are copied.
    ///
    /// # Errors
    ///
    /// A range that ends behind the last row.
    pub fn rows(&self, ranges: &[Range<usize>]) -> Result<Self> {
        let (dims, content) = self.part(ranges)?;
        Ok(Self { kind: self.kind, dims, content, progress: None })
    }

    fn part(&self, ranges: &[Range<usize>]) -> Result<(Vec<usize>, Content)> {
        let (rows, inner) = self.matrix_dims()?;
        if let Some(range) = ranges.iter().find(|range| range.end > rows) {
            bail!("rows {range:?} of {rows}");
        }
        let bytes = self.bytes();
        let row = bytes.len() / rows.max(1);
        let kept = ranges.iter().map(ExactSizeIterator::len).sum();
        let dims = inner.map_or_else(|| vec![kept], |inner| vec![kept, inner]);
        let joined = ranges.is_sorted_by(|a, b| a.end == b.start);
        let content = match (&self.content, ranges.first(), ranges.last()) {
            (Content::File { file, range }, Some(first), Some(last)) if joined => {
                let range = range.start + first.start * row..range.start + last.end * row;
                Content::File { file: file.clone(), range }
            }
            _ => {
                let mut copy = Vec::with_capacity(kept * row);
                for range in ranges {
                    copy.extend_from_slice(&bytes[range.start * row..range.end * row]);
                }
                Content::Owned(copy)
            }
        };
        Ok((dims, content))
    }

    /// These columns of every row, one range after the other.
    ///
    /// # Errors
    ///
    /// A range that ends behind the last column, or cuts through blocks of quantized elements.
    pub(crate) fn columns(&self, ranges: &[Range<usize>]) -> Result<Self> {
        let Some((&columns, outer)) = self.dims.split_last() else {
            bail!("a tensor without dimensions has no columns");
        };
        let block = self.kind.block_size();
        for range in ranges {
            if range.end > columns {
                bail!("columns {range:?} of {columns}");
            }
            if [columns, range.start, range.end].iter().any(|end| !end.is_multiple_of(block)) {
                let kind = self.kind;
                bail!("columns {range:?} of {columns} cut through {kind:?} blocks of {block}");
            }
        }
        let bytes = |elements: usize| elements / block * self.kind.type_size();
        let rows = self.bytes().chunks_exact(bytes(columns).max(1));
        let of_row = |row| ranges.iter().map(move |range| (row, range));
        let parts = rows.flat_map(of_row);
        let kept = ranges.iter().map(ExactSizeIterator::len).sum();
        let dims = [outer, &[kept]].concat();
        let mut content = Vec::with_capacity(bytes(dims.iter().product()));
        for (row, range) in parts {
            let row: &[u8] = row;
            content.extend_from_slice(&row[bytes(range.start)..bytes(range.end)]);
        }
        Ok(Self::owned(self.kind, dims, content))
    }

    /// A tensor of the same dimensions whose bytes are all zero, as its numbers are then.
    pub(crate) fn zeros(&self) -> Self {
        Self::owned(self.kind, self.dims.clone(), vec![0; self.bytes().len()])
    }

    /// The transpose of a matrix; of a quantized one widened to bf16, since blocks can't be transposed.
    pub fn transposed(&self) -> Result<Self> {
        let &[rows, columns] = self.dims.as_slice() else {
            bail!("a tensor of dimensions {:?} is no matrix", self.dims);
        };
        let widened;
        let (kind, bytes) = if self.dense_dtype().is_some() {
            (self.kind, self.bytes())
        } else {
            let values = self.to_tensor(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
            let narrow = |value: f32| half::bf16::from_f32(value).to_le_bytes();
            widened = values.into_iter().flat_map(narrow).collect::<Vec<u8>>();
            (GgmlDType::BF16.into(), widened.as_slice())
        };
        let size = kind.type_size();
        let mut transposed = Vec::with_capacity(bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                let at = (row * columns + column) * size;
                transposed.extend_from_slice(&bytes[at..at + size]);
            }
        }
        Ok(Self::owned(kind, vec![columns, rows], transposed))
    }

    /// Its dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Its elements or blocks, little-endian, row after row. Not aligned to anything.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::File { file, range } => &file.bytes()[range.clone()],
            Content::Owned(bytes) => bytes,
        }
    }

    /// The element type, unless it is quantized.
    pub fn dense_dtype(&self) -> Option<DType> {
        dense_dtype(self.kind)
    }

    /// The kind itself, if the tensor library has it; else one of its kinds that holds the numbers well.
    pub fn portable_kind(&self) -> GgmlDType {
        match self.kind {
            Kind::Ggml(kind) => kind,
            // gpt-oss would hardly fit as bf16.
            Kind::Coded(Coded::Mxfp4) | Kind::W8A8 => GgmlDType::Q8_0,
            Kind::Coded(_) => GgmlDType::BF16,
        }
    }

    /// A copy as `dtype` on the CPU, dequantized if need be.
    pub fn to_tensor(&self, dtype: DType) -> Result<Tensor> {
        let tensor = match self.dense_dtype() {
            Some(stored) => {
                Tensor::from_raw_buffer(self.bytes(), stored, &self.dims, &Device::Cpu)?
            }
            None => match self.kind {
                Kind::Ggml(_) | Kind::W8A8 => self.to_qtensor()?.dequantize(&Device::Cpu)?,
                Kind::Coded(kind) => {
                    let mut values = vec![0.0; self.dims.iter().product()];
                    dequantize(kind, self.bytes(), &mut values);
                    Tensor::from_vec(values, self.dims.as_slice(), &Device::Cpu)?
                }
            },
        };
        tensor.to_dtype(dtype)
    }

    /// As [`to_tensor`](Self::to_tensor), on a device: what is stored as `dtype` goes there without a copy on
    /// the CPU.
    ///
    /// # Errors
    ///
    /// As [`to_tensor`](Self::to_tensor); or the device has no room.
    pub fn to_tensor_on(&self, dtype: DType, device: &Device) -> Result<Tensor> {
        if device.is_cpu() || self.dense_dtype() != Some(dtype) {
            return self.to_tensor(dtype)?.to_device(device);
        }
        bring(self.bytes());
        Tensor::from_raw_buffer(self.bytes(), dtype, &self.dims, device)
    }

    /// A copy of the blocks on the CPU.
    ///
    /// # Errors
    ///
    /// A kind that the tensor library doesn't have.
    pub fn to_qtensor(&self) -> Result<QTensor> {
        let Some(kind) = self.kind.ggml() else {
            bail!("the tensor library has no blocks of {:?}", self.kind);
        };
        let bytes = self.bytes();
        let aligned;
        let bytes = if bytes.as_ptr().addr().is_multiple_of(ALIGNMENT) {
            bytes
        } else {
            // The tensor library reads blocks where they lie.
            let mut copy = memmap2::MmapMut::map_anon(bytes.len().max(1))?;
            copy[..bytes.len()].copy_from_slice(bytes);
            aligned = copy;
            &aligned[..bytes.len()]
        };
        let storage = QStorage::from_data(bytes.into(), &Device::Cpu, kind)?;
        QTensor::new(storage, self.dims.as_slice())
    }

    /// What makes these numbers no weights, where a look is cheap: a NaN or infinity in a vector
    /// or in the scales of quantized blocks.
    pub(crate) fn first_fault(&self, for_each_chunk: ForEachChunk) -> Option<String> {
        match self.dense_dtype() {
            Some(_) if self.dims.len() != 1 => None,
            Some(dtype) => finite::first_non_finite(self.bytes(), dtype)
                .map(|(index, value)| format!("element {index} is {value}")),
            None => self
                .first_bad_block(for_each_chunk)
                .map(|(index, value)| format!("block {index} has the scale {value}")),
        }
    }

    fn first_bad_block(&self, for_each_chunk: ForEachChunk) -> Option<(usize, f32)> {
        let blocks = CHUNK_BYTES / self.kind.type_size();
        let chunks: Vec<&[u8]> = self.bytes().chunks(blocks * self.kind.type_size()).collect();
        let first_chunk = AtomicUsize::new(usize::MAX);
        for_each_chunk(chunks.len(), &|chunk| {
            if finite::first_bad_block(chunks[chunk], self.kind).is_some() {
                first_chunk.fetch_min(chunk, Ordering::Relaxed);
            }
        });
        let chunk = first_chunk.into_inner();
        let (index, value) = finite::first_bad_block(chunks.get(chunk)?, self.kind)?;
        Some((chunk * blocks + index, value))
    }
}

/// The element type of `kind`, unless it is quantized.
pub fn dense_dtype(kind: impl Into<Kind>) -> Option<DType> {
    match kind.into().ggml()? {
        GgmlDType::F32 => Some(DType::F32),
        GgmlDType::F16 => Some(DType::F16),
        GgmlDType::BF16 => Some(DType::BF16),
        _ => None,
    }
}

impl Drop for StoredTensor {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.add(self.bytes().len() as u64);
        }
        if let Content::File { file, range } = &self.content {
            file.release(range.clone());
        }
    }
}

impl fmt::Debug for StoredTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} of {} bytes", self.kind, self.dims, self.bytes().len())
    }
}

/// Reads a byte of each page on several threads: one alone, which copies them to a device, would wait for each
/// page that isn't mapped yet.
fn bring(bytes: &[u8]) {
    const PAGE: usize = 4096;
    const LEAST: usize = 8 << 20;
    if bytes.len() < LEAST {
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for part in bytes.chunks(bytes.len().div_ceil(threads)) {
            scope.spawn(|| black_box(part.iter().step_by(PAGE).fold(0, |a, b| a ^ b)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serially(count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }

    #[test]
    fn rows_too_long_for_exact_sums_keep_a_scale_for_each_block() {
        let of = |columns: usize| {
            let bytes =
                vec![0; columns / GgmlDType::Q8_0.block_size() * GgmlDType::Q8_0.type_size()];
            StoredTensor::owned(GgmlDType::Q8_0, vec![1, columns], bytes).by_token().kind()
        };
        assert_eq!(of(W8A8_COLUMNS), Kind::W8A8);
        assert_eq!(of(W8A8_COLUMNS + 32), Kind::Ggml(GgmlDType::Q8_0));
    }

    #[test]
    fn the_first_bad_block_is_found_in_any_chunk() {
        let size = GgmlDType::Q8_0.type_size();
        let per_chunk = CHUNK_BYTES / size;
        for bad in [0, per_chunk - 1, per_chunk, 2 * per_chunk + 5] {
            let mut bytes = vec![0; size * (3 * per_chunk)];
            // The two bytes of an infinite f16, in this block and in the very last.
            for block in [bad, 3 * per_chunk - 1] {
                bytes[block * size..][..2].copy_from_slice(&[0x00, 0x7c]);
            }
            let dims = vec![3 * per_chunk, 32];
            let tensor = StoredTensor::owned(GgmlDType::Q8_0, dims, bytes);
            let fault = tensor.first_fault(serially).unwrap();
            assert_eq!(fault, format!("block {bad} has the scale inf"));
        }
    }

    #[test]
    fn rows_are_kept_in_the_order_asked_for() {
        let bytes: &'static [u8] = (0..24).collect::<Vec<u8>>().leak();
        let file = Arc::new(FileBytes::embedded(std::path::Path::new("rows"), bytes));
        let open = |dims: &[usize]| {
            StoredTensor::in_file(GgmlDType::F32, dims.to_vec(), file.clone(), 0..24)
        };
        let mut joined = open(&[3, 1, 2]);
        joined.keep_rows(&[1..2, 2..3]).unwrap();
        assert_eq!((joined.bytes(), joined.dims()), (&bytes[8..24], &[2, 2][..]));
        assert!(matches!(joined.content, Content::File { .. }));
        let mut apart = open(&[6]);
        apart.keep_rows(&[4..5, 0..2]).unwrap();
        assert_eq!(
            (apart.bytes(), apart.dims()),
            (&[&bytes[16..20], &bytes[..8]].concat()[..], &[3][..])
        );
    }

    #[test]
    fn parts_and_transposes_have_the_numbers_of_the_whole() {
        let numbers: Vec<f32> = (0..12u8).map(f32::from).collect();
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let whole = StoredTensor::owned(GgmlDType::F32, vec![2, 2, 3], bytes);
        let of =
            |tensor: &StoredTensor| tensor.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        let part = whole.rows(&[3..4, 0..2]).unwrap();
        assert_eq!(of(&part), [[9.0, 10.0, 11.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]);
        let (second, beyond) = (2..4, 3..5);
        let transposed = whole.rows(&[second]).unwrap().transposed().unwrap();
        assert_eq!(of(&transposed), [[6.0, 9.0], [7.0, 10.0], [8.0, 11.0]]);
        assert!(whole.rows(&[beyond]).is_err() && whole.transposed().is_err());
    }

    #[test]
    fn blocks_at_odd_addresses_dequantize_as_elsewhere() {
        let mut bytes = vec![0u8; 1 + 2 * GgmlDType::Q8_0.type_size()];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(index).unwrap();
        }
        let leaked: &'static [u8] = bytes.leak();
        let file = Arc::new(FileBytes::embedded(std::path::Path::new("odd"), leaked));
        let dims = vec![2, 32];
        let odd = StoredTensor::in_file(GgmlDType::Q8_0, dims.clone(), file, 1..leaked.len());
        let owned = StoredTensor::owned(GgmlDType::Q8_0, dims, leaked[1..].to_vec());
        let values =
            |tensor: &StoredTensor| tensor.to_tensor(DType::F32).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(values(&odd), values(&owned));
        assert_eq!(odd.bytes(), owned.bytes());
    }
}
