//! The order in which layers are gone through, as plain data.

/// The layers that hidden states go through, one place after the other. A layer has the same weights at
/// all of its places, and a KV cache for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The places.
    pub places: Vec<Place>,
    /// Name of a vector that is added to the embeddings before the first place; the embeddings are kept
    /// then. `None`: they go on alone, and nothing is kept.
    pub start: Option<&'static str>,
}

/// A place of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the list of layers.
    pub list: &'static str,
    /// Index of the layer in it.
    pub layer: usize,
    /// What is done to hidden states before the layer.
    pub join: Option<Join>,
}

/// How hidden states, normalized by the final norm, are joined with those that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Their sum goes on.
    Add,
    /// Their sum goes on, and they are kept from then on.
    AddThenKeep,
    /// They are kept from then on, and go on twice.
    KeepThenAdd,
}
