//! How large a picture may be that is decoded.

/// Most pixels in a row, and most rows.
pub const MAX_SIDE: u32 = 16_384;
/// Most pixels of a picture: a little more than 8K video has.
pub const MAX_PIXELS: u64 = 1 << 25;
