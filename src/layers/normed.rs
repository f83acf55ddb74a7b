//! Hidden states that go through a norm before a part of a layer sees them, as late as can be: products of
//! few rows on a GPU normalize them on the way.

use std::cell::OnceCell;

use candle_core::{D, DType, Result, Tensor};

use super::norm::{Norm, RmsNorm};

/// Rows of hidden states and the norm that they are seen through, if there is one.
pub struct Normed<'a> {
    x: &'a Tensor,
    norm: Option<&'a Norm>,
    dtype: DType,
    normalized: OnceCell<Tensor>,
}

impl<'a> Normed<'a> {
    /// Rows as they are.
    pub fn plain(x: &'a Tensor) -> Self {
        Self::new(x, None, DType::F32)
    }

    /// Rows through a norm, if there is one, which rounds them to a type.
    pub fn new(x: &'a Tensor, norm: Option<&'a Norm>, dtype: DType) -> Self {
        Self { x, norm, dtype, normalized: OnceCell::new() }
    }

    /// How many rows there are.
    pub fn rows(&self) -> Result<usize> {
        Ok(self.x.elem_count() / self.x.dim(D::Minus1)?.max(1))
    }

    /// The normalized rows, which are computed once.
    pub fn tensor(&self) -> Result<&Tensor> {
        let Some(norm) = self.norm else { return Ok(self.x) };
        if let Some(normalized) = self.normalized.get() {
            return Ok(normalized);
        }
        let normalized = norm.forward_as(self.x, self.dtype)?;
        Ok(self.normalized.get_or_init(|| normalized))
    }

    /// The rows and the norm, if nobody has asked for [`tensor`](Self::tensor) yet.
    pub(super) fn before(&self) -> Option<(&'a Tensor, &'a RmsNorm)> {
        match self.norm {
            Some(Norm::Rms(norm)) if self.normalized.get().is_none() => Some((self.x, norm)),
            _ => None,
        }
    }
}
