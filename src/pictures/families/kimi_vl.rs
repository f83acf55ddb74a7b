//! Kimi-VL and Kimi K2.5: the picture in its own size, reduced if it has too many patches, with black up to whole
//! tokens.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most patches that a file may ask for.
const MAX_PATCHES: u64 = 1 << 16;
/// Most patches of a side, which the tower's first layers know.
const LONGEST: usize = 512;
/// Patches of a side of a token.
const MERGE: usize = 2;

pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let patches = patches(files, "in_token_limit", 4096)?;
    if files.is_off("pad_input") {
        let (field, value) = ("pad_input", "false".to_owned());
        return Err(ProcessorError { field, value, bound: "supported is true" });
    }
    let around = ["<|media_start|>image<|media_content|>", "<|media_end|>"];
    with(files, image, [patches, LONGEST], around)
}

/// The processor of Kimi K2.5, whose fields stand in an object of their own, or have transformers' names.
pub(super) fn k25(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let own = &files.fields["media_proc_cfg"];
    let around = ["<|media_begin|>image<|media_content|>", "<|media_end|>"];
    if !own.is_object() {
        let patches = patches(files, "max_patches", 16_384)?;
        let longest = files.side("size", "max_height", LONGEST as u64)?;
        return with(files, image, [patches, longest], around);
    }
    let files = Fields { fields: own, config: files.config };
    if !own["fixed_output_tokens"].is_null() {
        let (field, value) = ("fixed_output_tokens", own["fixed_output_tokens"].to_string());
        return Err(ProcessorError { field, value, bound: "supported is none" });
    }
    let patches = patches(&files, "in_patch_limit", 16_384)?;
    let longest = files.square("patch_limit_on_one_side", LONGEST as u64)?;
    with(&files, image, [patches, longest], around)
}

/// Most patches.
fn patches(files: &Fields<'_>, field: &'static str, default: u64) -> Result<usize, ProcessorError> {
    let given = files.fields[field].as_u64().unwrap_or(default);
    let most = usize::try_from(given).ok().filter(|most| *most > 0 && given <= MAX_PATCHES);
    let bound = "1 to 65536 is possible";
    most.ok_or_else(|| ProcessorError { field, value: given.to_string(), bound })
}

fn with(
    files: &Fields<'_>,
    image: u32,
    [patches, longest]: [usize; 2],
    around: [&'static str; 2],
) -> Result<Processor, ProcessorError> {
    let patch = files.size("patch_size", 14)?;
    Ok(Processor {
        image_token: Word::Token(image),
        placeholder: Word::Token(image),
        patch,
        merge: MERGE,
        resampled: None,
        rule: Rule::Reduced { patch, patches, longest },
        wording: Wording { around, ..Wording::default() },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
