//! LLaVA: the picture as its tower's own processor makes it, a token for each patch. LLaVA-NeXT looks at
//! tiles besides.

use serde::Deserialize as _;

use super::pixtral;
use crate::pictures::fields::{CLIP, Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let kind = files.vision()["model_type"].as_str();
    if kind == Some("pixtral") {
        return pixtral::processor(files, image);
    }
    let siglip = kind == Some("siglip_vision_model");
    let patch = files.of_tower("patch_size", if siglip { 16 } else { 14 })?;
    let default = files.image_size(if siglip { 224 } else { 336 });
    let (rule, numbers) = if files.fields["size"].get("shortest_edge").is_some() {
        let part = |part| files.side("crop_size", part, default);
        let size = [part("height")?, part("width")?];
        let shortest = files.side("size", "shortest_edge", default)?;
        if shortest < size[0].max(size[1]) {
            let bound = "must be at least `crop_size`";
            return Err(ProcessorError { field: "size", value: shortest.to_string(), bound });
        }
        (Rule::Cropped { shortest, size }, CLIP)
    } else {
        let part = |part| files.side("size", part, default);
        let size = [part("height")?, part("width")?];
        (Rule::Stretched { size }, if siglip { STANDARD } else { CLIP })
    };
    Ok(Processor {
        image_token_id: image,
        placeholder: Word::Token(image),
        patch,
        merge: 1,
        rule,
        wording: Wording::default(),
        two_way: false,
        normalization: files.normalization(numbers)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

/// Most sizes that a file may choose from.
const MAX_SIZES: usize = 256;

pub(super) fn next(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let whole = processor(files, image)?;
    let tile = match whole.rule {
        Rule::Cropped { shortest, size } if size == [shortest; 2] => shortest,
        Rule::Stretched { size: [height, width] } if height == width => height,
        rule => {
            let bound = "must be a square, cut from a square";
            return Err(ProcessorError { field: "size", value: format!("{rule:?}"), bound });
        }
    };
    let name = "image_grid_pinpoints";
    let given = files.fields.get(name).or(files.config.get(name));
    let sizes = match given {
        None => Ok(vec![[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]),
        Some(sizes) => Vec::<[usize; 2]>::deserialize(sizes),
    };
    let refused = || {
        let bound = "must be sizes of whole tiles, of 8192 pixels a side at most";
        let value = given.map_or_else(String::new, ToString::to_string);
        ProcessorError { field: name, value, bound }
    };
    let sizes = sizes.map_err(|_| refused())?;
    let fits = |side: &usize| (tile..=1 << 13).contains(side) && side.is_multiple_of(tile);
    if sizes.is_empty() || sizes.len() > MAX_SIZES || !sizes.iter().flatten().all(fits) {
        return Err(refused());
    }
    if !tile.is_multiple_of(whole.patch) {
        let bound = "must be a multiple of the pixels of a patch";
        return Err(ProcessorError { field: "size", value: tile.to_string(), bound });
    }
    Ok(Processor { rule: Rule::AnySize { sizes, tile }, ..whole })
}
