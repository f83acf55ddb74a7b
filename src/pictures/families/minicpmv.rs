//! MiniCPM-V: the picture within about a square, and tiles of it if it has more pixels. From 4.6 on the tower
//! merges patches; before, a resampler makes as many tokens of each view.

use crate::pictures::fields::{Fields, STANDARD};
use crate::pictures::processor::{Processor, ProcessorError};
use crate::pictures::resize::Kernel;
use crate::pictures::views::Rule;
use crate::pictures::wording::{Word, Wording};

/// Most tiles that a file may ask for.
const MAX_SLICES: u64 = 256;

/// The processor of MiniCPM-V 4.6.
pub(super) fn processor(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    merging(files, image, "16x", true)
}

/// The processor of MiniCPM-OCR.
pub(super) fn ocr(files: &Fields<'_>, image: u32) -> Result<Processor, ProcessorError> {
    let enlarges = match files.fields["small_image_upsize"].as_str() {
        None | Some("always") => true,
        Some("never") => false,
        Some(other) => {
            let (field, bound) = ("small_image_upsize", "supported are always and never");
            return Err(ProcessorError { field, value: other.to_owned(), bound });
        }
    };
    merging(files, image, "4x", enlarges)
}

fn merging(
    files: &Fields<'_>,
    image: u32,
    mode: &str,
    enlarges: bool,
) -> Result<Processor, ProcessorError> {
    let merge = match files.fields["downsample_mode"].as_str().unwrap_or(mode) {
        "16x" => 4,
        "4x" => 2,
        other => {
            let (field, bound) = ("downsample_mode", "supported are 16x and 4x");
            return Err(ProcessorError { field, value: other.to_owned(), bound });
        }
    };
    let token = Word::Token(image);
    let own = sliced(files, true, enlarges)?;
    Ok(Processor { image_token: token, placeholder: token, merge, ..own })
}

/// The processor of MiniCPM-V 2.6 to 4.5, whose files don't name the token of pictures.
pub(super) fn resampled(files: &Fields<'_>) -> Result<Processor, ProcessorError> {
    let tokens = files.own("query_num", 64)?;
    let own = sliced(files, false, true)?;
    let normalization = files.normalization_named(["norm_mean", "norm_std"], STANDARD)?;
    let placeholder = Word::Text("(<image>./</image>)");
    Ok(Processor { placeholder, resampled: Some(tokens), normalization, ..own })
}

fn sliced(files: &Fields<'_>, numbered: bool, enlarges: bool) -> Result<Processor, ProcessorError> {
    let given = files.fields["max_slice_nums"].as_u64().unwrap_or(9);
    let most = usize::try_from(given).ok().filter(|most| *most > 0 && given <= MAX_SLICES);
    let most = most.ok_or_else(|| ProcessorError {
        field: "max_slice_nums",
        value: given.to_string(),
        bound: "1 to 256 is possible",
    })?;
    let side = files.square("scale_resolution", 448)?;
    let numbered = files.fields["use_image_id"].as_bool().unwrap_or(numbered);
    let text = Word::Text;
    let number = [text("<image_id>"), Word::Picture, text("</image_id>")];
    Ok(Processor {
        image_token: text("<unk>"),
        placeholder: text("<unk>"),
        patch: files.size("patch_size", 14)?,
        merge: 1,
        resampled: None,
        rule: Rule::Sliced {
            side,
            most: if files.is_off("slice_mode") { 1 } else { most },
            enlarges,
        },
        wording: Wording {
            begin: if numbered { number.to_vec() } else { Vec::new() },
            before_tile: vec![text("<slice>")],
            between_tiles: vec![text("</slice>")],
            after_tiles: vec![text("</slice>")],
            between_tile_rows: vec![text("\n")],
            whole_first: true,
            before_whole: vec![text("<image>")],
            before_alone: vec![text("<image>")],
            after_whole: vec![text("</image>")],
            ..Wording::default()
        },
        two_way: false,
        normalization: files.normalization(STANDARD)?,
        kernel: files.kernel(Kernel::Bicubic)?,
    })
}
