//! A weight matrix in our own memory, in the dtype it was stored in.
//!
//! It answers for the bytes: aligned, on huge pages where the system has them, readable by row.
//! It refuses to know what the matrix is multiplied with. Quantized rows are widened with candle's
//! own block formats, so a row equals what `QTensor::dequantize` gives, to the bit.

use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0, BlockQ8_1, BlockQ8K, GgmlType,
};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Result, Tensor, bail};
use half::{bf16, f16};
use memmap2::MmapMut;

/// How the elements of a matrix are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
    /// Blocks of a GGUF quant kind along each row.
    Quantized(GgmlDType),
}

/// A row-major matrix `[rows, columns]`.
pub struct PackedMatrix {
    bytes: MmapMut,
    used: usize,
    storage: Storage,
    rows: usize,
    columns: usize,
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedMatrix[{}, {}; {:?}]", self.rows, self.columns, self.storage)
    }
}

/// Some rows of a matrix, typed.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
    Quantized(GgmlDType, &'a [u8]),
}

impl PackedMatrix {
    /// Takes over a matrix of bf16, f16 or f32 on the CPU.
    pub fn from_dense(tensor: &Tensor) -> Result<Self> {
        let (rows, columns) = tensor.dims2()?;
        let tensor = tensor.contiguous()?;
        let storage = match tensor.dtype() {
            DType::F32 => Storage::F32,
            DType::BF16 => Storage::Bf16,
            DType::F16 => Storage::F16,
            other => bail!("a weight matrix can't be stored as {other:?}; bf16, f16 or f32 can"),
        };
        let (guard, layout) = tensor.storage_and_layout();
        let candle_core::Storage::Cpu(cpu) = &*guard else {
            bail!("a weight matrix is packed from memory of the CPU")
        };
        let name = "packed matrix";
        match storage {
            Storage::F32 => Self::copy(storage, rows, columns, {
                bytes_of(super::storage::contiguous::<f32>(name, cpu, layout)?)
            }),
            Storage::Bf16 => Self::copy(storage, rows, columns, {
                bytes_of(super::storage::contiguous::<bf16>(name, cpu, layout)?)
            }),
            _ => Self::copy(storage, rows, columns, {
                bytes_of(super::storage::contiguous::<f16>(name, cpu, layout)?)
            }),
        }
    }

    /// Takes over a quantized matrix on the CPU.
    pub fn from_quantized(tensor: &QTensor) -> Result<Self> {
        let (rows, columns) = tensor.shape().dims2()?;
        let storage = match tensor.dtype() {
            GgmlDType::F32 => Storage::F32,
            GgmlDType::F16 => Storage::F16,
            GgmlDType::BF16 => Storage::Bf16,
            kind => Storage::Quantized(kind),
        };
        Self::copy(storage, rows, columns, &tensor.data()?)
    }

    fn copy(storage: Storage, rows: usize, columns: usize, from: &[u8]) -> Result<Self> {
        let used = rows * row_bytes(storage, columns)?;
        if from.len() != used {
            bail!("a {rows} x {columns} matrix of {storage:?} is {used} bytes, not {}", from.len());
        }
        // Of zero bytes there is no mapping.
        let mut bytes = MmapMut::map_anon(used.max(1))?;
        // Larger pages, before the first touch: a third more bandwidth. Not all systems have them.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        bytes[..used].copy_from_slice(from);
        Ok(Self { bytes, used, storage, rows, columns })
    }

    /// Number of rows: output features of a linear layer, entries of an embedding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: input features.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How elements are stored.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Bytes of all rows.
    pub fn size_in_bytes(&self) -> usize {
        self.used
    }

