//! What the engine thread tells of one request.

use std::any::Any;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::sampling::logprobs::TokenLogprobs;
use crate::scheduler::stop::FinishReason;

/// Why the engine gave up on a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine thread is gone.
    #[error("the engine is not running")]
    NotRunning,
    /// The request can never run here; the message names the value and the bound.
    #[error("{0}")]
    Rejected(String),
    /// A step that included this request failed.
    #[error("a model step failed: {0}")]
    StepFailed(String),
}

/// How a token was foreseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// Tokens of the sequence that were drafted in this token's step; told with the first of several.
    /// Depends on the load.
    pub drafted: u32,
    /// Whether it was one of them.
    pub accepted: bool,
    /// Whether it is what the request's predicted text has in this place. `None` where it has nothing.
    /// Doesn't depend on the load.
    pub predicted: Option<bool>,
}

/// Counts and times of one sequence, complete when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceStats {
    /// Prompt tokens whose KV came from the prefix cache.
    pub cached_tokens: usize,
    /// Times the sequence was preempted.
    pub preemptions: u32,
    /// From submission to the first scheduled step.
    pub queue: Duration,
    /// From the first scheduled step to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// One message of an [`OutputStream`](super::OutputStream).
#[derive(Clone, Debug, PartialEq)]
pub enum EngineOutput {
    /// The sequence is scheduled for the first time; comes before its first token. A reader that
    /// stops early (stop strings) has these figures from here.
    Started {
        /// Prompt tokens whose KV came from the prefix cache.
        cached_tokens: usize,
        /// From submission to the first scheduled step.
        queue: Duration,
    },
    /// Logprobs of the prompt's next tokens, if the request asked for them: in order, from the
    /// second token on, all of them before the first sampled one.
    PromptLogprobs(Vec<TokenLogprobs>),
    /// The next sampled token.
    Token {
        /// Its id. The token that ended the sequence (eos, stop token) is sent like any other.
        token_id: u32,
        /// Present when the request asked for logprobs.
        logprobs: Option<TokenLogprobs>,
        /// What speculative decoding knew of it.
        foreseen: Foreseen,
    },
    /// The last message of a sequence that ended well; follows its last token.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// Counts and times.
        stats: SequenceStats,
    },
    /// The only message of a text that was embedded, beside [`Started`](Self::Started).
    Embedded {
        /// All elements are finite.
        embedding: Vec<f32>,
        /// Counts and times; the embedding counts as the first token.
        stats: SequenceStats,
    },
    /// The last message of a sequence that failed.
    Failed(EngineError),
}

impl EngineOutput {
    /// The result of a text that was embedded; a vector with an element that is not finite is a
    /// failure.
    pub(crate) fn embedded(embedding: Vec<f32>, stats: SequenceStats) -> Self {
        match embedding.iter().find(|x| !x.is_finite()) {
            None => Self::Embedded { embedding, stats },
            Some(x) => {
                let message = format!("an element of the embedding is {x}");
                Self::Failed(EngineError::StepFailed(message))
            }
        }
    }

    /// Whether nothing follows.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Embedded { .. } | Self::Failed(_))
    }
}

/// Sends one request's outputs; held by the engine thread. Never blocks: at most
/// `max_tokens + 2` messages are ever queued.
pub type OutputSender = mpsc::UnboundedSender<EngineOutput>;

/// Tells that a request can never run; `reason` names the value and the bound.
pub(crate) fn reject(outputs: &OutputSender, reason: String) {
    // A stream that was dropped needs no answer.
    let _ = outputs.send(EngineOutput::Failed(EngineError::Rejected(reason)));
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}
