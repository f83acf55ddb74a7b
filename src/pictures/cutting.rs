//! What is cut from a picture: tiles, and the whole in the size of one.

use std::ops::Range;

use super::grids::fewer;
use super::picture::Rgb;
use super::resize::{Kernel, cut, resize};
use super::sizes::{at_most, fitted, inside, nearest_multiple, other_side, shown, squared};

/// What is looked at of one picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The rows and columns of tokens that those rows and columns are reduced to; then all parts are one.
    pub reduced: Option<[usize; 2]>,
}

impl Views {
    /// The whole alone.
    pub(super) fn one(rgb: Rgb) -> Self {
        Self { whole: Some(rgb), ..Self::default() }
    }
}

/// The tiles of a picture that is fitted into a frame of them, enlarged beyond a tile if it `enlarges`, and
/// the whole if there are several.
pub(super) fn framed(
    rgb: &Rgb,
    tile: usize,
    frame: [usize; 2],
    enlarges: bool,
    kernel: Kernel,
) -> Views {
    let sides = [rgb.height, rgb.width];
    let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
    let inner = if enlarges {
        frame
    } else {
        [0, 1].map(|axis: usize| sides[axis].max(tile).min(frame[axis]))
    };
    let padded = padded(&to(fitted(sides, inner)), frame);
    if frame == [tile; 2] {
        return Views::one(padded);
    }
    let (tiles, columns) = (tiles(&padded, [tile; 2]), frame[1] / tile);
    Views { tiles, columns, whole: Some(to([tile; 2])), ..Views::default() }
}

/// The tiles of a picture that is stretched to a grid of them, and the whole if there are several.
pub(super) fn stretched(
    rgb: &Rgb,
    [rows, columns]: [usize; 2],
    tile: [usize; 2],
    kernel: Kernel,
) -> Views {
    let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
    if rows * columns == 1 {
        return Views::one(to(tile));
    }
    let tiles = tiles(&to([rows * tile[0], columns * tile[1]]), tile);
    Views { tiles, columns, whole: Some(to(tile)), ..Views::default() }
}

/// The whole of a picture as a square would hold it, of tokens of `side` pixels, and the tiles of a `grid`
/// if there is one.
pub(super) fn sliced(
    rgb: &Rgb,
    [square, side]: [usize; 2],
    grid: Option<[usize; 2]>,
    enlarges: bool,
    kernel: Kernel,
) -> Views {
    let sides = [rgb.height, rgb.width];
    let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
    let whole = to(squared(sides, square, side, enlarges && grid.is_none()));
    let Some(grid) = grid else { return Views::one(whole) };
    let cell = [0, 1].map(|axis: usize| nearest_multiple(sides[axis], grid[axis]) / grid[axis]);
    let tile = squared(cell, square, side, true);
    let tiles = tiles(&to([grid[0] * tile[0], grid[1] * tile[1]]), tile);
    Views { tiles, columns: grid[1], whole: Some(whole), ..Views::default() }
}

/// The tiles of a picture in the middle of a black one of a size, in rows of tokens of `token` pixels, and the
/// whole as a tile; that alone without a size. Of many more tokens than so many `most` tiles have, all tiles are
/// one.
pub(super) fn joined(
    rgb: &Rgb,
    [tile, token]: [usize; 2],
    size: Option<[usize; 2]>,
    most: Option<usize>,
    kernel: Kernel,
) -> Views {
    let sides = [rgb.height, rgb.width];
    let to = |[height, width]: [usize; 2]| resize(rgb, width, height, kernel);
    // What is no whole token at the end of a tile isn't seen.
    let (across, seen) = (tile / token, tile / token * token);
    let whole = cut(&to([tile; 2]), 0..seen, 0..seen);
    let Some(size) = size else { return Views::one(whole) };
    let canvas = centred(&to(inside(sides, size)), size, [0; 3]);
    let tiles = tiles(&canvas, [tile; 2]);
    let tiles: Vec<_> = tiles.iter().map(|tile| cut(tile, 0..seen, 0..seen)).collect();
    let columns = size[1] / tile;
    let shown = shown(sides, size.map(|pixels| pixels / tile * across));
    let reduced = most.and_then(|most| fewer([shown[0].len(), shown[1].len()], most, across));
    let joined = Some(shown);
    if reduced.is_none() {
        return Views { tiles, columns, whole: Some(whole), joined, reduced };
    }
    let tiles = vec![stitched(&tiles, columns)];
    Views { tiles, columns: 1, whole: Some(whole), joined, reduced }
}

/// The picture that tiles of one size make, so many in a row.
fn stitched(tiles: &[Rgb], columns: usize) -> Rgb {
    let (height, width) = tiles.first().map_or((0, 0), |tile| (tile.height, tile.width));
    let mut pixels = Vec::with_capacity(3 * tiles.len() * height * width);
    for tiles in tiles.chunks(columns) {
        for row in 0..height {
            for tile in tiles {
                pixels.extend_from_slice(&tile.pixels[3 * row * width..3 * (row + 1) * width]);
            }
        }
    }
    Rgb { width: columns * width, height: tiles.len() / columns * height, pixels }
}

