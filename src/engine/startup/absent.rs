//! The engine of a server that has no model for texts: it refuses everything.

use super::engine::Engine;
use super::error::StartupError;
use crate::config::Pooling;
use crate::engine::command::Command;
use crate::engine::handle::EngineHandle;
use crate::engine::limits::{EngineLimits, Outputs};
use crate::engine::output::{EngineError, EngineOutput};
use crate::kv_cache::BLOCK_SIZE;

impl Engine {
    /// Starts a thread that answers every request with `reason`. The limits are those of a tokenizer alone:
    /// how many tokens a text may have, and how many there are.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub fn absent(
        max_len: usize,
        vocab_size: usize,
        reason: &'static str,
    ) -> Result<Self, StartupError> {
        let limits = EngineLimits {
            max_model_len: max_len,
            max_text_len: max_len,
            vocab_size,
            max_batch_tokens: 1,
            max_num_seqs: 1,
            block_size: BLOCK_SIZE,
            num_blocks: 0,
            embedding_size: 1,
            hidden_size: 1,
            outputs: Outputs::Embedding,
            further: Vec::new(),
            pooling: Pooling::Last,
            normalizes: false,
            generates: false,
            prefix_lm: false,
            sees: false,
            hears: false,
        };
        let (handle, mut commands) = EngineHandle::channel(limits);
        let work = move || {
            let refuse = |sender: &crate::engine::output::OutputSender| {
                let error = EngineError::Rejected(reason.to_owned());
                // Nobody may wait any more.
                let _ = sender.send(EngineOutput::Failed(error));
            };
            while let Some(command) = commands.blocking_recv() {
                match command {
                    Command::Submit(_, sender) | Command::Embed(_, sender) => refuse(&sender),
                    Command::Search(_, senders) => {
                        for (_, sender) in &senders {
                            refuse(sender);
                        }
                    }
                    Command::Abort(_) | Command::Wake => {}
                }
            }
        };
        Ok(Self::spawn(handle, None, work)?)
    }
}
