//! InternVL 3 and 3.5: a grid of tiles whose ratio is the picture's, and the whole picture as one more.

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most tiles that a file may ask for.
const MAX_TILES: usize = 256;
/// Mean and standard deviation of the pixels of ImageNet.
const IMAGENET: [[f64; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let default = files.image_size(448);
    let tile = [files.side("size", "height", default)?, files.side("size", "width", default)?];
    let count = [tiles(files, "min_patches", 1)?, tiles(files, "max_patches", 12)?];
    with(files, Word::Token(image), tile, count)
}

/// The processor of `InternVLChatModel`, the class of checkpoints with code of their own.
pub(super) fn chat(files: &Fields<'_>) -> Result<Processor, ProcessorError> {
    let side = files.own_side("force_image_size", files.image_size(448))?;
    let count = [files.own("min_dynamic_patch", 1)?, files.own("max_dynamic_patch", 6)?];
    let is_on = |field: &str| files.config[field].as_bool() == Some(true);
    let dynamic = is_on("dynamic_image_size");
    if dynamic && !is_on("use_thumbnail") {
        let (field, value) = ("use_thumbnail", "false".to_owned());
        return Err(ProcessorError { field, value, bound: "supported is true, beside tiles" });
    }
    let count = if dynamic { count } else { [1, 1] };
    let own = with(files, Word::Text("<IMG_CONTEXT>"), [side; 2], count)?;
    let normalization = files.normalization(IMAGENET)?;
    Ok(Processor { placeholder: Word::Text("<image>"), normalization, ..own })
}

fn with(
    files: &Fields<'_>,
    token: Word,
    tile: [usize; 2],
    count: [usize; 2],
) -> Result<Processor, ProcessorError> {
    let patch = files.of_tower("patch_size", 14)?;
    let ratio = files.config["downsample_ratio"].as_f64().unwrap_or(0.5);
    let merge = [1.0, 2.0, 4.0].iter().position(|side| (ratio * side - 1.0).abs() < 1e-9);
    let merge = merge.map_or(1, |power| 1 << power);
    if tile.iter().any(|side| !side.is_multiple_of(patch * merge)) {
        let bound = "must be a multiple of the pixels of a token";
        return Err(ProcessorError { field: "size", value: format!("{tile:?}"), bound });
    }
    Ok(Processor {
        image_token: token,
        placeholder: token,
        patch,
        merge,
        resampled: None,
        rule: Rule::Canvas { tile, count },
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

/// A number of tiles.
pub(super) fn tiles(
    files: &Fields<'_>,
    field: &'static str,
    default: u64,
) -> Result<usize, ProcessorError> {
    let given = files.fields[field].as_u64().unwrap_or(default);
    let known = usize::try_from(given).ok().filter(|count| (1..=MAX_TILES).contains(count));
    let bound = "1 to 256 is possible";
    known.ok_or_else(|| ProcessorError { field, value: given.to_string(), bound })
}
