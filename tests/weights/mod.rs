//! Loading models: whole ones read back equal, broken ones are refused in words, none panics.

mod checkpoint;
mod gguf;
mod gguf_file;
mod safetensors;
