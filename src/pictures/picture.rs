//! A picture as the engine gets it: pixels of the size that the model looks at, and their digest.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use sha2::{Digest, Sha256};

/// Pixels in rows from the top, each red, green and blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// `[height, width, 3]`
    pub pixels: Vec<u8>,
}

/// How pixels become the numbers that a tower computes with: `(pixel - mean) / std` of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// Of red, green and blue, in units of a pixel's byte.
    pub mean: [f32; 3],
    /// Of red, green and blue, in units of a pixel's byte.
    pub std: [f32; 3],
    /// Whether each step of the arithmetic, of numbers below one, is rounded to bf16.
    pub narrow: bool,
}

impl Normalization {
    /// The numbers of the pixels `byte` of a channel.
    pub fn apply(&self, channel: usize, byte: u8) -> f32 {
        let (byte, mean, std) = (f32::from(byte), self.mean[channel], self.std[channel]);
        if !self.narrow {
            return (byte - mean) / std;
        }
        let rounded = |number: f32| bf16::from_f32(number).to_f32();
        let below_one = |number: f32| rounded(number * (1.0 / 255.0));
        rounded(rounded(below_one(byte) - below_one(mean)) / below_one(std))
    }
}

/// A picture of the size that the model looks at. Its tokens are a grid in rows from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    rgb: Rgb,
    rows: usize,
    columns: usize,
    two_way: bool,
    mark: Option<usize>,
    shown: Option<[Range<usize>; 2]>,
    digest: [u8; 16],
}

impl Picture {
    /// A picture that takes `rows * columns` tokens. Pixels that are looked at through another
    /// normalization make another picture.
    pub fn new(rgb: Rgb, grid: [usize; 2], normalization: &Normalization) -> Self {
        Self::with(rgb, grid, normalization, &[])
    }

    /// A picture of which more is told by these numbers.
    fn with(
        rgb: Rgb,
        [rows, columns]: [usize; 2],
        normalization: &Normalization,
        told: &[usize],
    ) -> Self {
        let mut hasher = Sha256::new();
        for number in normalization.mean.iter().chain(&normalization.std) {
            hasher.update(number.to_le_bytes());
        }
        for size in [rgb.width, rgb.height, rows, columns].iter().chain(told) {
            hasher.update((*size as u64).to_le_bytes());
        }
        if normalization.narrow {
            hasher.update(b"bf16");
        }
        hasher.update(&rgb.pixels);
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize()[..16]);
        Self { rgb, rows, columns, two_way: false, mark: None, shown: None, digest }
    }

    /// What stands around tokens of pictures, or at the end of a row of them, where a model has learned
    /// features for that, of which this has the `index`-th.
    pub fn of_mark(index: usize, normalization: &Normalization) -> Self {
        let rgb = Rgb { width: 0, height: 0, pixels: Vec::new() };
        Self { mark: Some(index), ..Self::with(rgb, [1, 1], normalization, &[index]) }
    }

    /// A picture of whose squares, one for each token that it would take, the rows and columns `shown` are
    /// reduced to `rows * columns` tokens.
    pub fn reduced(
        rgb: Rgb,
        grid: [usize; 2],
        shown: [Range<usize>; 2],
        normalization: &Normalization,
    ) -> Self {
        let [rows, columns] = &shown;
        let told = [rows.start, rows.end, columns.start, columns.end];
        Self { shown: Some(shown), ..Self::with(rgb, grid, normalization, &told) }
    }

    /// Which of the features that a model has for what is no picture this has; `None`: it is a picture.
    pub fn mark(&self) -> Option<usize> {
        self.mark
    }

    /// The rows and columns of squares that become its tokens, if there are more of them than tokens.
    pub fn shown(&self) -> Option<&[Range<usize>; 2]> {
        self.shown.as_ref()
    }

    /// The same, whose tokens see all of it, also what stands behind them.
    #[must_use]
    pub fn seen_both_ways(self, two_way: bool) -> Self {
        Self { two_way, ..self }
    }

    /// Whether its tokens see all of it, also what stands behind them.
    pub fn is_two_way(&self) -> bool {
        self.two_way
    }

    /// The pixels.
    pub fn rgb(&self) -> &Rgb {
        &self.rgb
    }

    /// Rows and columns of its grid of tokens.
    pub fn grid(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Tokens that it takes in a prompt.
    pub fn num_tokens(&self) -> usize {
        self.rows * self.columns
    }

    /// SHA-256 of all that it shows, cut to 128 bits: equal digests mean equal pictures.
    pub fn digest(&self) -> [u8; 16] {
        self.digest
    }
}

/// A picture, or consecutive tokens of one, and its place in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPicture {
    /// The position of its first token.
    pub offset: usize,
    /// What is seen there.
    pub picture: Arc<Picture>,
    /// Which of its tokens.
    pub part: Range<usize>,
}

impl PlacedPicture {
    /// A whole picture.
    pub fn whole(offset: usize, picture: Arc<Picture>) -> Self {
        Self { offset, part: 0..picture.num_tokens(), picture }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_decides_the_digest() {
        let rgb = |width, height, pixel| Rgb { width, height, pixels: vec![pixel; 24] };
        let seen = |rgb, grid, std| {
            let normalization = Normalization { mean: [0.0; 3], std: [std; 3], narrow: false };
            Picture::new(rgb, grid, &normalization).digest()
        };
        let one = seen(rgb(4, 2, 7), [1, 2], 1.0);
        assert_eq!(one, seen(rgb(4, 2, 7), [1, 2], 1.0));
        assert_ne!(one, seen(rgb(2, 4, 7), [1, 2], 1.0), "turned");
        assert_ne!(one, seen(rgb(4, 2, 8), [1, 2], 1.0), "another colour");
        assert_ne!(one, seen(rgb(4, 2, 7), [2, 1], 1.0), "another grid");
        assert_ne!(one, seen(rgb(4, 2, 7), [1, 2], 2.0), "another normalization");
        let normalization = Normalization { mean: [0.0; 3], std: [1.0; 3], narrow: false };
        let part = |shown| Picture::reduced(rgb(4, 2, 7), [1, 2], shown, &normalization).digest();
        assert_ne!(one, part([0..2, 0..4]), "reduced");
        assert_ne!(part([0..2, 0..3]), part([0..2, 0..4]), "another part");
        let mark = |index| Picture::of_mark(index, &normalization).digest();
        assert_ne!(mark(0), mark(1), "another mark");
    }
}
