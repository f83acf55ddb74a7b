//! How a picture is resized and cut to the pixels that a tower looks at: one rule for each kind of
//! image processor, each the arithmetic of transformers.

use std::ops::Range;

use super::error::PictureError;
use super::picture::Rgb;
use super::resize::{Kernel, cut, resize};
use super::sizes::{
    LOW_DETAIL_SIDE, at_least, at_most, best_grid, best_size, canvas, covering, few_pixels, filled,
    fitted, inside, other_side, rounded_area, shown, smart, with_longest, within,
};

/// Most pixels of a side before it is cut to tiles.
const MAX_SPLIT_SIDE: usize = 4096;

/// How closely to look at a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// With as many tokens as the processor likes.
    #[default]
    Full,
    /// With few tokens: as if it had at most 512 x 512 pixels.
    Low,
}

/// What is looked at of one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Views {
    /// Parts of it, in rows from the top.
    pub tiles: Vec<Rgb>,
    /// Parts in a row.
    pub columns: usize,
    /// All of it at once.
    pub whole: Option<Rgb>,
    /// Which rows and columns of the parts' tokens are shown, all rows in one piece each and behind the
    /// whole; `None`: the parts are shown one after the other, and the whole behind them.
    pub joined: Option<[Range<usize>; 2]>,
}

/// How a picture is resized and cut.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Both sides become multiples of the pixels of a token, the number of pixels stays within bounds,
    /// and so does the ratio of the sides as nearly as it can (Qwen's processors).
    Smart {
        /// Fewest and most pixels.
        pixels: [usize; 2],
    },
    /// The same for a video of two pictures; a side that is shorter than a token is enlarged to one first
    /// (GLM-V's processors).
    SmartFrames {
        /// Fewest and most pixels of both.
        pixels: [usize; 2],
    },
    /// The picture is stretched to one size (SigLIP's processors).
    Stretched {
        /// Height and width.
        size: [usize; 2],
    },
    /// The shorter side gets one length, then the middle is cut out (CLIP's processors).
    Cropped {
        /// Pixels of the shorter side.
        shortest: usize,
        /// Height and width of the middle.
        size: [usize; 2],
    },
    /// A picture larger than a square is reduced to fit into it; then both sides are rounded up to
    /// multiples of the pixels of a token (Pixtral's processor).
    Within {
        /// Pixels of a side of the square.
        longest: usize,
    },
    /// The picture is reduced or enlarged to fit one of several sizes, with black around it, and cut to
    /// tiles; what is only black isn't shown. It is stretched to a tile besides (LLaVA-NeXT's processor).
    AnySize {
        /// Heights and widths to choose from.
        sizes: Vec<[usize; 2]>,
        /// Pixels of a side of a tile.
        tile: usize,
    },
    /// Both sides become multiples of the pixels of a token, of at most so many tokens in all, and the
    /// picture is enlarged to that many (Gemma 4's processor).
    Filled {
        /// Most tokens.
        tokens: usize,
        /// Most tokens of a picture that is only glanced at.
        low: usize,
    },
    /// The longer side gets one length, both sides are rounded up to tiles, and the whole picture is
    /// looked at as a tile besides (Idefics 3's and SmolVLM's processors).
    Split {
        /// Pixels of the longer side.
        longest: usize,
        /// Pixels of a side of a tile.
        tile: usize,
        /// Whether there are tiles at all.
        splits: bool,
    },
    /// As `Smart`; a picture that is larger by far is stretched to a grid of tiles besides, which is
    /// chosen as that of `Canvas` (LFM2-VL's processor).
    SmartOrCanvas {
        /// Fewest and most pixels.
        pixels: [usize; 2],
        /// Most pixels of a picture without tiles.
        most: usize,
        /// Least pixels of a side where they are counted for that.
        smallest: usize,
        /// Pixels of a side of a tile.
        tile: usize,
        /// Fewest and most tiles.
        count: [usize; 2],
        /// Whether the whole stands behind the tiles.
        thumbnail: bool,
    },
    /// The picture is reduced or enlarged to fit the grid of tiles that changes its size least, with black
    /// below and to the right of it, and stretched to a tile besides if there are several (Llama 4's
    /// processor).
    Padded {
        /// Pixels of a side of a tile.
        tile: usize,
        /// Most tiles.
        most: usize,
        /// Whether the grid is rather the one that enlarges it most.
        enlarges: bool,
    },
    /// The picture is stretched to the grid of tiles whose ratio is nearest to its own, and looked at as a
    /// tile besides if there are several (InternVL's processor).
    Canvas {
        /// Height and width of a tile.
        tile: [usize; 2],
        /// Fewest and most tiles.
        count: [usize; 2],
    },
}

