//! Llama 4: tiles of the grid that changes a picture's size least, and the whole as one more.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::picture::Normalization;
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most tiles that a file may ask for.
const MAX_TILES: u64 = 256;
/// Patches of a side of a token.
const MERGE: usize = 2;

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let patch = files.of_tower("patch_size", 14)?;
    let tile = files.side("size", "height", 336)?;
    let width = files.side("size", "width", 336)?;
    if tile != width || !tile.is_multiple_of(patch * MERGE) {
        let bound = "must be a square of whole tokens";
        return Err(ProcessorError { field: "size", value: format!("{tile} x {width}"), bound });
    }
    let given = files.fields["max_patches"].as_u64().unwrap_or(16);
    let most = usize::try_from(given).ok().filter(|most| *most > 0 && given <= MAX_TILES);
    let most = most.ok_or_else(|| ProcessorError {
        field: "max_patches",
        value: given.to_string(),
        bound: "1 to 256 is possible",
    })?;
    let enlarges = files.fields["resize_to_max_canvas"].as_bool() == Some(true);
    let text = Word::Text;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: text("<|image|>"),
        patch,
        merge: MERGE,
        resampled: None,
        rule: Rule::Padded { tile, most, enlarges },
        wording: Wording {
            begin: vec![text("<|image_start|>")],
            between_tiles: vec![text("<|tile_x_separator|>")],
            after_tiles: vec![text("<|tile_y_separator|>")],
            before_whole: vec![text("<|image|>")],
            before_alone: vec![text("<|image|>")],
            end: vec![text("<|image_end|>")],
            ..Wording::default()
        },
        two_way: false,
        // As the original implementation computes it.
        normalization: Normalization { narrow: true, ..files.normalization(STANDARD)? },
        kernel: files.kernel(Kernel::Bilinear)?,
    })
}
