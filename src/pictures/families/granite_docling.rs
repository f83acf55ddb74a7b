//! Granite Docling: a page as a grid of square tiles, each named by its row and column, and the whole behind them
//! if there are several.

use super::internvl::tiles;
use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::{Dense, Rule};
use crate::pictures::wording::{Word, Wording};

/// Most tiles of a side, which have names.
const LONGEST: usize = 16;

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    // The finer way has other weights.
    files.only_off("fine_route")?;
    let (patch, merge) = (files.of_tower("patch_size", 16)?, files.of_tower("scale_factor", 4)?);
    let default = files.image_size(512);
    let [tile, width] =
        [files.side("size", "height", default)?, files.side("size", "width", default)?];
    if tile != width || !tile.is_multiple_of(patch * merge) {
        let bound = "must be a square of whole tokens";
        return Err(ProcessorError { field: "size", value: format!("{tile} x {width}"), bound });
    }
    let splits = !files.is_off("crop_to_patches");
    let count = [tiles(files, "min_patches", 1)?, tiles(files, "max_patches", 32)?];
    let splits = splits && count[1] > 1;
    let text = Word::Text;
    let around = text("<fake_token_around_image>");
    let own = [around, text("<row_"), Word::Row, text("_col_"), Word::Column, text(">")];
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge,
        resampled: None,
        rule: Rule::Pages {
            tile: [tile; 2],
            count: if splits { count } else { [1, 1] },
            longest: LONGEST,
            dense: if splits { dense(files)? } else { None },
        },
        wording: Wording {
            before_tile: own.to_vec(),
            after_tiles: vec![text("\n")],
            before_whole: vec![text("\n"), around, text("<global-img>")],
            after_whole: vec![around],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

/// Which pages may have more tiles.
fn dense(files: &Fields<'_>) -> Result<Option<Dense>, ProcessorError> {
    if files.fields["dense_max_patches"].as_u64().unwrap_or(0) == 0 {
        return Ok(None);
    }
    let number = |field: &str| files.fields[field].as_f64().unwrap_or(0.0);
    Ok(Some(Dense {
        most: tiles(files, "dense_max_patches", 1)?,
        scale: number("dense_max_scale"),
        ratios: [number("dense_min_aspect"), number("dense_max_aspect")],
    }))
}
