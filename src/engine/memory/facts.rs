//! What is measured before memory is divided.

/// What a memory plan starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFacts {
    /// Bytes of one KV block over all layers.
    pub block_bytes: usize,
    /// Bytes of the recurrent states of one sequence.
    pub state_bytes: usize,
    /// Bytes of the weights.
    pub weight_bytes: usize,
    /// Bytes free now that the weights are loaded.
    pub free_bytes: usize,
    /// All bytes of a device that has memory of its own.
    pub own_bytes: Option<usize>,
    /// The context length that the checkpoint declares.
    pub model_context: usize,
    /// What a draft model beside the model takes.
    pub draft: Option<DraftFacts>,
}

/// What a draft model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftFacts {
    /// Bytes of its weights.
    pub weight_bytes: usize,
    /// Bytes of its part of one KV block, which the block's bytes have in them.
    pub block_bytes: usize,
}
