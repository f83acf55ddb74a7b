//! The engine: one OS thread that owns everything mutable, behind a cloneable handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub mod output;
pub mod request;

use output::{EngineError, OutputSender, OutputStream};
use request::{EngineRequest, RequestId};

/// What a handle asks of the engine thread.
#[derive(Debug)]
pub enum Command {
    /// Queue a request; its outputs go to the sender.
    Submit(Box<EngineRequest>, OutputSender),
    /// Forget a request wherever it stands, and free what it holds.
    Abort(RequestId),
}

pub(crate) type CommandSender = mpsc::UnboundedSender<Command>;

/// What the engine can do, fixed at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Most tokens of a sequence, prompt and output together.
    pub max_model_len: usize,
    /// Number of logits; a valid token id is below it.
    pub vocab_size: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens a KV block holds.
    pub block_size: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
}

/// A cloneable way to the engine thread, which ends when the last handle and stream are gone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: CommandSender,
    shared: Arc<Shared>,
}

/// What the engine thread tells without being asked.
#[derive(Debug)]
struct Shared {
    limits: EngineLimits,
}

/// Whether the engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineHealth {
    /// Idle, or its last step was recent.
    Healthy,
    /// The thread ended.
    Dead,
    /// The step that is running began this long ago.
    Stuck(Duration),
}

impl EngineHandle {
    /// A handle and the receiving end that the engine thread (or a test) owns.
    pub fn channel(limits: EngineLimits) -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        (Self { commands, shared: Arc::new(Shared { limits }) }, receiver)
    }

    /// Queues a request. Errors arrive as the stream's last message.
    pub fn submit(&self, request: EngineRequest) -> OutputStream {
        let id = request.id;
        let (sender, receiver) = mpsc::unbounded_channel();
        let command = Command::Submit(Box::new(request), sender.clone());
        if self.commands.send(command).is_err() {
            let _ = sender.send(output::EngineOutput::Failed(EngineError::NotRunning));
        }
        OutputStream::new(id, receiver, self.commands.clone())
    }

    /// What the engine can do.
    pub fn limits(&self) -> &EngineLimits {
        &self.shared.limits
    }

    /// Whether the engine answers.
    pub fn health(&self) -> EngineHealth {
        if self.commands.is_closed() { EngineHealth::Dead } else { EngineHealth::Healthy }
    }
}
