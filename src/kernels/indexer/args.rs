//! What is asked of the indexer, and what it says.

use candle_core::{Device, Result, Tensor};

use crate::backend::Backend;
use crate::step::Step;

/// The operation's name in errors.
pub(super) const NAME: &str = "select_tokens";

/// Whether tokens are selected where tensors are on `device`: there are no kernels for GPUs.
pub fn selects_on(device: &Device) -> bool {
    device.is_cpu() && !Backend::of(device).is_cuda()
}

/// The queries of a step's rows, rotated, in f32.
#[derive(Clone, Copy, Debug)]
pub struct IndexQueries<'a> {
    /// `[T, H, D]`
    pub queries: &'a Tensor,
    /// `[T, H]`: what each head counts, with all factors of scores.
    pub weights: &'a Tensor,
}

/// Where the keys are: elements of the values of a KV cache with one head.
#[derive(Clone, Copy, Debug)]
pub struct IndexKeys<'a> {
    /// The values, see [`kv_format`](crate::cache::kv_format).
    pub values: &'a Tensor,
    /// Elements of a value before the key's first one.
    pub first: usize,
    /// Elements of a key.
    pub dim: usize,
    /// What makes one key of those of several tokens; `None`: each token is chosen by its own.
    pub pools: Option<KeyPools<'a>>,
}

/// What makes one key of those of several tokens. Each token's gates lie behind its key in the cache.
#[derive(Clone, Copy, Debug)]
pub struct KeyPools<'a> {
    /// `[P, D]`: what is added to the gates of each of a pool's `P` tokens.
    pub offsets: &'a Tensor,
}

impl KeyPools<'_> {
    /// Tokens of a pool.
    pub(super) fn size(self) -> Result<usize> {
        self.offsets.dim(0)
    }
}

/// The tokens that each query of a step sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedTokens {
    /// Of each row of the step the positions that it sees, ascending; `None`: all up to its own. Empty
    /// where all rows see all.
    rows: Vec<Option<Vec<u32>>>,
}

impl SelectedTokens {
    /// All queries see all tokens up to their own.
    pub fn all() -> Self {
        Self::default()
    }

    pub(crate) fn of_rows(rows: Vec<Option<Vec<u32>>>) -> Self {
        Self { rows }
    }

    /// Whether any query of a step has more than `count` tokens up to its own, and does not see all of them.
    pub fn are_fewer(step: &Step, count: usize) -> bool {
        step.positions.iter().any(|position| *position as usize >= count)
    }

    /// The positions that each row sees, `None` for all up to its own; empty where all rows see all.
    pub(crate) fn rows(&self) -> &[Option<Vec<u32>>] {
        &self.rows
    }
}
