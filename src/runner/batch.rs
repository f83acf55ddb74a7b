//! From a step's plan to the flattened batch that a model runs on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layers::forward::{AdaptedRows, Adapter, BLOCK_SIZE, ForwardBatch, NO_SLOT, Step};
use crate::scheduler::output::{AdapterId, PlannedSequence};

/// Flattens the plan: rows in order, no padding. Only the blocks that this step reads are listed.
pub(super) fn flatten<'a>(
    plan: impl Iterator<Item = PlannedSequence<'a>>,
    adapter: impl Fn(AdapterId) -> Arc<Adapter>,
) -> ForwardBatch {
    let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
    let mut batch = ForwardBatch::default();
    let mut rows_of: BTreeMap<AdapterId, Vec<u32>> = BTreeMap::new();
    for planned in plan {
        let end = planned.first_position + planned.token_ids.len();
        let blocks = &planned.block_table[..end.div_ceil(BLOCK_SIZE)];
        step.input_ids.extend_from_slice(planned.token_ids);
        for position in planned.first_position..end {
            let slot = blocks[position / BLOCK_SIZE] as usize * BLOCK_SIZE + position % BLOCK_SIZE;
            step.positions.push(narrow(position));
            step.slots.push(narrow(slot));
        }
        step.block_tables.push(blocks.to_vec());
        batch.next_slots.push(match planned.block_table.get(end / BLOCK_SIZE) {
            Some(block) => narrow(*block as usize * BLOCK_SIZE + end % BLOCK_SIZE),
            None => NO_SLOT,
        });
        step.context_lens.push(narrow(end));
        step.sequence_lens.push(narrow(planned.sequence_len));
        step.state_slots.push(planned.slot);
        step.cu_seqlens_q.push(narrow(step.input_ids.len()));
        let rows = step.input_ids.len() - planned.num_logits()..step.input_ids.len();
        batch.logits_rows.extend(rows.map(narrow));
        let first = step.input_ids.len() - planned.token_ids.len();
        let (start, end) = planned.pooled;
        batch.hidden_rows.extend((first + start..first + end).map(narrow));
        if let Some(id) = planned.adapter {
            rows_of.entry(id).or_default().extend((first..step.input_ids.len()).map(narrow));
        }
    }
    let own = rows_of.into_iter();
    batch.adapters = own.map(|(id, rows)| AdaptedRows { adapter: adapter(id), rows }).collect();
    ForwardBatch { step, ..batch }
}

pub(super) fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("startup bounds positions and slots below 2^32")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::scheduler::sequence::SequenceId;

    #[test]
    fn flattens_a_chunk_a_decode_and_rows_to_pool_and_groups_rows_by_adapter() {
        let plan = [
            PlannedSequence {
                id: SequenceId(0),
                token_ids: &[5, 6, 7],
                first_position: 31,
                sequence_len: 40,
                block_table: &[4, 9, 2],
                slot: 7,
                scored: &[7, 9],
                samples: false,
                pooled: (0, 0),
                adapter: Some(AdapterId(6)),
            },
            PlannedSequence {
                id: SequenceId(1),
                token_ids: &[8],
                first_position: 2,
                sequence_len: 3,
                block_table: &[1],
                slot: 0,
                scored: &[],
                samples: true,
                pooled: (0, 0),
                adapter: None,
            },
            PlannedSequence {
                id: SequenceId(2),
                token_ids: &[1, 2, 3],
                first_position: 0,
                sequence_len: 3,
                block_table: &[3],
                slot: 2,
                scored: &[],
                samples: false,
                pooled: (1, 3),
                adapter: Some(AdapterId(6)),
            },
        ];
        let adapter = Arc::new(Adapter::new(HashMap::new(), 0));
        let expected = ForwardBatch {
            step: Step {
                input_ids: vec![5, 6, 7, 8, 1, 2, 3],
                positions: vec![31, 32, 33, 2, 0, 1, 2],
                slots: vec![4 * 32 + 31, 9 * 32, 9 * 32 + 1, 32 + 2, 96, 97, 98],
                block_tables: vec![vec![4, 9], vec![1], vec![3]],
                cu_seqlens_q: vec![0, 3, 4, 7],
                context_lens: vec![34, 3, 3],
                sequence_lens: vec![40, 3, 3],
                state_slots: vec![7, 0, 2],
                ..Step::default()
            },
            next_slots: vec![9 * 32 + 2, 32 + 3, 3 * 32 + 3],
            logits_rows: vec![1, 2, 3],
            hidden_rows: vec![5, 6],
            adapters: vec![AdaptedRows { adapter: adapter.clone(), rows: vec![0, 1, 2, 4, 5, 6] }],
        };
        let find = |id| {
            assert_eq!(id, AdapterId(6));
            adapter.clone()
        };
        assert_eq!(flatten(plan.into_iter(), find), expected);
    }
}
