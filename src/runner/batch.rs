//! From a step's plan to the flattened batch that a model runs on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::positions::rope_position;
use crate::layers::forward::{
    AdaptedRows, Adapter, BLOCK_SIZE, ForwardBatch, NO_SLOT, PictureRows, Step,
};
use crate::scheduler::output::{AdapterId, MediaSpan, PlannedSequence};

/// Flattens the plan: rows in order, no padding. Only the blocks that this step reads are listed.
pub(super) fn flatten<'a>(
    plan: impl Iterator<Item = PlannedSequence<'a>>,
    adapter: impl Fn(AdapterId) -> Arc<Adapter>,
    features: impl Fn(&MediaSpan) -> Result<Tensor>,
) -> Result<ForwardBatch> {
    let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
    let mut batch = ForwardBatch::default();
    let mut rows_of: BTreeMap<AdapterId, Vec<u32>> = BTreeMap::new();
    for planned in plan {
        let num_tokens = planned.num_tokens();
        let end = planned.first_position + num_tokens;
        let blocks = &planned.block_table[..end.div_ceil(BLOCK_SIZE)];
        step.input_ids.extend(planned.token_ids.iter().chain(planned.drafts));
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
        let first = step.input_ids.len() - num_tokens;
        let (start, end) = planned.pooled;
        batch.hidden_rows.extend((first + start..first + end).map(narrow));
        if planned.tapped {
            batch.taps.rows.extend((first..first + num_tokens).map(narrow));
        }
        if !planned.media.is_empty() {
            place_media(&planned, first, &mut step, &mut batch.pictures, &features)?;
        }
        see_prefix(&planned, first, &mut step);
        if let Some(id) = planned.adapter {
            rows_of.entry(id).or_default().extend((first..step.input_ids.len()).map(narrow));
        }
    }
    let own = rows_of.into_iter();
    batch.adapters = own.map(|(id, rows)| AdaptedRows { adapter: adapter(id), rows }).collect();
    if !step.rope_positions.is_empty() {
        follow_positions(&mut step, usize::MAX);
    }
    if !step.attention_ends.is_empty() {
        end_at_own_positions(&mut step, usize::MAX);
    }
    if !step.attention_starts.is_empty() {
        start_at_own_positions(&mut step, usize::MAX);
    }
    Ok(ForwardBatch { step, ..batch })
}

/// Adds the rows of a sequence's pictures and sounds that this step computes, the sequence's first row being
/// `first`, and the three positions of all of its rows.
fn place_media(
    planned: &PlannedSequence<'_>,
    first: usize,
    step: &mut Step,
    rows: &mut Vec<PictureRows>,
    features: impl Fn(&MediaSpan) -> Result<Tensor>,
) -> Result<()> {
    let start = planned.first_position;
    let end = start + planned.num_tokens();
    follow_positions(step, first);
    step.rope_positions.extend((start..end).map(|position| rope_position(planned.media, position)));
    for span in planned.media {
        let (from, to) = (span.offset.max(start), span.end().min(end));
        if from >= to {
            continue;
        }
        let features = features(span)?.narrow(0, span.first + from - span.offset, to - from)?;
        let row = first + from - start;
        rows.push(PictureRows { first: row, features });
        if span.two_way {
            see_up_to(step, row..row + to - from, to);
        }
    }
    Ok(())
}

/// Gives rows before row `end` that have no three positions yet those of tokens of a text.
fn follow_positions(step: &mut Step, end: usize) {
    let end = end.min(step.positions.len());
    let texts = &step.positions[step.rope_positions.len()..end];
    step.rope_positions.extend(texts.iter().map(|position| [*position; 3]));
}

/// Has the rows of a sequence that are in its prefix see all of that, the sequence's first row being `first`.
fn see_prefix(planned: &PlannedSequence<'_>, first: usize, step: &mut Step) {
    if planned.first_position < planned.prefix_len {
        let end = first + planned.prefix_len - planned.first_position;
        see_up_to(step, first..end, planned.prefix_len);
        start_at_own_positions(step, first);
        step.attention_starts.resize(end, 0);
    }
}

/// Has rows see the positions before `end`, as far as their windows go back.
fn see_up_to(step: &mut Step, rows: Range<usize>, end: usize) {
    end_at_own_positions(step, rows.start);
    step.attention_ends.resize(rows.end, narrow(end));
}

/// Gives rows before row `end` that have no end of what they see yet that of their own token.
fn end_at_own_positions(step: &mut Step, end: usize) {
    let end = end.min(step.positions.len());
    let others = &step.positions[step.attention_ends.len()..end];
    step.attention_ends.extend(others.iter().map(|position| position + 1));
}

/// Gives rows before row `end` that have no start of what they see yet one that leaves it to their windows.
fn start_at_own_positions(step: &mut Step, end: usize) {
    let end = end.min(step.positions.len());
    let others = &step.positions[step.attention_starts.len()..end];
    step.attention_starts.extend(others);
}