    /// Rows `first..first + count`, which must exist.
    pub(super) fn rows_at(&self, first: usize, count: usize) -> Rows<'_> {
        assert!(first + count <= self.rows, "rows outside of the matrix");
        let stride = self.used / self.rows.max(1);
        let bytes = &self.bytes[first * stride..(first + count) * stride];
        match self.storage {
            // SAFETY: every bit pattern is a valid float.
            Storage::F32 => Rows::F32(unsafe { typed(bytes) }),
            // SAFETY: bf16 is a transparent u16; every bit pattern is valid.
            Storage::Bf16 => Rows::Bf16(unsafe { typed(bytes) }),
            // SAFETY: f16 is a transparent u16; every bit pattern is valid.
            Storage::F16 => Rows::F16(unsafe { typed(bytes) }),
            Storage::Quantized(kind) => Rows::Quantized(kind, bytes),
        }
    }
}

fn row_bytes(storage: Storage, columns: usize) -> Result<usize> {
    match storage {
        Storage::F32 => Ok(columns * 4),
        Storage::Bf16 | Storage::F16 => Ok(columns * 2),
        Storage::Quantized(kind) if columns.is_multiple_of(kind.block_size()) => {
            Ok(columns / kind.block_size() * kind.type_size())
        }
        Storage::Quantized(kind) => {
            bail!("rows of {columns} elements don't divide into {kind:?} blocks")
        }
    }
}

fn bytes_of<T: candle_core::WithDType>(values: &[T]) -> &[u8] {
    // SAFETY: the element types of tensors are numbers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Reads bytes as whole values of `T`.
///
/// # Safety
///
/// Every bit pattern must be a valid `T`, and `T` must have no padding.
unsafe fn typed<T>(bytes: &[u8]) -> &[T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>()));
    // SAFETY: aligned and whole (checked above); the caller vouches for the bits.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}

fn widen_blocks<B: GgmlType>(bytes: &[u8], out: &mut [f32]) {
    // SAFETY: candle's blocks are repr(C) structs of integers and f16 without padding; it makes
    // them from raw file bytes in the same way.
    B::to_float(unsafe { typed::<B>(bytes) }, out);
}

impl Rows<'_> {
    /// All elements as f32, exactly. `out` has one element per element of the rows.
    pub(super) fn widen(self, out: &mut [f32]) {
        match self {
            Self::F32(rows) => out.copy_from_slice(rows),
            Self::Bf16(rows) => rows.iter().zip(out).for_each(|(x, out)| *out = x.to_f32()),
            Self::F16(rows) => rows.iter().zip(out).for_each(|(x, out)| *out = x.to_f32()),
            Self::Quantized(kind, bytes) => match kind {
                GgmlDType::Q4_0 => widen_blocks::<BlockQ4_0>(bytes, out),
                GgmlDType::Q4_1 => widen_blocks::<BlockQ4_1>(bytes, out),
                GgmlDType::Q5_0 => widen_blocks::<BlockQ5_0>(bytes, out),
                GgmlDType::Q5_1 => widen_blocks::<BlockQ5_1>(bytes, out),
                GgmlDType::Q8_0 => widen_blocks::<BlockQ8_0>(bytes, out),
                GgmlDType::Q8_1 => widen_blocks::<BlockQ8_1>(bytes, out),
                GgmlDType::Q2K => widen_blocks::<BlockQ2K>(bytes, out),
                GgmlDType::Q3K => widen_blocks::<BlockQ3K>(bytes, out),
                GgmlDType::Q4K => widen_blocks::<BlockQ4K>(bytes, out),
                GgmlDType::Q5K => widen_blocks::<BlockQ5K>(bytes, out),
                GgmlDType::Q6K => widen_blocks::<BlockQ6K>(bytes, out),
                GgmlDType::Q8K => widen_blocks::<BlockQ8K>(bytes, out),
                GgmlDType::F32 => widen_blocks::<f32>(bytes, out),
                GgmlDType::F16 => widen_blocks::<f16>(bytes, out),
                GgmlDType::BF16 => widen_blocks::<bf16>(bytes, out),
            },
        }
    }
}
