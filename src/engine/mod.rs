//! The engine: one OS thread that owns everything mutable, behind a cloneable handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

pub mod adapter;
mod core;
mod encoder;
pub mod memory;
pub mod output;
mod pace;
pub mod request;
pub mod startup;

use output::{EngineError, OutputSender, OutputStream};
use request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};

/// What a handle asks of the engine thread.
#[derive(Debug)]
pub enum Command {
    /// Queue a request; its outputs go to the sender.
    Submit(Box<EngineRequest>, OutputSender),
    /// Queue a text to embed; its outputs go to the sender.
    Embed(Box<EmbeddingRequest>, OutputSender),
    /// Queue a search; each of its answers has a name and a sender of its own.
    Search(Box<BeamRequest>, Vec<(RequestId, OutputSender)>),
    /// Forget a request wherever it stands, and free what it holds.
    Abort(RequestId),
}

pub(crate) type CommandSender = mpsc::UnboundedSender<Command>;

/// What was asked since the last time; an engine that is `idle` waits for it. `None` once every
/// handle and stream is gone.
fn arrived(commands: &mut mpsc::UnboundedReceiver<Command>, idle: bool) -> Option<Vec<Command>> {
    let mut arrived = Vec::new();
    if idle {
        arrived.push(commands.blocking_recv()?);
    }
    loop {
        match commands.try_recv() {
            Ok(command) => arrived.push(command),
            Err(TryRecvError::Empty) => return Some(arrived),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}

/// What the engine can do, fixed at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Most tokens of a sequence, prompt and output together.
    pub max_model_len: usize,
    /// Most tokens of a text to embed.
    pub max_text_len: usize,
    /// Number of logits; a valid token id is below it.
    pub vocab_size: usize,
    /// Most sequences in one step.
    pub max_num_seqs: usize,
    /// Tokens a KV block holds.
    pub block_size: usize,
    /// KV blocks in the pool.
    pub num_blocks: usize,
    /// Elements of an embedding.
    pub embedding_size: usize,
    /// Whether it continues texts, or only embeds them.
    pub generates: bool,
}

impl EngineLimits {
    /// Checks that there are tokens, and that the model knows them.
    fn check_tokens(&self, tokens: &[u32]) -> Result<(), String> {
        let vocab_size = self.vocab_size;
        if tokens.is_empty() {
            return Err("the prompt has no tokens".to_owned());
        }
        match tokens.iter().find(|token| **token as usize >= vocab_size) {
            Some(token) => {
                Err(format!("token id {token} is outside the vocabulary of {vocab_size} tokens"))
            }
            None => Ok(()),
        }
    }

    /// Checks a text to embed.
    fn check_embedding(&self, request: &EmbeddingRequest) -> Result<(), String> {
        self.check_tokens(&request.token_ids)?;
        let (length, most) = (request.token_ids.len(), self.max_text_len);
        if length > most {
            return Err(format!("the text has {length} tokens, the most is {most}"));
        }
        match request.dimensions {
            Some(wanted) if wanted == 0 || wanted > self.embedding_size => {
                Err(format!("dimensions is {wanted}, it must be 1 to {}", self.embedding_size))
            }
            _ => Ok(()),
        }
    }
}

/// A cloneable way to the engine thread, which ends when the last handle and stream are gone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: CommandSender,
    shared: Arc<Shared>,
}

/// A step that runs longer than this means that the engine hangs.
const STUCK_AFTER: Duration = Duration::from_mins(1);

/// What the engine thread tells without being asked.
#[derive(Debug)]
struct Shared {
    limits: EngineLimits,
    epoch: Instant,
    // Milliseconds since `epoch`, plus 1, at which the running step began; 0 between steps.
    step_began: AtomicU64,
}

impl Shared {
    fn begin_step(&self) {
        self.step_began.store(self.now(), Ordering::Relaxed);
    }

    fn end_step(&self) {
        self.step_began.store(0, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).map_or(u64::MAX, |now| now + 1)
    }

    fn running_step(&self) -> Duration {
        match self.step_began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_millis(self.now().saturating_sub(began)),
        }
    }
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
        let shared = Shared { limits, epoch: Instant::now(), step_began: AtomicU64::new(0) };
        (Self { commands, shared: Arc::new(shared) }, receiver)
    }

    /// Queues a request. Errors arrive as the stream's last message.
    pub fn submit(&self, request: EngineRequest) -> OutputStream {
        self.send(request.id, |sender| Command::Submit(Box::new(request), sender))
    }

    /// Queues a text to embed. Errors arrive as the stream's last message.
    pub fn embed(&self, request: EmbeddingRequest) -> OutputStream {
        self.send(request.id, |sender| Command::Embed(Box::new(request), sender))
    }

    /// Queues a search. The outputs of its answers, best first, which all arrive at its end; one
    /// of them has the request's name.
    pub fn search(&self, request: BeamRequest) -> Vec<OutputStream> {
        let others = (1..request.beams.answers).map(|_| RequestId::next());
        let ids = std::iter::once(request.request.id).chain(others);
        let answers = ids.map(|id| (id, mpsc::unbounded_channel()));
        let answers: Vec<_> = answers.collect();
        let senders = answers.iter().map(|(id, (sender, _))| (*id, sender.clone())).collect();
        let sent = self.commands.send(Command::Search(Box::new(request), senders));
        let streams = answers.into_iter().map(|(id, (sender, receiver))| {
            if sent.is_err() {
                let _ = sender.send(output::EngineOutput::Failed(EngineError::NotRunning));
            }
            OutputStream::new(id, receiver, self.commands.clone())
        });
        streams.collect()
    }

    fn send(&self, id: RequestId, command: impl FnOnce(OutputSender) -> Command) -> OutputStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        let command = command(sender.clone());
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
        if self.commands.is_closed() {
            return EngineHealth::Dead;
        }
        match self.shared.running_step() {
            running if running > STUCK_AFTER => EngineHealth::Stuck(running),
            _ => EngineHealth::Healthy,
        }
    }
}

#[cfg(test)]
mod tests;
