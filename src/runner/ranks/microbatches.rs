//! A step in parts that follow each other through the stages of a model, so that all stages compute at
//! the same time.
//!
//! Where a step is cut changes no bits: a row's results don't depend on what else is in its batch, nor on
//! where its prompt is cut into chunks.

use std::ops::Range;

use crate::layers::forward::{BLOCK_SIZE, ForwardBatch, Step};
use crate::runner::batch::narrow;

/// Fewest rows of a microbatch: each reads all weights of a stage again, which takes longer than what it
/// computes with them for fewer rows.
const LEAST_ROWS: usize = 16;
/// The same on a GPU.
const LEAST_ROWS_OF_GPU: usize = 256;
/// Most microbatches for each stage: the more there are, the less stages wait for the first one and for
/// the last one.
const MOST_OF_STAGE: usize = 2;

/// How many microbatches a step of so many rows is worth.
pub(super) fn worth(rows: usize, stages: usize, on_gpu: bool) -> usize {
    let least = if on_gpu { LEAST_ROWS_OF_GPU } else { LEAST_ROWS };
    (rows / least).clamp(1, MOST_OF_STAGE * stages)
}

/// Cuts a step into `count` microbatches of about as many rows, which ask for the hidden states of the rows
/// that are wanted.
pub(super) fn cut(batch: &ForwardBatch, count: usize) -> Vec<ForwardBatch> {
    let rows = batch.step.input_ids.len();
    // The tokens of a picture that see each other stay together.
    let count = if batch.step.attention_ends.is_empty() { count.clamp(1, rows.max(1)) } else { 1 };
    let bounds = (0..count).map(|index| index * rows / count..(index + 1) * rows / count);
    let wanted = batch.wanted_rows();
    bounds.map(|own| part(&batch.step, &wanted, own)).collect()
}

/// The rows `own` of a step.
fn part(step: &Step, wanted: &[u32], own: Range<usize>) -> ForwardBatch {
    let mut part = Step {
        input_ids: step.input_ids[own.clone()].to_vec(),
        positions: step.positions[own.clone()].to_vec(),
        slots: step.slots[own.clone()].to_vec(),
        attention_ends: step.attention_ends.clone(),
        attention_starts: step.attention_starts.clone(),
        cu_seqlens_q: vec![0],
        ..Step::default()
    };
    if !step.rope_positions.is_empty() {
        part.rope_positions = step.rope_positions[own.clone()].to_vec();
    }
    for (seq, bounds) in step.cu_seqlens_q.windows(2).enumerate() {
        let (first, end) = (bounds[0] as usize, bounds[1] as usize);
        let (first, last) = (first.max(own.start), end.min(own.end));
        if first >= last {
            continue;
        }
        // What follows of the sequence is in another part.
        let context = step.context_lens[seq] as usize - (end - last);
        part.cu_seqlens_q.push(narrow(last - own.start));
        part.context_lens.push(narrow(context));
        part.sequence_lens.push(step.sequence_lens[seq]);
        part.state_slots.extend(step.state_slots.get(seq));
        part.block_tables.push(step.block_tables[seq][..context.div_ceil(BLOCK_SIZE)].to_vec());
    }
    let inside = |row: &&u32| own.contains(&(**row as usize));
    let hidden_rows = wanted.iter().filter(inside).map(|row| row - narrow(own.start)).collect();
    ForwardBatch { step: part, hidden_rows, ..ForwardBatch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> ForwardBatch {
        ForwardBatch {
            step: Step {
                input_ids: vec![5, 6, 7, 8, 9, 1, 2],
                positions: vec![30, 31, 32, 33, 34, 2, 0],
                slots: vec![158, 159, 288, 289, 290, 34, 96],
                cu_seqlens_q: vec![0, 5, 6, 7],
                context_lens: vec![35, 3, 1],
                sequence_lens: vec![40, 3, 2],
                state_slots: vec![7, 0, 2],
                block_tables: vec![vec![4, 9], vec![1], vec![3]],
                ..Step::default()
            },
            logits_rows: vec![4, 5],
            hidden_rows: vec![1, 4],
            ..ForwardBatch::default()
        }
    }

    #[test]
    fn a_chunk_is_cut_between_tokens_and_others_between_sequences() {
        let [first, second] = &cut(&batch(), 2)[..] else { panic!("two parts expected") };
        let expected = Step {
            input_ids: vec![5, 6, 7],
            positions: vec![30, 31, 32],
            slots: vec![158, 159, 288],
            cu_seqlens_q: vec![0, 3],
            context_lens: vec![33],
            sequence_lens: vec![40],
            state_slots: vec![7],
            block_tables: vec![vec![4, 9]],
            ..Step::default()
        };
        assert_eq!((&first.step, &first.hidden_rows[..]), (&expected, &[1][..]));
        let expected = Step {
            input_ids: vec![8, 9, 1, 2],
            positions: vec![33, 34, 2, 0],
            slots: vec![289, 290, 34, 96],
            cu_seqlens_q: vec![0, 2, 3, 4],
            context_lens: vec![35, 3, 1],
            sequence_lens: vec![40, 3, 2],
            state_slots: vec![7, 0, 2],
            block_tables: vec![vec![4, 9], vec![1], vec![3]],
            ..Step::default()
        };
        assert_eq!((&second.step, &second.hidden_rows[..]), (&expected, &[1, 2][..]));
        assert!(first.logits_rows.is_empty() && second.logits_rows.is_empty());
        // The first token alone needs one block.
        let parts = cut(&batch(), 100);
        assert_eq!(parts.len(), 7);
        assert_eq!(
            (&parts[0].step.block_tables[0][..], parts[0].step.context_lens[0]),
            (&[4][..], 31)
        );
        let wanted: Vec<_> = parts.iter().map(|part| part.hidden_rows.len()).collect();
        assert_eq!(wanted, [0, 1, 0, 0, 1, 1, 0]);
    }

    #[test]
    fn tokens_of_a_picture_that_see_each_other_stay_together() {
        let mut batch = batch();
        batch.step.attention_ends = vec![31, 32, 35, 35, 35, 3, 1];
        let [whole] = &cut(&batch, 3)[..] else { panic!("one part expected") };
        assert_eq!(whole.step, batch.step);
    }

    #[test]
    fn a_step_of_few_rows_is_not_worth_several_microbatches() {
        assert_eq!([1, 16, 32, 48, 512].map(|rows| worth(rows, 2, false)), [1, 1, 2, 3, 4]);
        assert_eq!([16, 300, 4096].map(|rows| worth(rows, 3, true)), [1, 1, 6]);
    }
}
