//! How a checkpoint's image processor prepares pictures, from `preprocessor_config.json`.
//!
//! Qwen's processors: both sides become multiples of the pixels of a token, the number of pixels
//! stays within bounds, and so does the ratio of the sides as nearly as it can.

use std::sync::Arc;

use serde_json::Value;

use super::decode::decode;
use super::error::PictureError;
use super::picture::{Normalization, Picture, Rgb};
use super::resize::{Kernel, resize};

/// The largest ratio of the sides of a picture.
const MAX_RATIO: u32 = 200;
/// Most pixels of a picture that is only glanced at: what OpenAI's `low` looks at.
const LOW_DETAIL_PIXELS: usize = 512 * 512;
/// Mean and standard deviation of the pixels that CLIP was trained on.
const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const CLIP_STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// How closely to look at a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// With as many tokens as the processor likes.
    #[default]
    Full,
    /// With few tokens: as if it had at most 512 x 512 pixels.
    Low,
}

/// An image processor, as plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// The token that stands for a token of a picture.
    pub image_token_id: u32,
    /// Pixels of a side of a patch.
    pub patch: usize,
    /// Patches of a side of a token.
    pub merge: usize,
    /// Fewest and most pixels of a prepared picture.
    pub pixels: [usize; 2],
    /// What is done to pixels before the tower.
    pub normalization: Normalization,
    /// The kernel of the resize.
    pub kernel: Kernel,
}

/// Why a checkpoint's processor can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("preprocessor_config.json: `{field}` is {value}, {bound}")]
pub struct ProcessorError {
    field: &'static str,
    value: String,
    bound: &'static str,
}

impl Processor {
    /// The processor that `preprocessor_config.json` describes, for the model of `config.json`; `None`
    /// if the model doesn't see as Qwen's do.
    ///
    /// # Errors
    ///
    /// A field whose value no such processor has.
    pub fn from_json(
        config: &Value,
        preprocessor: Option<&Value>,
    ) -> Result<Option<Self>, ProcessorError> {
        let none = Value::Null;
        let (vision, fields) = (&config["vision_config"], preprocessor.unwrap_or(&none));
        let Some(image_token_id) = config["image_token_id"].as_u64().filter(|_| vision.is_object())
        else {
            return Ok(None);
        };
        let reader = Fields { fields, vision };
        let (patch, merge) = (reader.size("patch_size", 14)?, {
            let own = fields.get("merge_size").is_some();
            reader.size(if own { "merge_size" } else { "spatial_merge_size" }, 2)?
        });
        let size = &fields["size"];
        let bound = |old: &str, new: &str, default: usize| {
            let given = fields[old].as_u64().or(size[new].as_u64()).or(size[old].as_u64());
            given.and_then(|given| usize::try_from(given).ok()).unwrap_or(default)
        };
        let pixels = [
            bound("min_pixels", "shortest_edge", 56 * 56),
            bound("max_pixels", "longest_edge", 28 * 28 * 1280),
        ];
        if pixels[0] > pixels[1] || pixels[1] == 0 {
            let (field, bound) = ("size", "the most pixels must be at least the fewest");
            return Err(ProcessorError { field, value: format!("{pixels:?}"), bound });
        }
        Ok(Some(Self {
            image_token_id: u32::try_from(image_token_id).map_err(|_| ProcessorError {
                field: "image_token_id",
                value: image_token_id.to_string(),
                bound: "a token id is below 2^32",
            })?,
            patch,
            merge,
            pixels,
            normalization: reader.normalization()?,
            kernel: reader.kernel()?,
        }))
    }

    /// Decodes and prepares a file.
    ///
    /// # Errors
    ///
    /// See [`decode`]; sides whose ratio is too large.
    pub fn read(&self, bytes: &[u8], detail: Detail) -> Result<Arc<Picture>, PictureError> {
        self.prepare(&decode(bytes)?, detail).map(Arc::new)
    }

    /// Prepares a picture.
    ///
    /// # Errors
    ///
    /// Sides whose ratio is too large.
    pub fn prepare(&self, rgb: &Rgb, detail: Detail) -> Result<Picture, PictureError> {
        let [height, width] = self.prepared_size([rgb.height, rgb.width], detail)?;
        let side = self.patch * self.merge;
        let resized = resize(rgb, width, height, self.kernel);
        Ok(Picture::new(resized, [height / side, width / side], &self.normalization))
    }

    /// Height and width after preparation: transformers' `smart_resize`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "pictures have fewer than 2^32 pixels"
    )]
    fn prepared_size(&self, sides: [usize; 2], detail: Detail) -> Result<[usize; 2], PictureError> {
        let [least, most] = self.pixels;
        let most = match detail {
            Detail::Full => most,
            Detail::Low => most.min(LOW_DETAIL_PIXELS.max(least)),
        };
        let [long, short] = [sides[0].max(sides[1]), sides[0].min(sides[1])];
        if long > short * MAX_RATIO as usize {
            let [height, width] = sides.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
            return Err(PictureError::TooLong { width, height, most: MAX_RATIO });
        }
        let factor = (self.patch * self.merge) as f64;
        let pixels = (sides[0] * sides[1]) as f64;
        let scaled = |scale: f64, round: fn(f64) -> f64| {
            sides.map(|side| (round(side as f64 * scale / factor) * factor) as usize)
        };
        // Python rounds halves to even.
        let mut prepared = scaled(1.0, f64::round_ties_even);
        if prepared[0] * prepared[1] > most {
            let beta = (pixels / most as f64).sqrt();
            let floor = |side: usize| ((side as f64 / beta / factor).floor() * factor) as usize;
            prepared = sides.map(|side| floor(side).max(factor as usize));
        } else if prepared[0] * prepared[1] < least {
            prepared = scaled((least as f64 / pixels).sqrt(), f64::ceil);
        }
        Ok(prepared.map(|side| side.max(factor as usize)))
    }
}

