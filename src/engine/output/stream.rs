//! The receiving end of one request's outputs.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::event::{EngineError, EngineOutput};
use crate::engine::command::{Command, CommandSender};
use crate::engine::request::RequestId;

/// The outputs of one request. Dropping it before the end aborts the request.
#[derive(Debug)]
pub struct OutputStream {
    id: RequestId,
    receiver: mpsc::UnboundedReceiver<EngineOutput>,
    commands: CommandSender,
    ended: bool,
}

impl OutputStream {
    pub(crate) fn new(
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
