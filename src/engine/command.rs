//! What handles ask of the engine thread.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::output::event::OutputSender;
use super::request::{BeamRequest, EmbeddingRequest, EngineRequest, RequestId};

/// What a handle asks of the engine thread.
#[derive(Debug)]
pub enum Command {
    /// Queue a request; its outputs go to the sender.
    Submit(Box<EngineRequest>, OutputSender),
    /// Queue a text to embed; its outputs go to the sender.
    Embed(Box<EmbeddingRequest>, OutputSender),
    /// Queue a beam search; each of its answers has an id and a sender of its own.
    Search(Box<BeamRequest>, Vec<(RequestId, OutputSender)>),
    /// Drop a request in whatever state it is, and free what it holds.
    Abort(RequestId),
}

/// The sending end of the engine thread's commands.
pub(crate) type CommandSender = mpsc::UnboundedSender<Command>;

/// The commands that were sent since the last call; an engine that is `idle` waits for one. `None`
/// once every handle and stream is gone.
pub(super) fn drain_commands(
    commands: &mut mpsc::UnboundedReceiver<Command>,
    idle: bool,
) -> Option<Vec<Command>> {
    let mut drained = Vec::new();
    if idle {
        drained.push(commands.blocking_recv()?);
    }
    loop {
        match commands.try_recv() {
            Ok(command) => drained.push(command),
            Err(TryRecvError::Empty) => return Some(drained),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}
