//! The fields of a checkpoint's files that say how pictures are prepared.

use serde_json::Value;

use super::picture::Normalization;
use super::processor::ProcessorError;
use super::resize::Kernel;

/// Mean and standard deviation of the pixels that CLIP was trained on.
pub(super) const CLIP: [[f64; 3]; 2] =
    [[0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_58, 0.275_777_11]];
/// Those of Inception, which SigLIP uses.
pub(super) const STANDARD: [[f64; 3]; 2] = [[0.5; 3]; 2];

/// The fields of `preprocessor_config.json`, and those of `config.json`.
pub(super) struct Fields<'a> {
    pub(super) fields: &'a Value,
    pub(super) config: &'a Value,
}

impl Fields<'_> {
    /// The fields of the tower.
    pub(super) fn vision(&self) -> &Value {
        &self.config["vision_config"]
    }

    /// A size of `preprocessor_config.json` or of the tower, which says some again.
    pub(super) fn size(&self, field: &'static str, default: u64) -> Result<usize, ProcessorError> {
        let given = self.fields[field].as_u64().or(whole_or_square(&self.vision()[field]));
        bounded(field, given.unwrap_or(default), 256)
    }

    /// A size of the tower alone.
    pub(super) fn of_tower(
        &self,
        field: &'static str,
        default: u64,
    ) -> Result<usize, ProcessorError> {
        bounded(field, whole_or_square(&self.vision()[field]).unwrap_or(default), 256)
    }

    /// A size that `config.json` says.
    pub(super) fn own(&self, field: &'static str, default: u64) -> Result<usize, ProcessorError> {
        bounded(field, self.config[field].as_u64().unwrap_or(default), 256)
    }

    /// Pixels of a side, in the object `size` or another one.
    pub(super) fn side(
        &self,
        field: &'static str,
        part: &str,
        default: u64,
    ) -> Result<usize, ProcessorError> {
        bounded(field, self.fields[field][part].as_u64().unwrap_or(default), 1 << 13)
    }

    /// Pixels of a side, in a field of its own.
    pub(super) fn square(
        &self,
        field: &'static str,
        default: u64,
    ) -> Result<usize, ProcessorError> {
        bounded(field, self.fields[field].as_u64().unwrap_or(default), 1 << 13)
    }

    /// Pixels of a side that `config.json` says.
    pub(super) fn own_side(
        &self,
        field: &'static str,
        default: u64,
    ) -> Result<usize, ProcessorError> {
        bounded(field, self.config[field].as_u64().unwrap_or(default), 1 << 13)
    }

    /// Pixels of a side of the pictures that the tower was trained on.
    pub(super) fn image_size(&self, default: u64) -> u64 {
        whole_or_square(&self.vision()["image_size"]).unwrap_or(default)
    }

    /// A token id, under one of several names.
    pub(super) fn token<const N: usize>(
        &self,
        names: [&'static str; N],
    ) -> Result<Option<u32>, ProcessorError> {
        let Some(id) = names.iter().find_map(|name| self.config[*name].as_u64()) else {
            return Ok(None);
        };
        let bound = "a token id is below 2^32";
        let refused = |_| ProcessorError { field: names[0], value: id.to_string(), bound };
        u32::try_from(id).map(Some).map_err(refused)
    }

    /// The normalization of bytes, with the factor that makes numbers below one of them.
    pub(super) fn normalization(
        &self,
        numbers: [[f64; 3]; 2],
    ) -> Result<Normalization, ProcessorError> {
        self.normalization_named(["image_mean", "image_std"], numbers)
    }

    /// The same with other names of the fields.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn normalization_named(
        &self,
        names: [&'static str; 2],
        [mean, std]: [[f64; 3]; 2],
    ) -> Result<Normalization, ProcessorError> {
        let factor = self.fields["rescale_factor"].as_f64().unwrap_or(1.0 / 255.0);
        let factor = if self.is_off("do_rescale") { 1.0 } else { factor };
        let (mut mean, mut std) = (self.three(names[0], mean)?, self.three(names[1], std)?);
        if self.is_off("do_normalize") {
            (mean, std) = ([0.0; 3], [1.0; 3]);
        }
        let scale = (1.0 / factor) as f32;
        let bytes = |numbers: [f64; 3]| numbers.map(|number| number as f32 * scale);
        let (mean, std) = (bytes(mean), bytes(std));
        if std.iter().any(|std| !(std.is_normal() && *std > 0.0)) {
            let value = format!("{std:?}");
            let bound = "standard deviations are positive";
            return Err(ProcessorError { field: names[1], value, bound });
        }
        Ok(Normalization { mean, std, narrow: false })
    }

    /// A number for each channel.
    fn three(&self, field: &'static str, default: [f64; 3]) -> Result<[f64; 3], ProcessorError> {
        let Some(given) = self.fields[field].as_array() else { return Ok(default) };
        let numbers: Vec<f64> = given.iter().filter_map(Value::as_f64).collect();
        <[f64; 3]>::try_from(numbers).map_err(|_| ProcessorError {
            field,
            value: self.fields[field].to_string(),
            bound: "a number for each of three channels is needed",
        })
    }

    /// The colour of the mean, in bytes that are rounded down.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a byte"
    )]
    pub(super) fn mean_colour(&self, [mean, _]: [[f64; 3]; 2]) -> Result<[u8; 3], ProcessorError> {
        let bytes = self.three("image_mean", mean)?.map(|mean| mean * 255.0);
        if bytes.iter().all(|byte| (0.0..256.0).contains(byte)) {
            return Ok(bytes.map(|byte| byte as u8));
        }
        let (field, bound) = ("image_mean", "means of a colour are 0 to 1");
        Err(ProcessorError { field, value: format!("{bytes:?} of 255"), bound })
    }

    /// The kernel of resizes.
    pub(super) fn kernel(&self, default: Kernel) -> Result<Kernel, ProcessorError> {
        match self.fields["resample"].as_u64() {
            None => Ok(default),
            Some(1) => Ok(Kernel::Lanczos),
            Some(2) => Ok(Kernel::Bilinear),
            Some(3) => Ok(Kernel::Bicubic),
            Some(other) => Err(ProcessorError {
                field: "resample",
                value: other.to_string(),
                bound: "supported are 1 (Lanczos), 2 (bilinear) and 3 (bicubic)",
            }),
        }
    }

    /// Whether a field is there and `false`.
    pub(super) fn is_off(&self, field: &str) -> bool {
        self.fields[field].as_bool() == Some(false)
    }

    /// Refuses a file that turns on what is not implemented.
    pub(super) fn only_off(&self, field: &'static str) -> Result<(), ProcessorError> {
        if self.fields[field].as_bool() != Some(true) {
            return Ok(());
        }
        Err(ProcessorError { field, value: "true".to_owned(), bound: "supported is false" })
    }
}

fn bounded(field: &'static str, value: u64, most: usize) -> Result<usize, ProcessorError> {
    let size = usize::try_from(value).ok().filter(|size| (1..=most).contains(size));
    let bound = if most == 256 { "1 to 256 is possible" } else { "1 to 8192 is possible" };
    size.ok_or_else(|| ProcessorError { field, value: value.to_string(), bound })
}

/// A number, or the first of two equal ones.
fn whole_or_square(value: &Value) -> Option<u64> {
    let square = value.as_array().filter(|sides| sides.windows(2).all(|two| two[0] == two[1]));
    value.as_u64().or_else(|| square?.first()?.as_u64())
}
