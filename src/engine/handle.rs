//! The way to the engine thread, and whether it is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::command::{Command, CommandSender};
use super::limits::EngineLimits;
use super::output::{EngineError, EngineOutput, OutputSender, OutputStream};
use super::request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};
use crate::runner::Interruption;
use crate::scheduler::sequence::YIELDS;

/// A cloneable way to the engine thread, which ends when the last handle and stream are gone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: CommandSender,
    shared: Arc<Shared>,
}

/// What the engine thread and its handles share without commands.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: EngineLimits,
    epoch: Instant,
    // Milliseconds since `epoch`, plus 1, at which the running step began; 0 between steps.
    step_began: AtomicU64,
    restarting: AtomicBool,
    /// Ends a step that has only sequences which yield, once someone else comes.
    pub(super) interruption: Interruption,
}

impl Shared {
    /// Notes that a step begins.
    pub(super) fn begin_step(&self) {
        self.step_began.store(self.now(), Ordering::Relaxed);
    }

    /// Notes that the step has ended.
    pub(super) fn end_step(&self) {
        self.step_began.store(0, Ordering::Relaxed);
    }

    /// Notes whether the engine begins anew after a panic.
    pub(super) fn set_restarting(&self, restarting: bool) {
        self.restarting.store(restarting, Ordering::Relaxed);
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
    /// The thread panicked and begins anew.
    Restarting,
    /// The step that is running began this long ago.
    Stuck(Duration),
}

impl EngineHandle {
    /// A handle and the receiving end that the engine thread (or a test) owns.
    pub fn channel(limits: EngineLimits) -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, receiver) = mpsc::unbounded_channel();
        let shared = Shared {
            limits,
            epoch: Instant::now(),
            step_began: AtomicU64::new(0),
            restarting: AtomicBool::new(false),
            interruption: Interruption::default(),
        };
        (Self { commands, shared: Arc::new(shared) }, receiver)
    }

    /// Queues a request. Errors arrive as the stream's last message.
    pub fn submit(&self, request: EngineRequest) -> OutputStream {
        let priority = request.priority;
        let outputs = self.send(request.id, |sender| Command::Submit(Box::new(request), sender));
        self.interrupt_for(priority);
        outputs
    }

    /// Queues a text to embed. Errors arrive as the stream's last message.
    pub fn embed(&self, request: EmbeddingRequest) -> OutputStream {
        let priority = request.priority;
        let outputs = self.send(request.id, |sender| Command::Embed(Box::new(request), sender));
        self.interrupt_for(priority);
        outputs
    }

    /// Queues a beam search. Returns the outputs of its answers, best first, which all arrive at its
    /// end; the first has the request's id.
    pub fn search(&self, request: BeamRequest) -> Vec<OutputStream> {
        let others = (1..request.beams.answers).map(|_| RequestId::next());
        let ids = std::iter::once(request.request.id).chain(others);
        let answers = ids.map(|id| (id, mpsc::unbounded_channel()));
        let answers: Vec<_> = answers.collect();
        let senders = answers.iter().map(|(id, (sender, _))| (*id, sender.clone())).collect();
        let priority = request.request.priority;
        let sent = self.commands.send(Command::Search(Box::new(request), senders));
        self.interrupt_for(priority);
        let streams = answers.into_iter().map(|(id, (sender, receiver))| {
            if sent.is_err() {
                let _ = sender.send(EngineOutput::Failed(EngineError::NotRunning));
            }
            OutputStream::new(id, receiver, self.commands.clone())
        });
        streams.collect()
    }

    /// What the handle shares with the engine thread.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Wakes the engine thread, from any thread; does not keep it alive.
    pub(super) fn waker(&self) -> impl Fn() + Send + Sync + use<> {
        let commands = self.commands.downgrade();
        move || {
            if let Some(commands) = commands.upgrade() {
                // It has ended; then there is nobody to wake.
                let _ = commands.send(Command::Wake);
            }
        }
    }

    /// Ends the step that runs if it can wait and what was just sent can't.
    fn interrupt_for(&self, priority: i32) {
        if priority != YIELDS {
            self.shared.interruption.ask();
        }
    }

    fn send(&self, id: RequestId, command: impl FnOnce(OutputSender) -> Command) -> OutputStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        let command = command(sender.clone());
        if self.commands.send(command).is_err() {
            let _ = sender.send(EngineOutput::Failed(EngineError::NotRunning));
        }
        OutputStream::new(id, receiver, self.commands.clone())
    }

    /// What the engine can do, fixed at startup.
    pub fn limits(&self) -> &EngineLimits {
        &self.shared.limits
    }

    /// Waits until the engine has ended: no request will be answered any more.
    pub async fn ended(&self) {
        self.commands.closed().await;
    }

    /// Notes that a step begins now, as the engine's thread does, for tests in its place.
    pub fn begin_step(&self) {
        self.shared.begin_step();
    }

    /// Whether the engine has not ended.
    pub fn is_running(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the engine answers; it is stuck if a step runs longer than `bound`.
    pub fn health(&self, bound: Duration) -> EngineHealth {
        if self.commands.is_closed() {
            return EngineHealth::Dead;
        }
        if self.shared.restarting.load(Ordering::Relaxed) {
            return EngineHealth::Restarting;
        }
        match self.shared.running_step() {
            running if running > bound => EngineHealth::Stuck(running),
            _ => EngineHealth::Healthy,
        }
    }
}
