//! GLM-4.1V, 4.5V and 4.6V: Qwen's rule, where a picture counts as the two frames of a video.

use super::qwen;
use crate::pictures::fields::Fields;
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::views::Rule;
use crate::pictures::wording::Wording;

/// Fewest and most pixels of the published models.
const PIXELS: [usize; 2] = [112 * 112, 28 * 28 * 15_000];

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let pixels = qwen::pixels(files, PIXELS)?;
    let around = ["<|begin_of_image|>", "<|end_of_image|>"];
    Ok(Processor {
        rule: Rule::SmartFrames { pixels },
        wording: Wording { around, ..Wording::default() },
        ..qwen::processor(files, image)?
    })
}
