//! How the KV cache stores a head: element types, and the shapes of the two tensors of a layer.
//!
//! A block holds [`KV_BLOCK`] positions of every head, and all elements of a head in a block lie
//! together. Values have a row per position. Keys are stored transposed, a row per element of the
//! head with the positions along it, so that one vector holds many positions of one element. The
//! `fp8` form has no scales. The `q8_0` form cuts heads into groups of 32 elements with one f16 scale
//! each: 34 bytes for a group and position.

use std::mem::ManuallyDrop;

use candle_core::{DType, Device, Result, Tensor, bail};
use float8::F8E4M3;
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::KV_BLOCK;
use crate::backend::Backend;
use crate::huge_pages;

/// Elements that share a scale in a quantized cache.
pub(crate) const GROUP: usize = 32;
/// Bytes of a group at one position: the scale and 32 integers.
pub(crate) const GROUP_BYTES: usize = 2 + GROUP;

/// Element type of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvFormat {
    /// 4 bytes an element, nothing is rounded.
    F32,
    /// 2 bytes, more mantissa.
    F16,
    /// 2 bytes, more range.
    Bf16,
    /// 1 byte: E4M3, up to 448; larger elements become that.
    Fp8,
    /// 1 byte an element and an f16 scale for 32 of them; heads are whole groups of 32.
    Q8_0,
}

impl KvFormat {
    /// The format that stores elements of `dtype` as they are, if there is one.
    pub fn of_dtype(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::Bf16),
            DType::F8E4M3 => Some(Self::Fp8),
            _ => None,
        }
    }

    /// The format of a cache tensor.
    pub(crate) fn of_cache(cache: &Tensor) -> Result<Self> {
        match (Self::of_dtype(cache.dtype()), cache.dtype()) {
            (Some(format), _) => Ok(format),
            (None, DType::U8) => Ok(Self::Q8_0),
            (None, other) => {
                bail!("a KV cache of {other:?}; f32, f16, bf16, f8e4m3, u8 are supported")
            }
        }
    }

    /// Refuses a cache whose elements plain candle operations can't read.
    pub(crate) fn check_plain(cache: &Tensor) -> Result<()> {
        match Self::of_cache(cache)? {
            Self::Q8_0 => bail!("there are no plain operations for a q8_0 KV cache"),
            Self::F32 | Self::F16 | Self::Bf16 | Self::Fp8 => Ok(()),
        }
    }

    /// The dtype of a cache's tensors: bytes for the quantized form.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::BF16,
            Self::Fp8 => DType::F8E4M3,
            Self::Q8_0 => DType::U8,
        }
    }

    /// Whether heads of `head_dim` elements can be stored.
    pub fn fits(self, head_dim: usize) -> bool {
        self != Self::Q8_0 || head_dim.is_multiple_of(GROUP)
    }

    /// Whether there are kernels for this format on `device`.
    pub fn runs_on(self, device: &Device) -> bool {
        let plain = matches!(self, Self::F32 | Self::F16 | Self::Bf16);
        plain || !matches!(Backend::of(device), Backend::Portable)
    }

    /// Stored elements (of [`Self::dtype`]) of one head at one position.
    pub fn head_len(self, head_dim: usize) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Fp8 => head_dim,
            Self::Q8_0 => head_dim.div_ceil(GROUP) * GROUP_BYTES,
        }
    }

    /// Elements of a head that is stored in `head_len` elements.
    pub(crate) fn head_dim(self, head_len: usize) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::Fp8 => head_len,
            Self::Q8_0 => head_len / GROUP_BYTES * GROUP,
        }
    }

    /// Bytes of one head at one position.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        self.head_len(head_dim) * self.dtype().size_in_bytes()
    }

    /// A tensor of zeros for keys or values. On the CPU it takes no memory before it is written,
    /// and lies on large pages where the system has them.
    pub fn zeros(self, dims: [usize; 4], device: &Device) -> Result<Tensor> {
        if !device.is_cpu() {
            return Tensor::zeros(&dims, self.dtype(), device);
        }
        // A vector of integer zeros is made of untouched pages; one of half-precision zeros would
        // be filled element by element.
        let count = dims.iter().product();
        match self {
            Self::F32 => Tensor::from_vec(untouched(vec![0.0f32; count]), &dims, device),
            Self::Q8_0 => Tensor::from_vec(untouched(vec![0u8; count]), &dims, device),
            Self::Fp8 => Tensor::from_vec(as_fp8(untouched(vec![0u8; count])), &dims, device),
            Self::F16 => {
                let zeros = untouched(vec![0u16; count]).reinterpret_into::<f16>();
                Tensor::from_vec(zeros, &dims, device)
            }
            Self::Bf16 => {
                let zeros = untouched(vec![0u16; count]).reinterpret_into::<bf16>();
                Tensor::from_vec(zeros, &dims, device)
            }
        }
    }

    /// Shape of a layer's keys: `[num_blocks, kv_heads, head_len, 32]`.
    pub fn key_dims(self, num_blocks: usize, kv_heads: usize, key_dim: usize) -> [usize; 4] {
        [num_blocks, kv_heads, self.head_len(key_dim), KV_BLOCK]
    }

    /// Shape of a layer's values: `[num_blocks, kv_heads, 32, head_len]`.
    pub fn value_dims(self, num_blocks: usize, kv_heads: usize, value_dim: usize) -> [usize; 4] {
        [num_blocks, kv_heads, KV_BLOCK, self.head_len(value_dim)]
    }
}

