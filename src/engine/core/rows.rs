//! What becomes of each row of a step's logits.

use std::ops::Range;

use crate::scheduler::output::PlannedSequence;
use crate::scheduler::sequence::SequenceId;

/// How a sequence gets its next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextToken {
    /// The host samples it.
    Sampled,
    /// The device samples it from the logits that it computed.
    SampledOnDevice,
    /// A beam search chooses it.
    Searched,
}

/// The rows of a step's logits by what is done with them, each list in the order of the plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// Rows that score tokens of prompts.
    pub(super) scored: Vec<ScoredRows>,
    /// Rows that the host samples from.
    pub(super) sampled: Vec<SampledRows>,
    /// Rows that the device samples from.
    pub(super) on_device: Vec<(SequenceId, u32)>,
    /// Rows that hold the continuations of a search's beams.
    pub(super) searched: Vec<(SequenceId, u32)>,
}

/// Rows that one sequence's next tokens are sampled from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SampledRows {
    pub(super) id: SequenceId,
    /// The row behind the last token, and one behind each draft.
    pub(super) rows: Range<u32>,
    /// The tokens that are sampled if all goes well, before the last.
    pub(super) drafts: Vec<u32>,
}

/// Rows that score one prompt's tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScoredRows {
    pub(super) id: SequenceId,
    pub(super) rows: Range<u32>,
    /// The token that each row predicts.
    pub(super) token_ids: Vec<u32>,
}

impl Rows {
    /// Splits the rows of a plan; `next_token` says how a sequence that samples gets its token.
    pub(super) fn split<'a>(
        plan: impl Iterator<Item = PlannedSequence<'a>>,
        mut next_token: impl FnMut(SequenceId) -> NextToken,
    ) -> Self {
        let mut split = Self::default();
        let mut next = 0;
        let narrow = |count: usize| u32::try_from(count).expect("rows are few");
        for PlannedSequence { id, scored, samples, drafts, .. } in plan {
            let rows = next..next + narrow(scored.len());
            next = rows.end;
            if samples {
                let rows = next..next + 1 + narrow(drafts.len());
                next = rows.end;
                match next_token(id) {
                    NextToken::SampledOnDevice if drafts.is_empty() => {
                        split.on_device.push((id, rows.start));
                    }
                    // The host alone walks along drafts.
                    NextToken::Sampled | NextToken::SampledOnDevice => {
                        split.sampled.push(SampledRows { id, rows, drafts: drafts.to_vec() });
                    }
                    NextToken::Searched => split.searched.push((id, rows.start)),
                }
            }
            if !scored.is_empty() {
                split.scored.push(ScoredRows { id, rows, token_ids: scored.to_vec() });
            }
        }
        split
    }

    /// The rows that the host reads, ascending: all but those that the device samples from.
    pub(super) fn on_host(&self) -> Vec<u32> {
        let scored = self.scored.iter().flat_map(|scored| scored.rows.clone());
        let sampled = self.sampled.iter().flat_map(|sampled| sampled.rows.clone());
        let searched = self.searched.iter().map(|(_, row)| *row);
        let mut rows: Vec<u32> = scored.chain(sampled).chain(searched).collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(id: u64, scored: &[u32], samples: bool) -> PlannedSequence<'_> {
        PlannedSequence {
            id: SequenceId(id),
            token_ids: &[],
            drafts: &[],
            first_position: 0,
            sequence_len: 0,
            block_table: &[],
            slot: 0,
            scored,
            samples,
            pooled: (0, 0),
            tapped: false,
            adapter: None,
            media: &[],
            prefix_len: 0,
        }
    }

    #[test]
    fn every_row_has_one_fate_and_stands_where_the_model_puts_it() {
        let plan = [
            planned(1, &[], true),
            planned(2, &[7, 8], false),
            planned(3, &[9], true),
            planned(4, &[], false),
            planned(5, &[], true),
            PlannedSequence { drafts: &[3, 4], ..planned(6, &[], true) },
        ];
        let rows = Rows::split(plan.into_iter(), |id| match id.0 {
            1 => NextToken::SampledOnDevice,
            5 => NextToken::Searched,
            _ => NextToken::Sampled,
        });
        let scored = |id, rows, token_ids: &[u32]| ScoredRows {
            id: SequenceId(id),
            rows,
            token_ids: token_ids.to_vec(),
        };
        let sampled = |id, rows, drafts: &[u32]| SampledRows {
            id: SequenceId(id),
            rows,
            drafts: drafts.to_vec(),
        };
        let expected = Rows {
            scored: vec![scored(2, 1..3, &[7, 8]), scored(3, 3..4, &[9])],
            sampled: vec![sampled(3, 4..5, &[]), sampled(6, 6..9, &[3, 4])],
            on_device: vec![(SequenceId(1), 0)],
            searched: vec![(SequenceId(5), 5)],
        };
        assert_eq!(rows, expected);
        assert_eq!(rows.on_host(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
