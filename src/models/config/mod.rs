//! A checkpoint's `config.json`: parsed, checked, with the defaults of the transformers library.
//!
//! It answers what the file says; which default belongs to an absent field is up to the
//! architecture, so those fields are options here.

mod hf_config;
mod raw_fields;
mod rope;
mod rope_parameters;

pub(super) use hf_config::MAX_SIZE;
pub use hf_config::{HfConfig, TokenIds};
pub(super) use raw_fields::{Completion, RawFields};
pub(super) use rope::RopeDefaults;
pub use rope_parameters::RopeParameters;
