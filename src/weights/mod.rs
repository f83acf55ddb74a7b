//! Files to tensors: Hugging Face folders, hub ids, GGUF files, the embedded demo.
