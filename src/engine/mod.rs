//! The engine: one OS thread that owns everything mutable, behind a cloneable handle.
//!
//! [`startup`] makes an engine of a model's files. A request goes through [`EngineHandle`] as a
//! [`Command`] to the engine thread, which answers with a stream of
//! [`EngineOutput`](output::EngineOutput); dropping the stream aborts the request. The thread runs
//! `core` for models that continue texts, and `encoder` for those that only embed.
//!
//! The engine works without HTTP, here with the embedded demo model:
//!
//! ```
//! use std::sync::Arc;
//!
//! use sconce::config::EngineConfig;
//! use sconce::engine::output::EngineOutput;
//! use sconce::engine::request::{EngineRequest, RequestId};
//! use sconce::engine::startup::Loaded;
//! use sconce::sampling::params::SamplingParams;
//! use sconce::scheduler::stop::StopConditions;
//! use sconce::weights::source::ModelSource;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let source = ModelSource::embedded("demo", sconce::demo::files())?;
//! let config = EngineConfig { max_model_len: Some(64), ..EngineConfig::default() };
//! let loaded = Loaded::load(&source, &config, Arc::new(|_, _| {}), None)?;
//! let engine = loaded.start(&config, sconce::metrics::install("demo"))?;
//!
//! let mut outputs = engine.handle.submit(EngineRequest {
//!     id: RequestId::next(),
//!     prompt_token_ids: vec![1, 2, 3],
//!     sampling: SamplingParams { temperature: 0.0, ..SamplingParams::default() },
//!     stop: StopConditions {
//!         max_tokens: 4,
//!         min_tokens: 0,
//!         eos_token_ids: Arc::from([]),
//!         stop_token_ids: Vec::new(),
//!         ignore_eos: true,
//!     },
//!     prediction: None,
//!     max_drafts: None,
//!     prompt_logprobs: None,
//!     priority: 0,
//!     share: 0,
//!     cache_salt: None,
//!     adapter: None,
//!     pictures: Vec::new(),
//!     sounds: Vec::new(),
//! });
//! let token_ids = tokio::runtime::Runtime::new()?.block_on(async {
//!     let mut token_ids = Vec::new();
//!     while let Some(output) = outputs.next().await {
//!         if let EngineOutput::Token { token_id, .. } = output {
//!             token_ids.push(token_id);
//!         }
//!     }
//!     token_ids
//! });
//! assert_eq!(token_ids.len(), 4);
//! # Ok(())
//! # }
//! ```

pub mod adapter;
mod command;
mod core;
mod encoder;
mod handle;
mod limits;
pub mod memory;
pub mod output;
mod pace;
pub mod request;
pub mod startup;
mod timeline;

pub use command::Command;
pub use handle::{EngineHandle, EngineHealth};
pub use limits::{EngineLimits, Outputs, normalize};

#[cfg(test)]
mod tests;