impl Rule {
    /// What is looked at of a picture, where a token has `side` pixels a side.
    ///
    /// # Errors
    ///
    /// Sides whose ratio is too large.
    pub fn views(
        &self,
        rgb: &Rgb,
        side: usize,
        kernel: Kernel,
        detail: Detail,
    ) -> Result<Views, PictureError> {
        let sides = [rgb.height, rgb.width];
        let low = detail == Detail::Low;
        let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
        Ok(match *self {
            Self::Smart { pixels } => {
                let pixels = if low { few_pixels(pixels) } else { pixels };
                Views::one(to(smart(sides, side, pixels, 0)?))
            }
            Self::SmartFrames { pixels } => {
                let halves = pixels.map(|pixels| pixels / 2);
                let pixels = if low { few_pixels(halves) } else { halves };
                Views::one(to(smart(at_least(sides, side), side, pixels, 0)?))
            }
            Self::Stretched { size } => Views::one(to(size)),
            Self::Cropped { shortest, size } => {
                Views::one(middle(&to(covering(sides, shortest)?), size))
            }
            Self::Within { longest } => {
                let longest = if low { longest.min(LOW_DETAIL_SIDE) } else { longest };
                Views::one(to(within(sides, longest, side)))
            }
            Self::AnySize { sizes: ref known, tile } => {
                let Some(whole) = best_size(sides, known).filter(|_| !low) else {
                    return Ok(Views::one(to([tile; 2])));
                };
                let tiles = tiles(&centred(&to(inside(sides, whole)), whole), [tile; 2]);
                let shown = shown(sides, whole.map(|pixels| pixels / side));
                let (columns, whole) = (whole[1] / tile, Some(to([tile; 2])));
                Views { tiles, columns, whole, joined: Some(shown) }
            }
            Self::Filled { tokens, low: few } => {
                let tokens = if low { tokens.min(few) } else { tokens };
                Views::one(to(filled(sides, tokens, side)))
            }
            Self::Split { longest, tile, splits } => {
                let resized = to(at_most(with_longest(sides, longest), MAX_SPLIT_SIDE));
                split(&resized, tile, splits && !low, kernel)
            }
            Self::SmartOrCanvas { pixels, most, smallest, tile, count, thumbnail } => {
                let whole = smart(sides, side, pixels, side)?;
                let large = rounded_area(sides, side, smallest) > most && count[1] > 1;
                if low || !large {
                    return Ok(Views::one(to(whole)));
                }
                let [rows, columns] = canvas(sides, [tile; 2], count);
                let tiles = tiles(&to([rows * tile, columns * tile]), [tile; 2]);
                let whole = (thumbnail && rows * columns > 1).then(|| to(whole));
                Views { tiles, columns, whole, joined: None }
            }
            Self::Padded { tile, most, enlarges } => {
                let most = if low { 1 } else { most };
                let frame = best_grid(sides, tile, most, enlarges);
                let inner = if enlarges {
                    frame
                } else {
                    [0, 1].map(|axis| sides[axis].max(tile).min(frame[axis]))
                };
                let resized = to(fitted(sides, inner));
                let padded = padded(&resized, frame);
                if frame == [tile; 2] {
                    return Ok(Views::one(padded));
                }
                let (tiles, columns) = (tiles(&padded, [tile; 2]), frame[1] / tile);
                Views { tiles, columns, whole: Some(to([tile; 2])), joined: None }
            }
            Self::Canvas { tile, count } => {
                let count = if low { [1, 1] } else { count };
                let [rows, columns] = canvas(sides, tile, count);
                if rows * columns == 1 {
                    return Ok(Views::one(to(tile)));
                }
                let tiles = tiles(&to([rows * tile[0], columns * tile[1]]), tile);
                Views { tiles, columns, whole: Some(to(tile)), joined: None }
            }
        })
    }
}

