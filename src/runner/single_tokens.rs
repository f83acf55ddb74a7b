//! A step that verifies drafts, as one of single tokens.

use super::batch::narrow;
use super::hidden::HeadInput;
use crate::layers::forward::{ForwardBatch, Step};

/// The same step with a sequence for each token, where that gives the same logits: all tokens have logits, and
/// see what is in the KV cache up to their own. Every layer writes the keys and values of all its tokens
/// before any of them attends. For models without recurrent states alone, which go from token to token.
///
/// `None` where a step is one of single tokens already, or needs more than that and what a head is `told`.
pub(super) fn single_tokens(batch: &ForwardBatch, told: &HeadInput) -> Option<ForwardBatch> {
    let Step { input_ids, positions, slots, .. } = &batch.step;
    let tokens = input_ids.len();
    let several = batch.step.context_lens.len() < tokens;
    if !several || batch.logits_rows.len() != tokens || !is_plain(batch, told) {
        return None;
    }
    let mut step = Step {
        input_ids: input_ids.clone(),
        positions: positions.clone(),
        slots: slots.clone(),
        cu_seqlens_q: (0..=narrow(tokens)).collect(),
        context_lens: positions.iter().map(|position| position + 1).collect(),
        ..Step::default()
    };
    for (seq, bounds) in batch.step.cu_seqlens_q.windows(2).enumerate() {
        for _ in bounds[0]..bounds[1] {
            step.block_tables.push(batch.step.block_tables[seq].clone());
            step.sequence_lens.push(batch.step.sequence_lens[seq]);
        }
    }
    let (logits_rows, hidden_rows) = (batch.logits_rows.clone(), batch.hidden_rows.clone());
    let taps = batch.taps.clone();
    Some(ForwardBatch { step, logits_rows, hidden_rows, taps, ..ForwardBatch::default() })
}

/// Whether a step is of tokens of texts, and of nothing but logits and what a head is `told`.
pub(super) fn is_plain(batch: &ForwardBatch, told: &HeadInput) -> bool {
    let sees = !batch.pictures.is_empty() || !batch.step.rope_positions.is_empty();
    let sees_ahead = !batch.step.attention_ends.is_empty();
    let goes_on = batch.previous_hidden.is_some();
    told.covers(batch) && batch.adapters.is_empty() && !sees && !sees_ahead && !goes_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_sees_as_far_as_it_did() {
        let step = Step {
            input_ids: vec![5, 6, 7, 8],
            positions: vec![31, 32, 33, 2],
            slots: vec![95, 96, 97, 34],
            cu_seqlens_q: vec![0, 3, 4],
            context_lens: vec![34, 3],
            sequence_lens: vec![32, 3],
            state_slots: vec![9, 4],
            block_tables: vec![vec![2, 3], vec![1]],
            ..Step::default()
        };
        let batch = ForwardBatch { step, logits_rows: vec![0, 1, 2, 3], ..ForwardBatch::default() };
        let single_tokens = |batch: &ForwardBatch| single_tokens(batch, &HeadInput::Nothing);
        let single = single_tokens(&batch).unwrap();
        assert_eq!(single.logits_rows, batch.logits_rows);
        let Step { cu_seqlens_q, context_lens, sequence_lens, block_tables, .. } = &single.step;
        assert_eq!(cu_seqlens_q[..], [0, 1, 2, 3, 4]);
        assert_eq!(context_lens[..], [32, 33, 34, 3]);
        assert_eq!(sequence_lens[..], [32, 32, 32, 3]);
        assert_eq!(block_tables[..], [vec![2, 3], vec![2, 3], vec![2, 3], vec![1]]);
        assert_eq!(single_tokens(&single), None, "it is one already");
        let silent = ForwardBatch { logits_rows: vec![2, 3], ..batch.clone() };
        assert_eq!(single_tokens(&silent), None, "a prompt has no logits but its last");
        let told = ForwardBatch { hidden_rows: vec![0, 2], ..batch };
        assert_eq!(single_tokens(&told), None, "nobody is told");
        let single = super::single_tokens(&told, &HeadInput::Hidden).unwrap();
        assert_eq!(single.hidden_rows, [0, 2]);
    }
}
