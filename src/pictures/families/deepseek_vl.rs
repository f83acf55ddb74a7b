//! DeepSeek-VL (1.3B) and Janus: the picture in the middle of a square of its mean colour, a token for each patch.

use crate::pictures::fields::{CLIP, Fields};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let patch = files.of_tower("patch_size", 16)?;
    let [side, width] = [files.side("size", "height", 384)?, files.side("size", "width", 384)?];
    if side != width || !side.is_multiple_of(patch) {
        let bound = "must be a square of whole patches";
        return Err(ProcessorError { field: "size", value: format!("{side} x {width}"), bound });
    }
    if files.is_off("do_pad") {
        let (field, value) = ("do_pad", "false".to_owned());
        return Err(ProcessorError { field, value, bound: "supported is true" });
    }
    let smallest = files.size("min_size", 14)?;
    if smallest > side {
        let bound = "must be at most `size`";
        return Err(ProcessorError { field: "min_size", value: smallest.to_string(), bound });
    }
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge: 1,
        resampled: None,
        rule: Rule::Squared { side, smallest, colour: files.mean_colour(CLIP)? },
        wording: Wording::default(),
        two_way: false,
        normalization: files.normalization(CLIP)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

/// The processor of Janus, which marks where pictures begin and end.
pub(super) fn janus(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let wording = Wording {
        begin: vec![Word::Text("<begin_of_image>")],
        end: vec![Word::Text("<end_of_image>")],
        ..Wording::default()
    };
    Ok(Processor { wording, ..processor(files, image)? })
}
