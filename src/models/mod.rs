//! The models: one decoder, one small file per architecture, one table; and one encoder.
//!
//! An architecture is a row of a table and a pure function from `config.json` to a
//! [`DecoderSpec`](decoder::DecoderSpec). Nothing outside of the table matches on its name.
//!
//! ```text
//! registry          class name -> spec -> loaded model
//! architectures/    one file per architecture, each with its rows of the table
//! common/           the spec that they start from, and parts that several of them share
//! config/           config.json, parsed and checked
//! decoder/          the transformer that a spec describes  | encoder/ | vision/ | audio/
//! bidirectional     decoders that read whole texts, as encoders do
//! top               what a class has on top of its network | classifier: from there to classes
//! drafters          what drafts for a model, and is made of its layers' outputs
//! causal_lm         the interface to the runner            | adapter | error
//! ```
//!
//! # How to add an architecture
//!
//! 1. `src/models/architectures/<name>.rs`: a `spec` that starts from `base` and changes what
//!    differs, and `CLASSES` with the class names of its files. A class whose files name sizes
//!    differently has a `complete` too.
//! 2. `src/models/architectures/mod.rs`: `mod <name>;` and `<name>::CLASSES`.
//! 3. `tests/fixtures/make_parity.py`: a small random checkpoint of the class, and what transformers
//!    computes with it; `tests/parity/mod.rs`: its folder in `MODELS`.
//! 4. `src/weights/gguf/architectures.rs`: its names in GGUF files, if llama.cpp converts it.
//! 5. `src/guide/models.md`: `SCONCE_UPDATE_README=1 cargo test --test main readme` writes the table.
//!
//! If it computes what no other one does, that is a field of
//! `DecoderSpec` in `src/models/decoder/spec.rs` named after what it does, never after the model.

mod architectures;
mod causal_lm;
mod common;
mod drafters;
mod error;
mod registry;
mod top;

pub mod adapter;
pub mod audio;
pub mod bidirectional;
pub mod classifier;
pub mod config;
pub mod decoder;
pub mod encoder;
pub mod vision;

#[cfg(test)]
mod tests;

pub use causal_lm::{CausalLm, DraftedBlock, ForwardOutput};
pub use decoder::Stage;
pub(crate) use decoder::at_least_eight_bits;
pub use drafters::{DrafterKind, drafter_config, drafter_kind, load_drafter};
pub use error::ModelError;
pub use registry::{
    WithDraftHead, architectures, embedders, load, load_part, load_stage, load_with_draft_head,
    pools_by_last, spec, spec_on, top,
};
pub use top::Top;
