//! What is asked of a row of logits, and what comes of it.

use candle_core::Tensor;

/// Token ids with their occurrences in the output, which stay on the device from draw to draw.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Where they are.
    pub kept: Option<KeptCounts>,
    /// Entries that count, from the first on.
    pub len: u32,
    /// Entries that are not what they were at the draw before: all entries up to `len` must have been
    /// among those of some draw.
    pub changes: Vec<CountChange>,
}

/// What an entry is from a draw on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountChange {
    /// The entry.
    pub index: u32,
    /// The token, which no other entry has; `None` if the entry is for none.
    pub token: Option<u32>,
    /// Its occurrences in the output; 0 of what stands in the prompt alone.
    pub output: f32,
}

/// Room for entries on a device, of one sequence. Clones are the same room.
#[derive(Clone, Debug)]
pub struct KeptCounts(pub(super) Tensor);

impl KeptCounts {
    /// Entries that have room.
    pub fn capacity(&self) -> usize {
        self.0.elem_count()
    }
}

/// A draw from one row of logits.
#[derive(Clone, Debug, Default)]
pub struct Draw {
    /// The row's index.
    pub row: u32,
    /// Where in the distribution to draw, in `[0, 1)`; unused if the temperature is greedy.
    pub position: f64,
    /// Divisor of logits.
    pub temperature: f32,
    /// Share of the weight that the nucleus has.
    pub top_p: f32,
    /// Least weight relative to the largest.
    pub min_p: f32,
    /// Most tokens; 0 is off.
    pub top_k: u32,
    /// Penalty by division or multiplication.
    pub repetition_penalty: f32,
    /// Penalty for each occurrence.
    pub frequency_penalty: f32,
    /// Penalty for any occurrence.
    pub presence_penalty: f32,
    /// Token ids with what is added to their logits, in this order.
    pub biases: Vec<(u32, f32)>,
    /// What penalties look at.
    pub counts: Counts,
    /// A bit for each token, set where it is allowed; tokens behind the last bit are not.
    pub mask: Option<Vec<u32>>,
    /// The only token that may come.
    pub required: Option<u32>,
    /// Most likely tokens to report, if log-probabilities are wanted.
    pub top: Option<u32>,
}

/// The result of a draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawn {
    /// A token.
    Token {
        /// The token's id.
        token_id: u32,
        /// Log-probabilities, if they were wanted.
        logprobs: Option<DrawnLogprobs>,
    },
    /// A logit is NaN; its index.
    Nan(u32),
    /// The largest logit isn't finite.
    NotFinite,
    /// No token is left.
    NoneLeft,
}

/// Log-probabilities of a drawn token, by the model's own logits.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnLogprobs {
    /// The drawn token's log-probability.
    pub logprob: f32,
    /// The drawn token's rank among all, from 1.
    pub rank: u32,
    /// The most likely tokens, best first.
    pub top: Vec<(u32, f32)>,
}
