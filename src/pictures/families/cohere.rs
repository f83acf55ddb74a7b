//! Command A Vision and Aya Vision: a grid of square tiles and the whole picture as one more, of which
//! Command A Vision ends each with a token and Aya Vision begins each with its number.

use super::internvl::tiles;
use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

const BEGIN: Word = Word::Text("<|START_OF_IMG|>");
const END: Word = Word::Text("<|END_OF_IMG|>");
const LINE_BREAK: Word = Word::Text("<|IMG_LINE_BREAK|>");

/// The processor of Command A Vision.
pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let (tile, most) = (tile(files, 512)?, tiles(files, "max_patches", 12)?);
    let most = if files.is_off("crop_to_patches") { 1 } else { most };
    with(
        files,
        image,
        Rule::Covered { tile, most },
        Wording {
            begin: vec![BEGIN],
            between_tiles: vec![LINE_BREAK],
            after_tiles: vec![LINE_BREAK],
            end: vec![LINE_BREAK, END],
            ..Wording::default()
        },
    )
}

/// The processor of Aya Vision.
pub(super) fn aya(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let count = |field, default| tiles(files, field, default);
    let count = [count("min_patches", 1)?, count("max_patches", 12)?];
    let (tile, whole) = (tile(files, 364)?, vec![Word::Text("TILE_GLOBAL")]);
    let own = with(
        files,
        image,
        Rule::Canvas { tile: [tile; 2], count },
        Wording {
            begin: vec![BEGIN],
            before_tile: vec![Word::Text("TILE_"), Word::Number],
            before_whole: whole.clone(),
            before_alone: whole,
            end: vec![END],
            ..Wording::default()
        },
    )?;
    Ok(Processor { placeholder: Word::Text("<image>"), ..own })
}

/// Pixels of a side of a tile: whole tokens.
fn tile(files: &Fields<'_>, default: u64) -> Result<usize, ProcessorError> {
    let [height, width] =
        [files.side("size", "height", default)?, files.side("size", "width", default)?];
    let token = files.of_tower("patch_size", 14)? * files.own("downsample_factor", 2)?;
    if height != width || !height.is_multiple_of(token) {
        let bound = "must be a square of whole tokens";
        return Err(ProcessorError { field: "size", value: format!("{height} x {width}"), bound });
    }
    Ok(height)
}

fn with(
    files: &Fields<'_>,
    image: u32,
    rule: Rule,
    wording: Wording,
) -> Result<Processor, ProcessorError> {
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch: files.of_tower("patch_size", 14)?,
        merge: files.own("downsample_factor", 2)?,
        resampled: None,
        rule,
        wording,
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
