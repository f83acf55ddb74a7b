//! Mistral 3 and Pixtral: a grid that follows the picture's size, with a token behind each row of it.

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// The processor of Mistral 3, which makes a token of several patches.
pub(super) fn mistral3(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let merge = files.own("spatial_merge_size", 2)?;
    Ok(Processor { merge, ..processor(files, image)? })
}

/// The processor of LightOnOCR, in which rows of tokens follow each other.
pub(super) fn lighton(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    Ok(Processor { wording: Wording::default(), ..mistral3(files, image)? })
}

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch: files.of_tower("patch_size", 16)?,
        merge: 1,
        resampled: None,
        rule: Rule::Within { longest: files.side("size", "longest_edge", 1024)? },
        wording: Wording {
            between_rows: vec![Word::Text("[IMG_BREAK]")],
            end: vec![Word::Text("[IMG_END]")],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