pub(super) fn narrow(value: usize) -> u32 {
    u32::try_from(value).expect("startup bounds positions and slots below 2^32")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::layers::forward::Taps;
    use crate::scheduler::sequence::SequenceId;

    #[test]
    fn flattens_a_chunk_drafts_and_rows_to_pool_and_groups_rows_by_adapter() {
        let plan = [
            PlannedSequence {
                id: SequenceId(0),
                token_ids: &[5, 6, 7],
                drafts: &[],
                first_position: 31,
                sequence_len: 40,
                block_table: &[4, 9, 2],
                slot: 7,
                scored: &[7, 9],
                samples: false,
                pooled: (0, 0),
                tapped: false,
                adapter: Some(AdapterId(6)),
                media: &[],
                prefix_len: 0,
            },
            PlannedSequence {
                id: SequenceId(1),
                token_ids: &[8],
                drafts: &[9, 7],
                first_position: 2,
                sequence_len: 3,
                block_table: &[1],
                slot: 0,
                scored: &[],
                samples: true,
                pooled: (0, 0),
                tapped: false,
                adapter: None,
                media: &[],
                prefix_len: 0,
            },
            PlannedSequence {
                id: SequenceId(2),
                token_ids: &[1, 2, 3],
                drafts: &[],
                first_position: 0,
                sequence_len: 3,
                block_table: &[3],
                slot: 2,
                scored: &[],
                samples: false,
                pooled: (1, 3),
                tapped: true,
                adapter: Some(AdapterId(6)),
                media: &[],
                prefix_len: 0,
            },
        ];
        let adapter = Arc::new(Adapter::new(HashMap::new(), 0));
        let expected = ForwardBatch {
            step: Step {
                input_ids: vec![5, 6, 7, 8, 9, 7, 1, 2, 3],
                positions: vec![31, 32, 33, 2, 3, 4, 0, 1, 2],
                slots: vec![4 * 32 + 31, 9 * 32, 9 * 32 + 1, 34, 35, 36, 96, 97, 98],
                block_tables: vec![vec![4, 9], vec![1], vec![3]],
                cu_seqlens_q: vec![0, 3, 6, 9],
                context_lens: vec![34, 5, 3],
                sequence_lens: vec![40, 3, 3],
                state_slots: vec![7, 0, 2],
                ..Step::default()
            },
            next_slots: vec![9 * 32 + 2, 32 + 5, 3 * 32 + 3],
            logits_rows: vec![1, 2, 3, 4, 5],
            hidden_rows: vec![7, 8],
            taps: Taps { layers: Vec::new(), rows: vec![6, 7, 8] },
            adapters: vec![AdaptedRows { adapter: adapter.clone(), rows: vec![0, 1, 2, 6, 7, 8] }],
            pictures: Vec::new(),
            previous_hidden: None,
        };
        let find = |id| {
            assert_eq!(id, AdapterId(6));
            adapter.clone()
        };
        let nothing = |_: &MediaSpan| unreachable!("there are no media");
        assert_eq!(flatten(plan.into_iter(), find, nothing).unwrap(), expected);
    }

    #[test]
    fn a_part_of_a_picture_has_its_rows_and_its_places() {
        let span = MediaSpan { first: 1, ..MediaSpan::whole(2, [2, 3], [4; 16]) };
        let features: Vec<f32> = (0..7u8).map(f32::from).collect();
        let features = Tensor::from_vec(features, (7, 1), &candle_core::Device::Cpu).unwrap();
        let planned = |id, first_position, media| PlannedSequence {
            id: SequenceId(id),
            token_ids: &[1, 2, 3],
            drafts: &[],
            first_position,
            sequence_len: 20,
            block_table: &[0],
            slot: 0,
            scored: &[],
            samples: false,
            pooled: (0, 0),
            tapped: false,
            adapter: None,
            media,
            prefix_len: 0,
        };
        let spans = [span];
        let plan = [planned(0, 5, &[]), planned(1, 6, &spans), planned(2, 9, &[])];
        let find = |found: &MediaSpan| {
            assert_eq!(*found, span);
            Ok(features.clone())
        };
        let batch = flatten(plan.into_iter(), |_| unreachable!(), find).unwrap();
        let [rows] = &batch.pictures[..] else { panic!("{:?}", batch.pictures) };
        assert_eq!((rows.first, rows.len()), (3, 2));
        assert_eq!(rows.features.flatten_all().unwrap().to_vec1::<f32>().unwrap(), [5.0, 6.0]);
        let [text, seen] = [[5, 5, 5], [2, 3, 3]];
        let expected = [text, [6; 3], [7; 3], seen, [2, 3, 4], [5; 3], [9; 3], [10; 3], [11; 3]];
        assert_eq!(batch.step.rope_positions, expected);
        assert!(batch.step.attention_ends.is_empty());
        let spans = [MediaSpan { two_way: true, ..span }];
        let plan = [planned(0, 5, &[]), planned(1, 6, &spans), planned(2, 9, &[])];
        let batch =
            flatten(plan.into_iter(), |_| unreachable!(), |_| Ok(features.clone())).unwrap();
        assert_eq!(batch.step.attention_ends, [6, 7, 8, 8, 8, 9, 10, 11, 12]);
        assert!(batch.step.attention_starts.is_empty());
        // A prompt of eight tokens, six of which were computed before.
        let prompt = PlannedSequence { prefix_len: 8, ..planned(1, 6, &[]) };
        let plan = [planned(0, 5, &[]), prompt, planned(2, 9, &[])];
        let batch = flatten(plan.into_iter(), |_| unreachable!(), |_| unreachable!()).unwrap();
        assert_eq!(batch.step.attention_ends, [6, 7, 8, 8, 8, 9, 10, 11, 12]);
        assert_eq!(batch.step.attention_starts, [5, 6, 7, 0, 0, 8, 9, 10, 11]);
    }
}
