//! What an encoder reads.

/// A text, or two that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The tokens of all of it.
    pub token_ids: &'a [u32],
    /// Where the second of two texts begins.
    pub second: Option<usize>,
}