/// Reinterprets bytes as E4M3.
fn as_fp8(bytes: Vec<u8>) -> Vec<F8E4M3> {
    let mut bytes = ManuallyDrop::new(bytes);
    let (start, len, room) = (bytes.as_mut_ptr(), bytes.len(), bytes.capacity());
    // SAFETY: an E4M3 is a struct around a byte that lies in memory as the byte does, any byte is
    // one, and the memory has no other owner any more.
    unsafe { Vec::from_raw_parts(start.cast(), len, room) }
}

/// Asks for large pages for a vector whose memory was not touched so far.
fn untouched<T>(zeros: Vec<T>) -> Vec<T> {
    huge_pages::ask_for(&zeros);
    zeros
}

/// The shape of a layer's cache, whose two tensors were checked against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub(crate) format: KvFormat,
    pub(crate) num_blocks: usize,
    pub(crate) kv_heads: usize,
    /// Elements of a key.
    pub(crate) key_dim: usize,
    /// Elements of a value.
    pub(crate) value_dim: usize,
}

impl CacheShape {
    /// The shape of `keys` and `values`, which must be a cache for keys of `key_dim` elements.
    pub(crate) fn of(keys: &Tensor, values: &Tensor, key_dim: usize) -> Result<Self> {
        let format = KvFormat::of_cache(keys)?;
        let (num_blocks, kv_heads, _, _) = keys.dims4()?;
        let expected = format.key_dims(num_blocks, kv_heads, key_dim);
        if key_dim == 0 || kv_heads == 0 || !format.fits(key_dim) || keys.dims() != expected {
            bail!("keys {:?} are no cache for heads of {key_dim} elements", keys.dims());
        }
        let value_dim = format.head_dim(values.dims4()?.3);
        let expected = format.value_dims(num_blocks, kv_heads, value_dim);
        if values.dtype() != keys.dtype() || value_dim == 0 || values.dims() != expected {
            bail!(
                "values {:?} of {:?} don't belong to keys {:?} of {:?}",
                values.dims(),
                values.dtype(),
                keys.dims(),
                keys.dtype()
            );
        }
        Ok(Self { format, num_blocks, kv_heads, key_dim, value_dim })
    }

    /// Stored elements of one head's keys in one block.
    pub(crate) fn key_block(&self) -> usize {
        self.format.head_len(self.key_dim) * KV_BLOCK
    }

    /// Stored elements of one head's values in one block.
    pub(crate) fn value_block(&self) -> usize {
        self.format.head_len(self.value_dim) * KV_BLOCK
    }
}
