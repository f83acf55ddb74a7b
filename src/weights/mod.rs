//! Files to tensors: Hugging Face folders, hub ids, GGUF files, the embedded demo.
//!
//! A model asks for tensors by their Hugging Face names and states the shape it expects; it never
//! learns which format they came from. [`ModelSource`](source::ModelSource) is everything one
//! model is loaded from, as plain data: configuration, tokenizer, chat template, tensors.
//!
//! ```text
//! model_ref      what the user typed -> folder, GGUF file or hub id
//! source         ModelSource: opened from any of them
//! folder         files by name: on disk, or embedded in the binary
//! file_bytes     one file's bytes, memory-mapped
//! python_json    JSON with infinite numbers
//! chat_template  which of the files holds the chat template
//! safetensors    Hugging Face tensors: one file or shards
//! compressed     the same, quantized by other software
//! gguf           GGUF tensors under Hugging Face names, metadata in Hugging Face words
//! lora           an adapter's folder
//! hub            the download into the shared cache
//! cut            parts of tensors, seen as wholes
//! digest         what tells one checkpoint from another
//! drafter_files  what drafters have beside their checkpoints
//! finite         whether stored numbers can be weights
//! made_up        numbers in the place of those that were not fetched
//! parametrized   matrices that have adapters for tasks beside them
//! published_names  tensors that a model's checkpoints have under several names
//! renamed        the tensors of a source under other names
//! sentence_modules  what a sentence-transformers folder says of its modules
//! stored         StoredTensor: one tensor's bytes, where the file has them
//! progress       how much is loaded
//! projector      which file has the tower of a GGUF model
//! task_adapters  which adapters a model's own folder has for tasks
//! tensors        Weights: the view that models load from
//! token_heads    two layers of BGE-M3, the only weights that are read from pickles
//! ```

mod chat_template;
pub mod compressed;
pub mod cut;
mod digest;
mod drafter_files;
pub mod error;
mod file_bytes;
mod finite;
mod folder;
pub mod gguf;
pub mod hub;
pub mod lora;
mod made_up;
pub mod model_ref;
mod parametrized;
pub mod progress;
pub mod projector;
mod published_names;
mod python_json;
mod renamed;
pub mod safetensors;
pub mod sentence_modules;
pub mod source;
pub mod stored;
pub mod tally;
pub mod task_adapters;
pub mod tensors;
pub mod token_heads;
mod with_head;

pub use error::{Loaded, WeightError};
pub use stored::StoredTensor;
pub use tensors::{MemoryTensors, TensorSource, Weights};
