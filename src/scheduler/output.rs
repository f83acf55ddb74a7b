//! What a step consists of.

pub use super::sequence::AdapterId;
use super::sequence::SequenceId;
use super::stop::FinishReason;

/// The sequences of one step, in the order of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerOutput {
    /// Each with the number of its tokens to compute.
    pub scheduled: Vec<(SequenceId, usize)>,
    /// Sequences that lost their blocks to make room.
    pub preempted: Vec<SequenceId>,
    /// Sequences that run for the first time, with the tokens that the prefix cache gave them.
    pub admitted: Vec<(SequenceId, usize)>,
}

impl SchedulerOutput {
    /// Tokens to compute, of all sequences.
    pub fn num_tokens(&self) -> usize {
        self.scheduled.iter().map(|(_, num_tokens)| num_tokens).sum()
    }
}

/// One sequence's part of a step, with everything the runner needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSequence<'a> {
    /// Whose tokens these are.
    pub id: SequenceId,
    /// The tokens to compute.
    pub token_ids: &'a [u32],
    /// Position of the first of them.
    pub first_position: usize,
    /// Tokens of the sequence, computed or not.
    pub sequence_len: usize,
    /// Blocks in order of position, enough for all tokens up to the last one here.
    pub block_table: &'a [u32],
    /// The place of its state, no other sequence's while it runs.
    pub slot: u32,
    /// Tokens of the prompt to score: each is predicted by the logits at the token before it, which
    /// are among the last ones here.
    pub scored: &'a [u32],
    /// Whether the last token's logits are wanted, to sample from.
    pub samples: bool,
    /// Which of the tokens here are pooled: from the first number up to the second.
    pub pooled: (usize, usize),
    /// With which adapter they are computed.
    pub adapter: Option<AdapterId>,
}

impl PlannedSequence<'_> {
    /// How many of the last tokens' logits are wanted.
    pub fn num_logits(&self) -> usize {
        self.scored.len() + usize::from(self.samples)
    }

    /// How many tokens' hidden states are wanted.
    pub fn num_pooled(&self) -> usize {
        self.pooled.1 - self.pooled.0
    }
}

/// What has to be copied before the next step, each `(from, to)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The content of a block.
    pub block: Option<(u32, u32)>,
    /// The state in a slot.
    pub state: Option<(u32, u32)>,
}

/// A sequence that ended in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its name.
    pub id: SequenceId,
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of this step that came behind its end and don't count.
    pub dropped: usize,
}
