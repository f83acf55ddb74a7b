//! Names of the files of an adapter's folder.

/// What the adapter says of itself.
pub(crate) const CONFIG: &str = "adapter_config.json";
/// The adapter's matrices.
pub(crate) const TENSORS: &str = "adapter_model.safetensors";
