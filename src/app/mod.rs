//! The assembly of the application: from the model that a user chose to what `http` serves.
//!
//! ```text
//! choice -> files -> tokenizer, templates, sampling defaults   beside   weights -> adapters -> engine
//!                    \______________________ RunningModel ______________________________________/
//!                                                 -> http::state::ServerParts
//! ```
//!
//! Knows every room below `cli`, and no command line but the names of flags in its errors.

pub mod adapters;
pub mod choice;
pub mod convert;
mod draft;
pub mod generation_config;
mod late_interaction;
pub mod local;
pub mod model;
pub mod nodes;
pub mod plan;
mod progress;
pub mod ranks;
pub mod speech;
mod templates;
mod tokenizer;
