//! Tensor parallelism: the ranks that compute one model together, each with its part of the
//! weights.
//!
//! Shoeybi et al., "Megatron-LM", 2019, section 3: every rank has some heads of each attention and
//! some intermediate elements of each feed-forward part. Its output is one term of a sum, and the
//! sum is all that ranks exchange, twice a layer. All else is the same on every rank.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use candle_core::{Device, Result, Tensor};

use crate::kernels::cuda::collective::{Collective, NAME_BYTES};

/// The communication of a rank with the others.
pub trait Group: Debug + Send + Sync {
    /// Index of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The sum of all ranks' `x`, of any shape: the same bits on every rank.
    fn all_reduce(&self, x: Tensor) -> Result<Tensor>;

    /// The columns of all ranks' `x [rows, own columns]`, concatenated in the order of ranks. Only
    /// rank 0 needs them; the others may get anything.
    fn gather(&self, x: Tensor) -> Result<Tensor>;

    /// This rank's share of `residual` in a sum over ranks: all of it on rank 0, else zeros.
    fn own_part(&self, residual: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 { Ok(residual.clone()) } else { residual.zeros_like() }
    }
}

/// A group of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Group for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_reduce(&self, x: Tensor) -> Result<Tensor> {
        Ok(x)
    }

    fn gather(&self, x: Tensor) -> Result<Tensor> {
        Ok(x)
    }
}

/// A group whose GPUs exchange sums by NCCL; `inner` connects the ranks before that.
#[derive(Debug)]
struct Collected {
    inner: Arc<dyn Group>,
    collective: Collective,
    /// Number of columns that each rank gathers.
    columns: OnceLock<Vec<usize>>,
}

/// Whether ranks on such devices tell each other what they compute without the host.
pub fn told_by_devices(device: &Device) -> bool {
    Collective::possible(device)
}

/// The group with its GPUs connected by NCCL, if that is possible.
pub fn connected(inner: Arc<dyn Group>, device: &Device) -> Result<Arc<dyn Group>> {
    if inner.size() == 1 || !told_by_devices(device) {
        return Ok(inner);
    }
    // Rank 0 makes the group's id, and a sum broadcasts it.
    let own = if inner.rank() == 0 { Collective::name()? } else { [0; NAME_BYTES] };
    let named = inner.all_reduce(Tensor::new(&own.map(f32::from), &Device::Cpu)?)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they are bytes")]
    let bytes: Vec<u8> = named.to_vec1::<f32>()?.into_iter().map(|byte| byte as u8).collect();
    let name = bytes.try_into().expect("a sum is as long as its terms");
    let collective = Collective::join(device, &name, inner.rank(), inner.size())?;
    Ok(Arc::new(Collected { inner, collective, columns: OnceLock::new() }))
}

impl Collected {
    /// Number of columns of each rank, exchanged once; this rank has `own`.
    fn columns(&self, own: usize) -> Result<&[usize]> {
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let mut terms = vec![0.0f32; self.size()];
        #[expect(clippy::cast_precision_loss, reason = "vocabularies are below 2^24")]
        let term = own as f32;
        terms[self.rank()] = term;
        let all = self.inner.all_reduce(Tensor::new(terms, &Device::Cpu)?)?.to_vec1::<f32>()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "they are whole"
        )]
        let all = all.into_iter().map(|columns| columns as usize).collect();
        Ok(self.columns.get_or_init(|| all))
    }
}

impl Group for Collected {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_reduce(&self, x: Tensor) -> Result<Tensor> {
        self.collective.all_reduce(&x)
    }

    fn gather(&self, x: Tensor) -> Result<Tensor> {
        let own = x.dim(1)?;
        let columns = self.columns(own)?;
        let most = columns.iter().copied().max().unwrap_or(own);
        // Ranks can only gather equally many columns.
        let all = self.collective.all_gather(&x.pad_with_zeros(1, 0, most - own)?)?;
        let parts = columns.iter().enumerate();
        let parts = parts.map(|(rank, columns)| all.get(rank)?.narrow(1, 0, *columns));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 1)
    }
}
