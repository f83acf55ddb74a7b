//! Loading models: whole ones read back equal, broken ones are refused in words, none panics.

#![expect(
    clippy::unwrap_used,
    reason = "outside of test functions too: what fails, fails the test"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "sizes of test files are small"
)]

mod checkpoint;
#[cfg(feature = "hub")]
mod fake_hub;
mod forecast;
mod gguf;
mod gguf_architectures;
pub(crate) mod gguf_file;
#[cfg(feature = "hub")]
mod hub;
mod lora;
mod safetensors;
