//! Rows of a step by what they see, and their outputs in order again.

use candle_core::{Device, Result, Tensor};

use crate::step::Step;

/// The rows of a step that see all positions up to their own, as a step of its own.
pub(super) fn seeing_all<T>(step: &Step, chosen: &[Option<T>]) -> Result<(Step, Vec<u32>)> {
    let mut own = Step { cu_seqlens_q: vec![0], ..Step::default() };
    let mut rows = Vec::new();
    for seq in 0..step.context_lens.len() {
        for row in step.rows(seq).filter(|row| chosen[*row].is_none()) {
            rows.push(index(row)?);
            own.positions.push(step.positions[row]);
        }
        if own.cu_seqlens_q.last() == Some(&index(rows.len())?) {
            continue;
        }
        own.cu_seqlens_q.push(index(rows.len())?);
        own.context_lens.push(step.context_lens[seq]);
        own.block_tables.push(step.block_tables[seq].clone());
    }
    Ok((own, rows))
}

/// These rows of queries `[T, H, D]`.
pub(super) fn select_rows(q: &Tensor, rows: &[u32]) -> Result<Tensor> {
    q.index_select(&Tensor::new(rows, q.device())?, 0)
}

/// Outputs one behind the other, whose rows belong to these rows of a step, in the order of those.
pub(super) fn in_order(outputs: &[Tensor], order: &[u32], device: &Device) -> Result<Tensor> {
    let mut places = vec![0u32; order.len()];
    for (place, row) in (0u32..).zip(order) {
        places[*row as usize] = place;
    }
    Tensor::cat(outputs, 0)?.index_select(&Tensor::new(places, device)?, 0)
}

pub(super) fn index(at: usize) -> Result<u32> {
    u32::try_from(at).map_err(candle_core::Error::wrap)
}
