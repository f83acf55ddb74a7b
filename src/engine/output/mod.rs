//! What comes back from the engine: one stream of events per request.

pub(super) mod event;
mod stream;

pub use event::{EngineError, EngineOutput, Foreseen, OutputSender, SequenceStats};
pub use stream::OutputStream;