/// The fields of `preprocessor_config.json`, and those of `vision_config`, which says some again.
struct Fields<'a> {
    fields: &'a Value,
    vision: &'a Value,
}

impl Fields<'_> {
    fn size(&self, field: &'static str, default: u64) -> Result<usize, ProcessorError> {
        let value = self.fields[field].as_u64().or(self.vision[field].as_u64()).unwrap_or(default);
        match usize::try_from(value) {
            Ok(size @ 1..=256) => Ok(size),
            _ => Err(ProcessorError {
                field,
                value: value.to_string(),
                bound: "1 to 256 is possible",
            }),
        }
    }

    /// The normalization of bytes, with the factor that makes numbers below one of them.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    fn normalization(&self) -> Result<Normalization, ProcessorError> {
        let factor = self.fields["rescale_factor"].as_f64().unwrap_or(1.0 / 255.0);
        let factor = if self.is_off("do_rescale") { 1.0 } else { factor };
        let three = |field: &'static str, default: [f64; 3]| {
            let Some(given) = self.fields[field].as_array() else { return Ok(default) };
            let numbers: Vec<f64> = given.iter().filter_map(Value::as_f64).collect();
            <[f64; 3]>::try_from(numbers).map_err(|_| ProcessorError {
                field,
                value: self.fields[field].to_string(),
                bound: "a number for each of three channels is needed",
            })
        };
        let (mut mean, mut std) = (three("image_mean", CLIP_MEAN)?, three("image_std", CLIP_STD)?);
        if self.is_off("do_normalize") {
            (mean, std) = ([0.0; 3], [1.0; 3]);
        }
        let scale = (1.0 / factor) as f32;
        let bytes = |numbers: [f64; 3]| numbers.map(|number| number as f32 * scale);
        let (mean, std) = (bytes(mean), bytes(std));
        if std.iter().any(|std| !(std.is_normal() && *std > 0.0)) {
            let value = format!("{std:?}");
            let bound = "standard deviations are positive";
            return Err(ProcessorError { field: "image_std", value, bound });
        }
        Ok(Normalization { mean, std })
    }

    fn kernel(&self) -> Result<Kernel, ProcessorError> {
        match self.fields["resample"].as_u64() {
            None | Some(3) => Ok(Kernel::Bicubic),
            Some(2) => Ok(Kernel::Bilinear),
            Some(other) => Err(ProcessorError {
                field: "resample",
                value: other.to_string(),
                bound: "supported are 2 (bilinear) and 3 (bicubic)",
            }),
        }
    }

    fn is_off(&self, field: &str) -> bool {
        self.fields[field].as_bool() == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn processor() -> Processor {
        let config = json!({"vision_config": {}, "image_token_id": 9});
        Processor::from_json(&config, None).unwrap().unwrap()
    }

    #[test]
    fn sizes_are_those_of_the_reference() {
        // What transformers' `smart_resize` says.
        let sizes = [
            ([56, 56], [56, 56]),
            ([100, 37], [112, 28]),
            ([1, 1], [56, 56]),
            ([3000, 1500], [1400, 700]),
            ([42, 70], [56, 56]),
        ];
        for (sides, expected) in sizes {
            let prepared = processor().prepared_size(sides, Detail::Full);
            assert_eq!(prepared, Ok(expected), "{sides:?}");
        }
        assert_eq!(processor().prepared_size([3000, 1500], Detail::Low), Ok([700, 336]));
        let long = processor().prepared_size([1, 201], Detail::Full);
        assert_eq!(long, Err(PictureError::TooLong { width: 201, height: 1, most: 200 }));
    }

    #[test]
    fn a_processor_of_other_numbers_is_refused_by_name() {
        let config = json!({"vision_config": {}, "image_token_id": 9});
        let refused =
            |fields: Value| Processor::from_json(&config, Some(&fields)).unwrap_err().to_string();
        assert!(refused(json!({"patch_size": 0})).contains("`patch_size` is 0"));
        assert!(refused(json!({"resample": 1})).contains("`resample` is 1"));
        assert!(refused(json!({"image_std": [1.0, 0.0, 1.0]})).contains("image_std"));
        assert!(refused(json!({"image_mean": [1.0]})).contains("image_mean"));
        assert!(refused(json!({"min_pixels": 9, "max_pixels": 4})).contains("size"));
        assert_eq!(Processor::from_json(&json!({}), None), Ok(None));
    }
}
