//! Idefics 3, SmolVLM and SmolVLM2: square tiles, each named by its row and column, and the whole
//! picture as one more.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let (patch, merge) = (files.of_tower("patch_size", 32)?, files.own("scale_factor", 2)?);
    let tile = files.side("max_image_size", "longest_edge", 364)?;
    if !tile.is_multiple_of(patch * merge) {
        let bound = "must be a multiple of the pixels of a token";
        return Err(ProcessorError { field: "max_image_size", value: tile.to_string(), bound });
    }
    let text = Word::Text;
    let whole = [text("<fake_token_around_image>"), text("<global-img>")];
    let own = [text("<fake_token_around_image><row_"), Word::Row, text("_col_"), Word::Column];
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge,
        resampled: None,
        rule: Rule::Split {
            longest: files.side("size", "longest_edge", 4 * 364)?,
            tile,
            splits: !files.is_off("do_image_splitting"),
        },
        wording: Wording {
            before_tile: [&own[..], &[text(">")]].concat(),
            after_tiles: vec![text("\n")],
            before_whole: [&[text("\n")], &whole[..]].concat(),
            before_alone: whole.to_vec(),
            end: vec![text("<fake_token_around_image>")],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Lanczos)?,
    })
}
