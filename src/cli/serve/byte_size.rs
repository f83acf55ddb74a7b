//! Sizes as people type them: `512MiB`, `4GiB`, `1.5G`, `1000000`.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) usize);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "kb" => 1000,
            "m" | "mib" => 1 << 20,
            "mb" => 1_000_000,
            "g" | "gib" => 1 << 30,
            "gb" => 1_000_000_000,
            "t" | "tib" => 1 << 40,
            "tb" => 1_000_000_000_000,
            _ => return Err(format!("`{unit}` is no unit; use KiB, MiB, GiB, TiB, kB, MB or GB")),
        };
        let number: f64 = number.parse().map_err(|_| format!("`{text}` is no size"))?;
        #[expect(clippy::cast_precision_loss, reason = "sizes are small powers")]
        let bytes = number * factor as f64;
        if !(1.0..1e15).contains(&bytes) {
            return Err(format!("`{text}` must be from 1 byte to 1000 TB"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
        Ok(Self(bytes as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        let size = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(size("512MiB"), Ok(512 << 20));
        assert_eq!(size("1.5g"), Ok(3 << 29));
        assert_eq!(size("1000"), Ok(1000));
        assert_eq!(size("2 kB"), Ok(2000));
        for wrong in ["", "x", "1 parsec", "-1", "0", "9e9", "99999999TB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
