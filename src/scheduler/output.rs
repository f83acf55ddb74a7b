//! What a step consists of.

pub use super::media::MediaSpan;
pub use super::sequence::AdapterId;
use super::sequence::SequenceId;
use super::stop::FinishReason;
use crate::kv_cache::snapshots::SnapshotId;

/// The sequences of one step, in the order of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerOutput {
    /// Each sequence with the number of its tokens to compute.
    pub scheduled: Vec<(SequenceId, usize)>,
    /// How many of these tokens are of sequences that yield, if others have some, too.
    pub num_yielding: usize,
    /// Sequences that were preempted.
    pub preempted: Vec<SequenceId>,
    /// Sequences that run for the first time, with the tokens that the prefix cache gave them.
    pub admitted: Vec<(SequenceId, usize)>,
    /// Blocks to be copied before the step, in this order.
    pub copied: Vec<Copies>,
    /// Which slots get their states from which snapshots before the step, `(from, to)`.
    pub restored: Vec<(SnapshotId, u32)>,
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
    /// Tokens that may follow them, to be computed besides; their logits are wanted.
    pub drafts: &'a [u32],
    /// Position of the first of them.
    pub first_position: usize,
    /// Tokens of the sequence, computed or not.
    pub sequence_len: usize,
    /// Blocks in order of position, enough for all tokens up to the last of `drafts`.
    pub block_table: &'a [u32],
    /// The slot of the sequence's recurrent state, its own while it runs.
    pub slot: u32,
    /// Tokens of the prompt to score: each is predicted by the logits at the token before it, and
    /// these are among the last of `token_ids`.
    pub scored: &'a [u32],
    /// Whether the last token's logits are wanted, to sample from.
    pub samples: bool,
    /// The range of `token_ids` that is pooled, as `(start, end)`.
    pub pooled: (usize, usize),
    /// Whether the inputs of some layers are wanted of all tokens.
    pub tapped: bool,
    /// The adapter that the tokens are computed with.
    pub adapter: Option<AdapterId>,
    /// The pictures and sounds of the whole prompt, in order of position.
    pub media: &'a [MediaSpan],
    /// So many tokens at the beginning of the sequence see each other; all that are not computed yet are
    /// in this step.
    pub prefix_len: usize,
}

impl PlannedSequence<'_> {
    /// How many tokens are computed.
    pub fn num_tokens(&self) -> usize {
        self.token_ids.len() + self.drafts.len()
    }

    /// How many of the last tokens' logits are wanted.
    pub fn num_logits(&self) -> usize {
        self.scored.len() + usize::from(self.samples) + self.drafts.len()
    }

    /// How many tokens' hidden states are wanted.
    pub fn num_pooled(&self) -> usize {
        self.pooled.1 - self.pooled.0
    }
}

/// How many of the first drafts were sampled: those that a sequence's tokens of the step begin with.
pub fn num_accepted(drafts: &[u32], sampled: &[u32]) -> usize {
    drafts.iter().zip(sampled).take_while(|(draft, token)| draft == token).count()
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
    /// The sequence.
    pub id: SequenceId,
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of this step after the end, which don't count.
    pub dropped: usize,
}
