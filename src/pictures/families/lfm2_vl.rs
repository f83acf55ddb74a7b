//! LFM2-VL: a grid of tokens that follows the picture's size, and named tiles of pictures that are larger.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most tiles that a file may ask for.
const MAX_TILES: usize = 256;

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pixels are far below 2^52, and numbers below 0 become 0"
)]
pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let (patch, merge) = (files.of_tower("patch_size", 16)?, files.own("downsample_factor", 2)?);
    let side = patch * merge;
    let number = |field: &'static str, default: u64, most: usize| {
        let given = files.fields[field].as_u64().unwrap_or(default);
        let bound = "must be at least 1, and not that large";
        let known = usize::try_from(given).ok().filter(|number| (1..=most).contains(number));
        known.ok_or_else(|| ProcessorError { field, value: given.to_string(), bound })
    };
    let least = number("min_image_tokens", 64, 1 << 16)?;
    let most = number("max_image_tokens", 256, 1 << 16)?;
    let tile = number("tile_size", 512, 1 << 13)?;
    if !tile.is_multiple_of(side) {
        let bound = "must be a multiple of the pixels of a token";
        return Err(ProcessorError { field: "tile_size", value: tile.to_string(), bound });
    }
    let splits = !files.is_off("do_image_splitting");
    let count = [number("min_tiles", 2, MAX_TILES)?, number("max_tiles", 10, MAX_TILES)?];
    let tolerance = files.fields["max_pixels_tolerance"].as_f64().unwrap_or(2.0);
    let text = Word::Text;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge,
        resampled: None,
        rule: Rule::SmartOrCanvas {
            pixels: [least, most].map(|tokens| tokens * side * side),
            most: ((most * side * side) as f64 * tolerance) as usize,
            smallest: patch,
            tile,
            count: if splits { count } else { [1, 1] },
            thumbnail: !files.is_off("use_thumbnail"),
        },
        wording: Wording {
            begin: vec![text("<|image_start|>")],
            before_tile: vec![
                text("<|img_row_"),
                Word::Row,
                text("_col_"),
                Word::Column,
                text("|>"),
            ],
            before_whole: vec![text("<|img_thumbnail|>")],
            end: vec![text("<|image_end|>")],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bilinear)?,
    })
}
