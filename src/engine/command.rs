//! What handles ask of the engine thread.

use std::time::Instant;

use tokio::runtime::Runtime;
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
    /// Look what the folder of blocks has loaded or stored.
    Wake,
}

/// The sending end of the engine thread's commands.
pub(crate) type CommandSender = mpsc::UnboundedSender<Command>;

/// What the engine thread does while there are no commands.
#[derive(Clone, Copy)]
pub(super) enum Wait<'a> {
    /// It goes on at once.
    No,
    /// It waits for one.
    ForOne,
    /// It waits for one until then.
    Until(&'a Runtime, Instant),
}

/// The commands that were sent since the last call. `None` once every handle and stream is gone.
pub(super) fn drain_commands(
    commands: &mut mpsc::UnboundedReceiver<Command>,
    wait: Wait<'_>,
) -> Option<Vec<Command>> {
    let mut drained = Vec::new();
    match wait {
        Wait::No => {}
        Wait::ForOne => drained.push(commands.blocking_recv()?),
        Wait::Until(clock, end) => {
            let received = clock.block_on(async {
                // Made here, where the clock is known.
                tokio::time::timeout_at(end.into(), commands.recv()).await
            });
            if let Ok(command) = received {
                drained.push(command?);
            }
        }
    }
    loop {
        match commands.try_recv() {
            Ok(command) => drained.push(command),
            Err(TryRecvError::Empty) => return Some(drained),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}
