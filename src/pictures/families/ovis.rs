//! Ovis 2: the whole picture and, if that is large, a grid of tiles; marks around them are seen as words of the
//! tower's own vocabulary.

use serde_json::Value;

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Ids of the marks by default: begin, behind the whole, between columns, between rows, end.
const MARKS: [u32; 5] = [151_666, 151_667, 151_668, 151_669, 151_670];

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let (patch, merge) = (files.of_tower("patch_size", 14)?, files.of_tower("hidden_stride", 1)?);
    let default = files.image_size(224);
    let [tile, width] =
        [files.side("size", "height", default)?, files.side("size", "width", default)?];
    if tile != width || !tile.is_multiple_of(patch * merge) {
        let bound = "must be a square of whole tokens";
        return Err(ProcessorError { field: "size", value: format!("{tile} x {width}"), bound });
    }
    let [begin, whole, column, row, end] = marks(files)?;
    let count = [
        super::internvl::tiles(files, "min_patches", 1)?,
        super::internvl::tiles(files, "max_patches", 12)?,
    ];
    let is_on = |field: &str, default| files.fields[field].as_bool().unwrap_or(default);
    let rule = if !is_on("crop_to_patches", false) {
        Rule::Stretched { size: [tile; 2] }
    } else if is_on("use_covering_area_grid", true) {
        Rule::Covering { tile, most: count[1] }
    } else {
        Rule::Canvas { tile: [tile; 2], count }
    };
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Text("<image>"),
        patch,
        merge,
        resampled: None,
        rule,
        wording: Wording {
            begin: vec![begin],
            whole_first: true,
            after_whole: vec![whole],
            between_tiles: vec![column],
            between_tile_rows: vec![row],
            end: vec![end],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

/// The marks, each with features of its own.
fn marks(files: &Fields<'_>) -> Result<[Word; 5], ProcessorError> {
    let name = "visual_indicator_token_ids";
    let ids = match &files.config[name] {
        Value::Null => Some(MARKS),
        given => given.as_array().and_then(|ids| {
            let ids = ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
            ids.collect::<Option<Vec<u32>>>()?.try_into().ok()
        }),
    };
    let ids = ids.ok_or_else(|| ProcessorError {
        field: name,
        value: files.config[name].to_string(),
        bound: "must be five token ids",
    })?;
    Ok([0, 1, 2, 3, 4].map(|index| Word::Mark(index, ids[index])))
}
