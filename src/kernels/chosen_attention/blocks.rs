//! Attention whose key heads see chosen blocks of the context. What is chosen are whole blocks of the cache, so that
//! each query and key head is a sequence of its own, whose table of blocks lists what it sees: nothing is copied.

use candle_core::{Result, Tensor, bail};

use super::rows::{in_order, index, seeing_all, select_rows};
use crate::cache::KV_BLOCK;
use crate::cache::kv_format::CacheShape;
use crate::indexer::{SelectedBlocks, selects_on};
use crate::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::step::Step;

const NAME: &str = "paged_attention_blocks";

/// As [`paged_attention`], with queries whose key heads see `chosen` blocks: `[T, H, DV]` in f32. Heads of the indexer
/// are as many as key heads, or each of them is that of several.
///
/// # Errors
///
/// Shapes that don't fit, a choice of another step, a window or a chunk, a device without kernels for a choice.
pub fn paged_attention_blocks(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    step: &Step,
    params: AttentionParams,
    chosen: &SelectedBlocks,
) -> Result<Tensor> {
    let per_head = PerHead::default();
    if !chosen.rows().iter().any(Option::is_some) {
        return paged_attention(q, k, v, step, params, per_head);
    }
    let (rows, heads, key_dim) = q.dims3()?;
    let shape = CacheShape::of(k, v, key_dim)?;
    step.check_attention(rows, shape.num_blocks, false)?;
    if chosen.rows().len() != rows || params.window.is_some() || params.chunk.is_some() {
        bail!("{NAME}: a choice for {} queries, there are {rows}", chosen.rows().len());
    }
    if !heads.is_multiple_of(shape.kv_heads) || !selects_on(q.device()) {
        bail!("{NAME}: {heads} heads over {} key heads, on the CPU alone", shape.kv_heads);
    }
    let (mut outputs, mut order) = (Vec::new(), Vec::new());
    let (all, all_rows) = seeing_all(step, chosen.rows())?;
    if !all_rows.is_empty() {
        let q = select_rows(q, &all_rows)?;
        outputs.push(paged_attention(&q, k, v, &all, params, per_head)?);
        order.extend(all_rows);
    }
    let (own, own_rows) = of_key_heads(step, chosen, shape.kv_heads)?;
    let (count, group) = (own_rows.len(), heads / shape.kv_heads);
    let q = select_rows(q, &own_rows)?.reshape((count * shape.kv_heads, group, key_dim))?;
    let [k, v] = [k, v].map(|cache| {
        let (blocks, kv_heads, rows, columns) = cache.dims4()?;
        cache.reshape((blocks * kv_heads, 1, rows, columns))
    });
    let output = paged_attention(&q, &k?, &v?, &own, params, per_head)?;
    outputs.push(output.reshape((count, heads, ()))?);
    order.extend(own_rows);
    in_order(&outputs, &order, q.device())
}

/// The rows with a choice as a step, in which each of their key heads is a sequence of one token: a cache of one head
/// has the blocks of all key heads side by side.
fn of_key_heads(step: &Step, chosen: &SelectedBlocks, kv_heads: usize) -> Result<(Step, Vec<u32>)> {
    let mut own = Step { cu_seqlens_q: vec![0], ..Step::default() };
    let mut rows = Vec::new();
    let pages = chosen.size() / KV_BLOCK;
    for seq in 0..step.context_lens.len() {
        let table = &step.block_tables[seq];
        for row in step.rows(seq) {
            let Some(of_heads) = &chosen.rows()[row] else { continue };
            let seen = step.positions[row] as usize + 1;
            rows.push(index(row)?);
            if of_heads.is_empty() || !kv_heads.is_multiple_of(of_heads.len()) {
                bail!("{NAME}: a choice for {} heads, there are {kv_heads}", of_heads.len());
            }
            for head in 0..kv_heads {
                let blocks = &of_heads[head * of_heads.len() / kv_heads];
                let within =
                    blocks.last().is_some_and(|last| *last as usize * chosen.size() < seen);
                if !within || !blocks.is_sorted_by(|a, b| a < b) {
                    bail!("{NAME}: the query at {} sees blocks {blocks:?}", seen - 1);
                }
                let (mut mapped, mut tokens) = (Vec::new(), 0);
                for block in blocks {
                    let first = *block as usize * pages;
                    let end = (first + pages).min(seen.div_ceil(KV_BLOCK));
                    tokens += (end * KV_BLOCK).min(seen) - first * KV_BLOCK;
                    for page in &table[first..end] {
                        mapped.push(index(*page as usize * kv_heads + head)?);
                    }
                }
                own.positions.push(index(tokens - 1)?);
                own.context_lens.push(index(tokens)?);
                own.block_tables.push(mapped);
                own.cu_seqlens_q.push(index(own.positions.len())?);
            }
        }
    }
    Ok((own, rows))
}
