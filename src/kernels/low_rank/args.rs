//! The matrices of low-rank terms, and the rows that they are added to.

use candle_core::{DType, Result, Tensor, bail};
use half::{bf16, f16};

/// The matrices of a low-rank term, in host memory.
#[derive(Clone, Debug)]
pub struct LowRank {
    pub(super) rank: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) elements: Elements,
}

/// `down [rank, inputs]` and `up` transposed, `[rank, outputs]`.
#[derive(Clone, Debug)]
pub(super) enum Elements {
    F32(Vec<f32>, Vec<f32>),
    Bf16(Vec<bf16>, Vec<bf16>),
    F16(Vec<f16>, Vec<f16>),
}

impl LowRank {
    /// The term of `down [rank, inputs]` and `up [outputs, rank]`, kept in the type of `down`: f32,
    /// bf16 or f16.
    ///
    /// # Errors
    ///
    /// Another type, or shapes that don't fit together.
    pub fn new(down: &Tensor, up: &Tensor) -> Result<Self> {
        let ((rank, inputs), (outputs, inner)) = (down.dims2()?, up.dims2()?);
        if inner != rank {
            bail!("low_rank_add: down has {rank} outputs, up has {inner} inputs");
        }
        let dtype = down.dtype();
        let [down, up] = [down.flatten_all()?, up.to_dtype(dtype)?.t()?.flatten_all()?];
        let elements = match dtype {
            DType::F32 => Elements::F32(down.to_vec1()?, up.to_vec1()?),
            DType::BF16 => Elements::Bf16(down.to_vec1()?, up.to_vec1()?),
            DType::F16 => Elements::F16(down.to_vec1()?, up.to_vec1()?),
            dtype => bail!("low_rank_add: matrices are f32, bf16 or f16, not {dtype:?}"),
        };
        Ok(Self { rank, inputs, outputs, elements })
    }

    /// Bytes of both matrices.
    pub fn size_in_bytes(&self) -> usize {
        let each = if matches!(self.elements, Elements::F32(..)) { 4 } else { 2 };
        each * self.rank * (self.inputs + self.outputs)
    }
}

/// A term, and the rows that it is added to.
#[derive(Clone, Copy, Debug)]
pub struct LowRankRows<'a> {
    /// The term.
    pub term: &'a LowRank,
    /// Indices of rows, which no other part has.
    pub rows: &'a [u32],
    /// What the term is multiplied with.
    pub factor: f32,
}
