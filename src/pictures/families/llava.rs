//! LLaVA: the picture as its tower's own processor makes it, a token for each patch. LLaVA-NeXT and
//! LLaVA-OneVision look at tiles besides.

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
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge: 1,
        resampled: None,
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
    let sizes = vec![[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]];
    any_size(files, processor(files, image)?, sizes, None)
}

/// The processor of LLaVA-OneVision, whose tower is SigLIP's.
pub(super) fn one_vision(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let name = "vision_aspect_ratio";
    let ratio = files.config[name].as_str().unwrap_or("anyres_max_9");
    let tiles = ratio.strip_prefix("anyres_max_").and_then(|tiles| tiles.parse().ok());
    let tiles = tiles.filter(|tiles| (1..=MAX_SIZES).contains(tiles));
    let tiles = tiles.ok_or_else(|| ProcessorError {
        field: name,
        value: ratio.to_owned(),
        bound: "supported are anyres_max_1 to anyres_max_256",
    })?;
    let default = files.image_size(384);
    let part = |part| files.side("size", part, default);
    let whole = Processor {
        patch: files.of_tower("patch_size", 14)?,
        rule: Rule::Stretched { size: [part("height")?, part("width")?] },
        normalization: files.normalization(CLIP)?,
        ..processor(files, image)?
    };
    let lengths = || (1..=6).map(|count| 384 * count);
    let sizes = lengths().flat_map(|height| lengths().map(move |width| [height, width])).collect();
    any_size(files, whole, sizes, Some(tiles))
}

/// The processor of the `whole` picture, with tiles of one of several sizes.
fn any_size(
    files: &Fields<'_>,
    whole: Processor,
    default: Vec<[usize; 2]>,
    tiles: Option<usize>,
) -> Result<Processor, ProcessorError> {
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
        None => Ok(default),
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
    if tile < whole.patch {
        let bound = "must be at least the pixels of a patch";
        return Err(ProcessorError { field: "size", value: tile.to_string(), bound });
    }
    Ok(Processor { rule: Rule::AnySize { sizes, tile, tiles }, ..whole })
}
