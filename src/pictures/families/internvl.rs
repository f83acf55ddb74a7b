//! InternVL 3 and 3.5: a grid of tiles whose ratio is the picture's, and the whole picture as one more.

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most tiles that a file may ask for.
const MAX_TILES: usize = 256;

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let patch = files.of_tower("patch_size", 14)?;
    let default = files.image_size(448);
    let tile = [files.side("size", "height", default)?, files.side("size", "width", default)?];
    let ratio = files.config["downsample_ratio"].as_f64().unwrap_or(0.5);
    let merge = [1.0, 2.0, 4.0].iter().position(|side| (ratio * side - 1.0).abs() < 1e-9);
    let merge = merge.map_or(1, |power| 1 << power);
    if tile.iter().any(|side| !side.is_multiple_of(patch * merge)) {
        let bound = "must be a multiple of the pixels of a token";
        return Err(ProcessorError { field: "size", value: format!("{tile:?}"), bound });
    }
    let count = |field, default| {
        let given = files.fields[field].as_u64().unwrap_or(default);
        usize::try_from(given).ok().filter(|count| (1..=MAX_TILES).contains(count)).ok_or_else(
            || ProcessorError { field, value: given.to_string(), bound: "1 to 256 is possible" },
        )
    };
    Ok(Processor {
        image_token_id: image,
        placeholder: Word::Token(image),
        patch,
        merge,
        rule: Rule::Canvas { tile, count: [count("min_patches", 1)?, count("max_patches", 12)?] },
        wording: Wording {
            begin: vec![Word::Text("<img>")],
            end: vec![Word::Text("</img>")],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
