//! What comes back from the engine, one stream per request.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;

use super::request::RequestId;
use super::{Command, CommandSender};
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

/// One message of an [`OutputStream`].
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
    /// The end of a text that was embedded; a vector that holds no numbers is a failure.
    pub(super) fn embedded(embedding: Vec<f32>, stats: SequenceStats) -> Self {
        match embedding.iter().find(|x| !x.is_finite()) {
            None => Self::Embedded { embedding, stats },
            Some(x) => {
                let message = format!("an element of the embedding is {x}");
                Self::Failed(EngineError::StepFailed(message))
            }
        }
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::Finished { .. } | Self::Embedded { .. } | Self::Failed(_))
    }
}

/// Sends one request's outputs; held by the engine thread. Never blocks: at most
/// `max_tokens + 2` messages are ever queued.
pub type OutputSender = mpsc::UnboundedSender<EngineOutput>;

/// The outputs of one request. Dropping it before the end aborts the request.
#[derive(Debug)]
pub struct OutputStream {
    id: RequestId,
    receiver: mpsc::UnboundedReceiver<EngineOutput>,
    commands: CommandSender,
    ended: bool,
}

impl OutputStream {
    pub(super) fn new(
        id: RequestId,
        receiver: mpsc::UnboundedReceiver<EngineOutput>,
        commands: CommandSender,
    ) -> Self {
        Self { id, receiver, commands, ended: false }
    }

    /// The request this stream belongs to.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next output; `None` after [`EngineOutput::Finished`], [`EngineOutput::Embedded`] or
    /// [`EngineOutput::Failed`]. An engine that died in between shows as `Failed(NotRunning)`.
    pub async fn next(&mut self) -> Option<EngineOutput> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<EngineOutput>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.receiver.poll_recv(context).map(|received| {
            let output = received.unwrap_or(EngineOutput::Failed(EngineError::NotRunning));
            self.ended = output.is_last();
            Some(output)
        })
    }
}

impl futures::Stream for OutputStream {
    type Item = EngineOutput;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EngineOutput>> {
        self.get_mut().poll_next(context)
    }
}

impl Drop for OutputStream {
    fn drop(&mut self) {
        if !self.ended {
            // A dead engine has nothing left to abort.
            let _ = self.commands.send(Command::Abort(self.id));
        }
    }
}
