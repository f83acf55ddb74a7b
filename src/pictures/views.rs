//! How a picture is resized and cut to the pixels that a tower looks at: one rule for each kind of
//! image processor, each the arithmetic of transformers.

use super::cutting::{
    Views, bounded, centred, framed, joined, middle, padded, paged, sliced, split, stretched,
    with_tiles, with_whole,
};
use super::error::PictureError;
use super::grids::{covering_grid, fitting_grid};
use super::picture::Rgb;
use super::resize::{Kernel, resize};
use super::sizes::{
    LOW_DETAIL_SIDE, at_least, at_most, best_grid, best_size, canvas, canvas_within, check_ratio,
    covering, enlarged, few_pixels, filled, least_enlarging, reduced, rounded_area, slices, smart,
    with_longest, with_longest_near, within,
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

/// Which pictures may have more tiles than others. A bound of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dense {
    /// How many they may have.
    pub most: usize,
    /// What the width of the usual grid must be below, in widths of the picture.
    pub scale: f64,
    /// What widths, in heights, must be above, and the largest.
    pub ratios: [f64; 2],
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
    /// As `Smart`; a side that is shorter than a token is enlarged to one first, and the other with it, to
    /// the nearest whole number (PaddleOCR-VL's processor).
    SmartEnlarged {
        /// Fewest and most pixels.
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
    /// A picture with more patches, or more in a side, is reduced to so many; then black below and to the
    /// right of it makes both sides multiples of the pixels of a token (Kimi-VL's processor).
    Reduced {
        /// Pixels of a side of a patch.
        patch: usize,
        /// Most patches.
        patches: usize,
        /// Most patches of a side.
        longest: usize,
    },
    /// The picture is reduced or enlarged to fit one of several sizes, with black around it, and cut to
    /// tiles; what is only black isn't shown. It is stretched to a tile besides (LLaVA-NeXT's processor). Where
    /// there are many more tokens of tiles than of some, they are reduced to those of that many
    /// (LLaVA-OneVision's).
    AnySize {
        /// Heights and widths to choose from.
        sizes: Vec<[usize; 2]>,
        /// Pixels of a side of a tile.
        tile: usize,
        /// How many tiles tokens are reduced to.
        tiles: Option<usize>,
    },
    /// A side that is longer than one length is reduced to it, and the other one with it; then each that is
    /// shorter than another length is enlarged to that, and what is no whole token is cut off. Quarters of the
    /// picture may come before it (Idefics 2's processor).
    Bounded {
        /// Least and most pixels of a side.
        lengths: [usize; 2],
        /// Whether there are quarters.
        quarters: bool,
    },
    /// The picture is stretched to the smallest grid of square tiles that keeps most of it, and to a tile besides
    /// if there are several (Ovis 2's processor).
    Covering {
        /// Pixels of a side of a tile.
        tile: usize,
        /// Most tiles.
        most: usize,
    },
    /// The picture is stretched to a tile, and to the grid of tiles in which it becomes largest, of one also
    /// (PerceptionLM's processor).
    Fitting {
        /// Pixels of a side of a tile.
        tile: usize,
        /// Most tiles; 0: there are none.
        most: usize,
    },
    /// As `Canvas`, with so many tiles a side at most; one that is alone is a tile and no whole. Wide pictures
    /// that are reduced much may have more tiles (Granite Docling's processor).
    Pages {
        /// Height and width of a tile.
        tile: [usize; 2],
        /// Fewest and most tiles.
        count: [usize; 2],
        /// Most tiles of a side.
        longest: usize,
        /// Which pictures may have more tiles.
        dense: Option<Dense>,
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
    /// The picture is stretched to the grid of tiles that enlarges it least, or reduces it least where all
    /// do, and to a tile besides if there are several (Command A Vision's processor).
    Covered {
        /// Pixels of a side of a tile.
        tile: usize,
        /// Most tiles.
        most: usize,
    },
    /// The longer side gets one length, and the picture stands in the middle of a square of one colour
    /// (DeepSeek-VL's processor).
    Squared {
        /// Pixels of a side of the square.
        side: usize,
        /// Least pixels of the shorter side.
        smallest: usize,
        /// The colour around the picture.
        colour: [u8; 3],
    },
    /// The picture is stretched to about the pixels of a square, as whole tokens, and, if it has more, to a
    /// grid of such tiles besides, of about as many as it has pixels for and the ratio nearest to its own
    /// (MiniCPM-V's processors).
    Sliced {
        /// Pixels of a side of the square.
        side: usize,
        /// Most tiles; 1: there are none.
        most: usize,
        /// Whether a picture with fewer pixels is enlarged.
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
        let low = detail == Detail::Low;
        match self.alone(rgb, side, kernel, low)? {
            Some(whole) => Ok(Views::one(whole)),
            None => self.cut(rgb, side, kernel, low),
        }
    }

    /// The whole picture, where nothing else is looked at.
    fn alone(
        &self,
        rgb: &Rgb,
        side: usize,
        kernel: Kernel,
        low: bool,
    ) -> Result<Option<Rgb>, PictureError> {
        let sides = [rgb.height, rgb.width];
        let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
        Ok(Some(match *self {
            Self::Smart { pixels } => {
                let pixels = if low { few_pixels(pixels) } else { pixels };
                to(smart(sides, side, pixels, 0)?)
            }
            Self::SmartFrames { pixels } => {
                let halves = pixels.map(|pixels| pixels / 2);
                let pixels = if low { few_pixels(halves) } else { halves };
                to(smart(at_least(sides, side), side, pixels, 0)?)
            }
            Self::SmartEnlarged { pixels } => {
                let pixels = if low { few_pixels(pixels) } else { pixels };
                to(smart(enlarged(sides, side), side, pixels, 0)?)
            }
            Self::Stretched { size } => to(size),
            Self::Cropped { shortest, size } => middle(&to(covering(sides, shortest)?), size),
            Self::Within { longest } => {
                let longest = if low { longest.min(LOW_DETAIL_SIDE) } else { longest };
                to(within(sides, longest, side))
            }
            Self::Reduced { patch, patches, longest } => {
                let few = if low { (LOW_DETAIL_SIDE / patch).pow(2).max(1) } else { patches };
                let inner = reduced(sides, patch, patches.min(few), longest);
                padded(&to(inner), inner.map(|length| length.next_multiple_of(side)))
            }
            Self::Filled { tokens, low: few } => {
                let tokens = if low { tokens.min(few) } else { tokens };
                to(filled(sides, tokens, side))
            }
            Self::Squared { side, smallest, colour } => {
                check_ratio(sides)?;
                let inner = with_longest_near(sides, side, smallest);
                centred(&to(inner), [side; 2], colour)
            }
            _ => return Ok(None),
        }))
    }

    /// What is looked at where that may be tiles.
    fn cut(
        &self,
        rgb: &Rgb,
        side: usize,
        kernel: Kernel,
        low: bool,
    ) -> Result<Views, PictureError> {
        let sides = [rgb.height, rgb.width];
        let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
        Ok(match *self {
            Self::AnySize { sizes: ref known, tile, tiles } => {
                let whole = best_size(sides, known).filter(|_| !low);
                joined(rgb, [tile, side], whole, tiles, kernel)
            }
            Self::Bounded { lengths: [least, most], quarters } => {
                let most = if low { most.min(LOW_DETAIL_SIDE).max(least) } else { most };
                bounded(rgb, [least, most], side, quarters && !low, kernel)
            }
            Self::Covering { tile, most } => {
                let grid = covering_grid(sides, tile, if low { 1 } else { most });
                stretched(rgb, grid, [tile; 2], kernel)
            }
            Self::Fitting { tile, most } => {
                let grid = (most > 0 && !low).then(|| fitting_grid(sides, tile, most));
                with_whole(rgb, grid, to([tile; 2]), kernel)
            }
            Self::Pages { tile, count, longest, dense } => {
                let count = dense.map_or(count, |dense| dense.count(sides, tile, count, longest));
                let count = if low { [1, 1] } else { count };
                paged(rgb, canvas_within(sides, tile, count, longest), tile, kernel)
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
                let grid = canvas(sides, [tile; 2], count);
                let several = grid[0] * grid[1] > 1;
                let views = with_tiles(rgb, grid, tile, kernel);
                let whole = (thumbnail && several).then(|| to(whole));
                Views { whole, ..views }
            }
            Self::Padded { tile, most, enlarges } => {
                let frame = best_grid(sides, tile, if low { 1 } else { most }, enlarges);
                framed(rgb, tile, frame, enlarges, kernel)
            }
            Self::Covered { tile, most } => {
                let grid = least_enlarging(sides, tile, if low { 1 } else { most });
                stretched(rgb, grid, [tile; 2], kernel)
            }
            Self::Sliced { side: square, most, enlarges } => {
                let grid = slices(sides, square, if low { 1 } else { most });
                sliced(rgb, [square, side], grid, enlarges, kernel)
            }
            Self::Canvas { tile, count } => {
                let count = if low { [1, 1] } else { count };
                stretched(rgb, canvas(sides, tile, count), tile, kernel)
            }
            // Of the others there are no tiles.
            _ => Views::one(rgb.clone()),
        })
    }
}

impl Dense {
    /// Fewest and most tiles of a picture.
    #[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
    fn count(
        self,
        [height, width]: [usize; 2],
        tile: [usize; 2],
        [least, most]: [usize; 2],
        longest: usize,
    ) -> [usize; 2] {
        let Self { scale, ratios: [above, largest], .. } = self;
        let ratio = width as f64 / height as f64;
        let columns = canvas_within([height, width], tile, [least, most], longest)[1];
        let own = (columns * tile[1]) as f64 / width as f64;
        let is_dense = (above <= 0.0 || ratio > above)
            && (largest <= 0.0 || ratio <= largest)
            && (scale <= 0.0 || own < scale)
            && (scale > 0.0 || above > 0.0);
        let most = if is_dense { self.most } else { most };
        [least.min(most), most]
    }
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