/// A picture with sides within these lengths, of whole tokens of `side` pixels, and its quarters before it.
pub(super) fn bounded(
    rgb: &Rgb,
    [least, most]: [usize; 2],
    side: usize,
    quarters: bool,
    kernel: Kernel,
) -> Views {
    let within = |rgb: &Rgb| {
        let bounds = at_most([rgb.height, rgb.width], most).map(|own| own.max(least));
        let resized = resize(rgb, bounds[1], bounds[0], kernel);
        let [height, width] = bounds.map(|own| own / side * side);
        cut(&resized, 0..height, 0..width)
    };
    let middle = [rgb.height / 2, rgb.width / 2];
    // There are none of a single row or column.
    let splits = quarters && !middle.contains(&0);
    let halves = [[0..middle[0], middle[0]..rgb.height], [0..middle[1], middle[1]..rgb.width]];
    let [rows, columns] = halves;
    let places =
        rows.into_iter().flat_map(|row| columns.clone().map(|column| (row.clone(), column)));
    let tiles = places.take(if splits { 4 } else { 0 });
    let tiles = tiles.map(|(row, column)| within(&cut(rgb, row, column))).collect();
    Views { tiles, columns: 2, whole: Some(within(rgb)), ..Views::default() }
}

/// The middle of a picture that is at least as large.
pub(super) fn middle(rgb: &Rgb, [height, width]: [usize; 2]) -> Rgb {
    let [top, left] = [(rgb.height - height) / 2, (rgb.width - width) / 2];
    cut(rgb, top..top + height, left..left + width)
}

/// The tiles of a picture and the whole as one of them; or, without tiles, the whole alone.
pub(super) fn split(rgb: &Rgb, tile: usize, splits: bool, kernel: Kernel) -> Views {
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
    Views { tiles, columns, whole: Some(whole), ..Views::default() }
}

/// The picture in the middle of one of `size` and one colour.
pub(super) fn centred(rgb: &Rgb, [height, width]: [usize; 2], colour: [u8; 3]) -> Rgb {
    let corner = [(height - rgb.height) / 2, (width - rgb.width) / 2];
    placed(rgb, [height, width], corner, colour)
}

/// The picture in the first corner of a black one of `size`.
pub(super) fn padded(rgb: &Rgb, size: [usize; 2]) -> Rgb {
    placed(rgb, size, [0; 2], [0; 3])
}

/// The picture in one of `size` and one colour, from this row and column on.
fn placed(rgb: &Rgb, [height, width]: [usize; 2], [top, left]: [usize; 2], colour: [u8; 3]) -> Rgb {
    let mut pixels = colour.repeat(height * width);
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

/// The tiles of a picture that is stretched to a grid of them.
pub(super) fn with_tiles(rgb: &Rgb, grid: [usize; 2], tile: usize, kernel: Kernel) -> Views {
    let [height, width] = grid.map(|count| count * tile);
    let tiles = tiles(&resize(rgb, width, height, kernel), [tile; 2]);
    Views { tiles, columns: grid[1], ..Views::default() }
}

/// The same beside the `whole`, which is a tile, also of a single one; without a grid the whole alone.
pub(super) fn with_whole(rgb: &Rgb, grid: Option<[usize; 2]>, whole: Rgb, kernel: Kernel) -> Views {
    let Some(grid) = grid else { return Views::one(whole) };
    let views = with_tiles(rgb, grid, whole.width, kernel);
    Views { whole: Some(whole), ..views }
}

/// The tiles of a picture that is stretched to a grid of them, and the whole if there are several.
pub(super) fn paged(rgb: &Rgb, grid: [usize; 2], tile: [usize; 2], kernel: Kernel) -> Views {
    let views = stretched(rgb, grid, tile, kernel);
    if !views.tiles.is_empty() {
        return views;
    }
    Views { tiles: views.whole.into_iter().collect(), columns: 1, ..Views::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_make_the_picture_again_that_they_were_cut_from() {
        let pixels = (0..3 * 6 * 4).collect();
        let rgb = Rgb { width: 6, height: 4, pixels };
        assert_eq!(stitched(&tiles(&rgb, [2, 3]), 2), rgb);
    }

    #[test]
    fn quarters_stand_before_the_whole_and_end_with_whole_tokens() {
        let rgb = Rgb { width: 22, height: 11, pixels: vec![9; 3 * 22 * 11] };
        let size = |rgb: &Rgb| (rgb.width, rgb.height);
        let views = bounded(&rgb, [6, 16], 4, true, Kernel::Bilinear);
        let tiles: Vec<_> = views.tiles.iter().map(size).collect();
        assert_eq!(tiles, [(8, 4); 4]);
        assert_eq!(views.whole.as_ref().map(size), Some((16, 8)));
        assert!(bounded(&rgb, [6, 16], 4, false, Kernel::Bilinear).tiles.is_empty());
    }
}
