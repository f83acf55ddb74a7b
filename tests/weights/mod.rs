//! Loading models: whole ones read back equal, broken ones are refused in words, none panics.

mod checkpoint;
#[cfg(feature = "hub")]
mod fake_hub;
mod gguf;
mod gguf_file;
#[cfg(feature = "hub")]
mod hub;
mod safetensors;
