//! Gemma 3: one size for all pictures, a fixed number of tokens that see each other both ways. PaliGemma: a token
//! of each patch.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Tokens of a picture by default.
const TOKENS: u64 = 256;

pub(super) fn pali(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let default = files.image_size(224);
    let size = [files.side("size", "height", default)?, files.side("size", "width", default)?];
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch: files.of_tower("patch_size", 14)?,
        merge: 1,
        resampled: None,
        rule: Rule::Stretched { size },
        wording: Wording::default(),
        // Like all of the prompt.
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    files.only_off("do_pan_and_scan")?;
    let patch = files.size("patch_size", 14)?;
    let default = files.image_size(896);
    let size = [files.side("size", "height", default)?, files.side("size", "width", default)?];
    let tokens = files.config["mm_tokens_per_image"].as_u64().unwrap_or(TOKENS);
    let across = usize::try_from(tokens.isqrt()).unwrap_or(0);
    let grid = size[0] / patch;
    let fits = size == [grid * patch; 2] && across > 0 && grid.is_multiple_of(across);
    if !fits || (across * across) as u64 != tokens {
        let bound = "must be a square number of tokens, of whole patches each, in a square picture";
        return Err(ProcessorError {
            field: "mm_tokens_per_image",
            value: tokens.to_string(),
            bound,
        });
    }
    let mark = |names, default: u32| files.token(names).map(|id| id.unwrap_or(default));
    let begin = mark(["boi_token_index", "boi_token_id"], 255_999)?;
    let end = mark(["eoi_token_index", "eoi_token_id"], 256_000)?;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(begin),
        patch,
        merge: grid / across,
        resampled: None,
        rule: Rule::Stretched { size },
        wording: Wording {
            begin: vec![Word::Text("\n\n"), Word::Token(begin)],
            end: vec![Word::Token(end), Word::Text("\n\n")],
            ..Wording::default()
        },
        two_way: true,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bilinear)?,
    })
}
