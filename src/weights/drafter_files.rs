//! Names of files that drafters have beside their checkpoints.

/// The embedding of the mask of a drafter of blocks, in PyTorch's format.
pub(crate) const MASK_EMBEDDING: &str = "mask_embedding.pt";
