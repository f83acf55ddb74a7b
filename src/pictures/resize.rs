//! Resizing as image processors do it: separable kernels that grow with the reduction, on bytes,
//! rounded after each direction.
//!
//! The arithmetic is that of Pillow's `Resample.c` and, with fewer bits, of torchvision's kernel for
//! bytes: kernels in 64 bits, normalized, then whole numbers; sums of those, rounded and clamped. The
//! first direction is the horizontal one.

use std::ops::Range;

use super::picture::Rgb;

/// The kernel of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A triangle.
    Bilinear,
    /// Keys' cubic convolution with `a = -0.5`.
    Bicubic,
    /// A sinc under the middle of another one, three times as wide.
    Lanczos,
}

impl Kernel {
    /// Distance from the centre beyond which the kernel is 0, in pixels of the larger picture.
    fn support(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let x = x.abs();
        match self {
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
            Self::Lanczos if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Bicubic | Self::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * std::f64::consts::PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// What each pixel of a resized line is the sum of.
struct Taps {
    /// The first source pixel of each, and its weights, in units of `2^-bits`.
    lines: Vec<(usize, Vec<i32>)>,
    bits: u32,
}

/// The pixels in `rows` and `columns` of a picture, which has them.
pub fn cut(rgb: &Rgb, rows: Range<usize>, columns: Range<usize>) -> Rgb {
    let (width, height) = (columns.len(), rows.len());
    let mut pixels = Vec::with_capacity(width * height * 3);
    for row in rows {
        let start = row * rgb.width;
        pixels
            .extend_from_slice(&rgb.pixels[3 * (start + columns.start)..3 * (start + columns.end)]);
    }
    Rgb { width, height, pixels }
}

/// The picture with `width * height` pixels.
pub fn resize(rgb: &Rgb, width: usize, height: usize, kernel: Kernel) -> Rgb {
    let mut resized = rgb.clone();
    if width != rgb.width {
        let taps = Taps::new(rgb.width, width, kernel);
        resized = taps.horizontally(&resized);
    }
    if height != rgb.height {
        let taps = Taps::new(rgb.height, height, kernel);
        resized = taps.vertically(&resized);
    }
    resized
}

/// For each of `to` places on a line of `from`, the first place that it is a sum of, and the weights of
/// that and the next ones, whose sum is 1.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24, and positions are clamped to them"
)]
pub fn kernel_weights(from: usize, to: usize, kernel: Kernel) -> Vec<(usize, Vec<f64>)> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = kernel.support() * stretch;
    let weights = |i: usize| {
        let centre = scale * (i as f64 + 0.5);
        let first = (centre - support + 0.5).max(0.0) as usize;
        let end = ((centre + support + 0.5) as usize).min(from);
        let weight = |j| kernel.weight((j as f64 - centre + 0.5) / stretch);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        (first, weights.into_iter().map(|weight| weight / sum).collect())
    };
    (0..to).map(weights).collect()
}

impl Taps {
    #[expect(clippy::cast_possible_truncation, reason = "weights are at most 1, of 22 bits")]
    fn new(from: usize, to: usize, kernel: Kernel) -> Self {
        let lines = kernel_weights(from, to, kernel);
        let largest = lines.iter().flat_map(|(_, line)| line).fold(0.0, |a: f64, b| a.max(*b));
        // As many bits as the largest weight has room for in 16.
        let fits = |bits: &u32| (0.5 + largest * f64::from(1u32 << (bits + 1))) as i32 >= 1 << 15;
        let bits = (0..22).find(fits).unwrap_or(22);
        let whole = |weight: f64| (weight * f64::from(1u32 << bits)).round() as i32;
        let lines =
            lines.into_iter().map(|(first, line)| (first, line.into_iter().map(whole).collect()));
        Self { lines: lines.collect(), bits }
    }

    /// A sum of products as a byte.
    #[expect(clippy::cast_sign_loss, reason = "clamped")]
    fn byte(&self, products: impl Iterator<Item = i32>) -> u8 {
        let half = 1 << (self.bits - 1);
        (products.fold(half, i32::wrapping_add) >> self.bits).clamp(0, 255) as u8
    }

    fn horizontally(&self, rgb: &Rgb) -> Rgb {
        let width = self.lines.len();
        let mut pixels = Vec::with_capacity(width * rgb.height * 3);
        for row in rgb.pixels.chunks_exact(rgb.width * 3) {
            for (first, weights) in &self.lines {
                for channel in 0..3 {
                    let bytes = row[first * 3 + channel..].iter().step_by(3);
                    let products = weights.iter().zip(bytes).map(|(w, b)| w * i32::from(*b));
                    pixels.push(self.byte(products));
                }
            }
        }
        Rgb { width, height: rgb.height, pixels }
    }

    fn vertically(&self, rgb: &Rgb) -> Rgb {
        let (stride, height) = (rgb.width * 3, self.lines.len());
        let mut pixels = Vec::with_capacity(stride * height);
        for (first, weights) in &self.lines {
            let rows = &rgb.pixels[first * stride..];
            for column in 0..stride {
                let bytes = rows[column..].iter().step_by(stride);
                let products = weights.iter().zip(bytes).map(|(w, b)| w * i32::from(*b));
                pixels.push(self.byte(products));
            }
        }
        Rgb { width: rgb.width, height, pixels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_colour_stays_and_a_line_keeps_its_ends() {
        let flat = Rgb { width: 9, height: 7, pixels: [3, 200, 255].repeat(63) };
        for kernel in [Kernel::Bilinear, Kernel::Bicubic, Kernel::Lanczos] {
            for (width, height) in [(3, 20), (18, 7), (9, 1), (1, 1)] {
                let resized = resize(&flat, width, height, kernel);
                assert_eq!(resized.pixels, [3, 200, 255].repeat(width * height), "{kernel:?}");
            }
        }
        let line = Rgb { width: 2, height: 1, pixels: vec![0, 0, 0, 255, 255, 255] };
        let wide = resize(&line, 8, 1, Kernel::Bilinear);
        let red: Vec<u8> = wide.pixels.iter().step_by(3).copied().collect();
        assert_eq!((red[0], red[7]), (0, 255));
        assert!(red.is_sorted());
    }
}
