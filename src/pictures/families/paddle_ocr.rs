//! PaddleOCR-VL: Qwen's rule, where a picture that is shorter than a token is enlarged first.

use super::qwen;
use crate::pictures::fields::Fields;
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::views::Rule;
use crate::pictures::wording::Wording;

/// Fewest and most pixels by default.
const PIXELS: [usize; 2] = [384 * 384, 1536 * 1536];

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let pixels = qwen::pixels(files, PIXELS)?;
    let around = ["<|IMAGE_START|>", "<|IMAGE_END|>"];
    Ok(Processor {
        rule: Rule::SmartEnlarged { pixels },
        wording: Wording { around, ..Wording::default() },
        ..qwen::processor(files, image)?
    })
}
