//! Qwen2-VL and its successors: a grid of tokens that follows the picture's size.

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Fewest and most pixels, by old or by new names.
pub(super) fn pixels(
    files: &Fields<'_>,
    [least, most]: [usize; 2],
) -> Result<[usize; 2], ProcessorError> {
    let (fields, size) = (files.fields, &files.fields["size"]);
    let bound = |old: &str, new: &str, default: usize| {
        let given = fields[old].as_u64().or(size[new].as_u64()).or(size[old].as_u64());
        given.and_then(|given| usize::try_from(given).ok()).unwrap_or(default)
    };
    let pixels =
        [bound("min_pixels", "shortest_edge", least), bound("max_pixels", "longest_edge", most)];
    if pixels[0] > pixels[1] || pixels[1] == 0 {
        let (field, bound) = ("size", "the most pixels must be at least the fewest");
        return Err(ProcessorError { field, value: format!("{pixels:?}"), bound });
    }
    Ok(pixels)
}

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let fields = files.fields;
    let merge =
        if fields.get("merge_size").is_some() { "merge_size" } else { "spatial_merge_size" };
    let pixels = pixels(files, [56 * 56, 28 * 28 * 1280])?;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch: files.size("patch_size", 14)?,
        merge: files.size(merge, 2)?,
        resampled: None,
        rule: Rule::Smart { pixels },
        wording: Wording { around: ["<|vision_start|>", "<|vision_end|>"], ..Wording::default() },
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

/// The processor of Qwen2.5-Omni, whose marks around pictures have other names.
pub(super) fn omni(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let around = ["<|vision_bos|>", "<|vision_eos|>"];
    let wording = Wording { around, ..Wording::default() };
    Ok(Processor { wording, ..processor(files, image)? })
}
