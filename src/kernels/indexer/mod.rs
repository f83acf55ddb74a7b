//! The lightning indexer: which tokens of its context each query of a sparse attention sees.
//!
//! DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models", 2025, section 2.1. A
//! few heads of queries meet one key of each token: a token's score is `sum_h w_h * relu(q_h . k)`, and the
//! tokens with the largest scores are seen, of equal ones the earlier. The Hadamard transform of the published
//! code leaves products as they are, and is left out.
//!
//! The keys lie in the KV cache, each behind the value of its token.

use candle_core::{DType, Result, bail};

pub use self::args::{IndexKeys, IndexQueries, KeyPools, SelectedTokens, selects_on};
pub use self::blocks::{BlockChoice, SelectedBlocks, select_blocks};
use super::backend::cpu_level;
use super::cache::KV_BLOCK;
use super::cache::kv_format::{GROUP, KvFormat};
use super::step::Step;
use args::NAME;

mod args;
mod blocks;
mod cpu;
mod pools;
mod queries;
mod scoring;
#[cfg(test)]
mod tests;

/// The at most `count` tokens up to its own that each query of a step sees, those with the largest scores: or those of
/// the pools with the largest ones, and the tokens behind the last whole pool.
///
/// # Errors
///
/// Shapes that don't fit, a row outside of its sequence, a block outside of the cache, or a device without
/// kernels.
pub fn select_tokens(
    queries: IndexQueries<'_>,
    keys: IndexKeys<'_>,
    step: &Step,
    count: usize,
) -> Result<SelectedTokens> {
    if count == 0 {
        bail!("{NAME}: 0 tokens leave nothing to see");
    }
    if !selects_on(queries.queries.device()) {
        bail!("{NAME}: tokens are selected on the CPU alone, there is no kernel for GPUs");
    }
    let (rows, heads, dim) = queries.queries.dims3()?;
    if heads == 0 || dim != keys.dim || queries.weights.dims() != [rows, heads] {
        bail!(
            "{NAME}: queries {:?} and weights {:?} for keys of {} elements",
            queries.queries.dims(),
            queries.weights.dims(),
            keys.dim
        );
    }
    if [queries.queries, queries.weights].iter().any(|tensor| tensor.dtype() != DType::F32) {
        bail!("{NAME}: queries and weights are f32");
    }
    let format = KvFormat::of_cache(keys.values)?;
    let (num_blocks, kv_heads, positions, width) = keys.values.dims4()?;
    let parts = if keys.pools.is_some() { 2 } else { 1 };
    let (first, whole) = (keys.first, keys.first + parts * keys.dim);
    let groups = format == KvFormat::Q8_0;
    let cut = groups && !(first.is_multiple_of(GROUP) && dim.is_multiple_of(GROUP));
    if kv_heads != 1 || positions != KV_BLOCK || width < format.head_len(whole) || cut {
        let dims = keys.values.dims();
        bail!("{NAME}: values {dims:?} have no {parts} of {dim} elements behind {first} ones");
    }
    if let Some(pools) = keys.pools {
        let dims = pools.offsets.dims();
        let (size, known) = (dims[0], dims.len() == 2 && dims[1] == dim);
        if !known || size == 0 || !count.is_multiple_of(size) || pools.offsets.dtype() != DType::F32
        {
            bail!("{NAME}: {count} tokens in pools by offsets {dims:?} of {dim} elements");
        }
    }
    step.check_attention(rows, num_blocks, false)?;
    cpu::select(cpu_level(), queries, keys, format, step, count)
}