impl Views {
    fn one(rgb: Rgb) -> Self {
        Self { tiles: Vec::new(), columns: 0, whole: Some(rgb), joined: None }
    }
}

/// The middle of a picture that is at least as large.
fn middle(rgb: &Rgb, [height, width]: [usize; 2]) -> Rgb {
    let [top, left] = [(rgb.height - height) / 2, (rgb.width - width) / 2];
    cut(rgb, top..top + height, left..left + width)
}

/// The tiles of a picture and the whole as one of them; or, without tiles, the whole alone.
fn split(rgb: &Rgb, tile: usize, splits: bool, kernel: Kernel) -> Views {
    if !splits {
        return Views::one(resize(rgb, tile, tile, kernel));
    }
    let sides = [rgb.height, rgb.width];
    let up = |side: usize| side.div_ceil(tile) * tile;
    let size = if sides[1] >= sides[0] {
        let width = up(sides[1]);
        [up(other_side(sides, width)), width]
    } else {
        let height = up(sides[0]);
        [height, up(other_side(sides, height))]
    };
    let size = size.map(|side| side.max(tile));
    let rounded = resize(rgb, size[1], size[0], kernel);
    if size == [tile; 2] {
        return Views::one(rounded);
    }
    let whole = resize(&rounded, tile, tile, kernel);
    let (tiles, columns) = (tiles(&rounded, [tile; 2]), size[1] / tile);
    Views { tiles, columns, whole: Some(whole), joined: None }
}

/// The picture in the middle of a black one of `size`.
fn centred(rgb: &Rgb, [height, width]: [usize; 2]) -> Rgb {
    let corner = [(height - rgb.height) / 2, (width - rgb.width) / 2];
    placed(rgb, [height, width], corner)
}

/// The picture in the first corner of a black one of `size`.
fn padded(rgb: &Rgb, size: [usize; 2]) -> Rgb {
    placed(rgb, size, [0; 2])
}

/// The picture in a black one of `size`, from this row and column on.
fn placed(rgb: &Rgb, [height, width]: [usize; 2], [top, left]: [usize; 2]) -> Rgb {
    let mut pixels = vec![0; 3 * height * width];
    for (row, line) in rgb.pixels.chunks_exact(3 * rgb.width).enumerate() {
        let start = 3 * ((top + row) * width + left);
        pixels[start..start + line.len()].copy_from_slice(line);
    }
    Rgb { width, height, pixels }
}

/// All tiles of a picture that is made of them, in rows.
fn tiles(rgb: &Rgb, [height, width]: [usize; 2]) -> Vec<Rgb> {
    let tops = (0..rgb.height).step_by(height);
    let places = tops.flat_map(|top| (0..rgb.width).step_by(width).map(move |left| (top, left)));
    places.map(|(top, left)| cut(rgb, top..top + height, left..left + width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_cut_from_the_rounded_picture_with_the_whole_behind_them() {
        let rgb = Rgb { width: 30, height: 10, pixels: vec![7; 900] };
        let views = |splits, detail| {
            let rule = Rule::Split { longest: 40, tile: 16, splits };
            let views = rule.views(&rgb, 4, Kernel::Bilinear, detail).unwrap();
            (views.tiles.len(), views.columns, views.whole.map(|whole| (whole.width, whole.height)))
        };
        assert_eq!(views(true, Detail::Full), (3, 3, Some((16, 16))));
        assert_eq!(views(true, Detail::Low), (0, 0, Some((16, 16))));
        assert_eq!(views(false, Detail::Full), (0, 0, Some((16, 16))));
    }
}
