//! PerceptionLM: the whole picture as a tile, and the grid of tiles in which it becomes largest.

use super::internvl::tiles;
use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let args = Fields { fields: &files.vision()["model_args"], config: files.config };
    let (patch, merge) = (args.size("patch_size", 14)?, files.own("projector_pooling_ratio", 1)?);
    let tile = files.square("tile_size", 448)?;
    if !tile.is_multiple_of(patch * merge) {
        let bound = "must be a multiple of the pixels of a token";
        return Err(ProcessorError { field: "tile_size", value: tile.to_string(), bound });
    }
    let name = "vision_input_type";
    let most = match files.fields[name].as_str().unwrap_or("thumb+tile") {
        "thumb+tile" => tiles(files, "max_num_tiles", 36)?,
        "vanilla" => 0,
        other => {
            let bound = "supported are thumb+tile and vanilla";
            return Err(ProcessorError { field: name, value: other.to_owned(), bound });
        }
    };
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge,
        resampled: None,
        rule: Rule::Fitting { tile, most },
        wording: Wording { whole_first: true, ..Wording::default() },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
