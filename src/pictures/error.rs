//! Why a picture can't be looked at.

/// Why a picture can't be looked at; the text is for the client that sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The bytes are of another format than those that are read.
    #[error("the picture is no PNG, JPEG, WebP or GIF file")]
    Format,
    /// The file is damaged or cut off.
    #[error("the picture can't be decoded: {0}")]
    Damaged(String),
    /// The picture has more pixels than are decoded.
    #[error(
        "the picture has {width} x {height} pixels; at most {} a side and {} in all are read",
        super::bounds::MAX_SIDE,
        super::bounds::MAX_PIXELS
    )]
    TooLarge {
        /// Pixels in a row.
        width: u32,
        /// Rows of pixels.
        height: u32,
    },
    /// The picture is far longer than wide, or the other way round.
    #[error(
        "the picture has {width} x {height} pixels; one side may be at most {most} times the other"
    )]
    TooLong {
        /// Pixels in a row.
        width: u32,
        /// Rows of pixels.
        height: u32,
        /// The largest ratio of the sides.
        most: u32,
    },
}
