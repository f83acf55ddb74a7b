//! The sizes of prepared pictures, heights first, in the arithmetic of transformers.

use std::ops::Range;

use super::error::PictureError;

/// The largest ratio of the sides of a picture, where its size depends on it.
const MAX_RATIO: u32 = 200;
/// Pixels of a side of a square that holds as many as a picture may have that is only glanced at: what
/// OpenAI's `low` looks at.
pub(super) const LOW_DETAIL_SIDE: usize = 512;

/// Refuses sides whose ratio is too large.
pub(super) fn check_ratio(sides: [usize; 2]) -> Result<(), PictureError> {
    let [long, short] = [sides[0].max(sides[1]), sides[0].min(sides[1])];
    if long <= short * MAX_RATIO as usize {
        return Ok(());
    }
    let [height, width] = sides.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    Err(PictureError::TooLong { width, height, most: MAX_RATIO })
}

/// Height and width by transformers' `smart_resize`, of which there are two: sides are at least
/// `smallest` before their number of pixels is judged.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pictures have fewer than 2^32 pixels"
)]
pub(super) fn smart(
    sides: [usize; 2],
    side: usize,
    [least, most]: [usize; 2],
    smallest: usize,
) -> Result<[usize; 2], PictureError> {
    check_ratio(sides)?;
    let factor = side as f64;
    let pixels = (sides[0] * sides[1]) as f64;
    let scaled = |scale: f64, round: fn(f64) -> f64| {
        sides.map(|side| (round(side as f64 * scale / factor) * factor) as usize)
    };
    // Python rounds halves to even.
    let mut prepared = scaled(1.0, f64::round_ties_even).map(|own| own.max(smallest));
    if prepared[0] * prepared[1] > most {
        let beta = (pixels / most as f64).sqrt();
        let floor = |side: usize| ((side as f64 / beta / factor).floor() * factor) as usize;
        prepared = sides.map(|own| floor(own).max(side));
    } else if prepared[0] * prepared[1] < least {
        prepared = scaled((least as f64 / pixels).sqrt(), f64::ceil);
    }
    Ok(prepared.map(|own| own.max(side)))
}

/// Height and width, enlarged so that no side is shorter than `shortest`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn at_least(sides: [usize; 2], shortest: usize) -> [usize; 2] {
    let scale = sides.map(|side| shortest as f64 / side as f64).into_iter().fold(1.0, f64::max);
    sides.map(|side| (side as f64 * scale) as usize)
}

/// Height and width, of which first the one and then the other is enlarged to `shortest` if it is
/// shorter, with the ratio of the sides.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn enlarged([height, width]: [usize; 2], shortest: usize) -> [usize; 2] {
    let other = |own: usize, short: usize| {
        ((own * shortest) as f64 / short as f64).round_ties_even() as usize
    };
    let [height, width] =
        if height < shortest { [shortest, other(width, height)] } else { [height, width] };
    if width < shortest { [other(height, width), shortest] } else { [height, width] }
}

/// The fewest and most pixels of a picture that is only glanced at.
pub(super) fn few_pixels([least, most]: [usize; 2]) -> [usize; 2] {
    [least, most.min((LOW_DETAIL_SIDE * LOW_DETAIL_SIDE).max(least))]
}

/// Pixels once both sides are rounded to multiples of `side`, or are at least `smallest`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn rounded_area(sides: [usize; 2], side: usize, smallest: usize) -> usize {
    let rounded = |own: usize| (own as f64 / side as f64).round_ties_even() as usize * side;
    sides.map(|own| rounded(own).max(smallest)).iter().product()
}

/// Height and width whose shorter one is `shortest`, with the ratio of the sides.
pub(super) fn covering(sides: [usize; 2], shortest: usize) -> Result<[usize; 2], PictureError> {
    check_ratio(sides)?;
    let short = sides[0].min(sides[1]);
    Ok(sides.map(|side| shortest * side / short))
}

/// Height and width within a square, as multiples of `side`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn within(sides: [usize; 2], longest: usize, side: usize) -> [usize; 2] {
    let ratio = sides.map(|own| own as f64 / longest as f64).into_iter().fold(0.0, f64::max);
    let reduced =
        sides.map(|own| if ratio > 1.0 { (own as f64 / ratio).floor() as usize } else { own });
    reduced.map(|own| own.div_ceil(side).max(1) * side)
}

/// Height and width as multiples of `side`, with the ratio of the sides as nearly as at most so many
/// `tokens` allow.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn filled(sides: [usize; 2], tokens: usize, side: usize) -> [usize; 2] {
    let most = (tokens * side * side) as f64;
    let factor = (most / (sides[0] * sides[1]) as f64).sqrt();
    let counts = sides.map(|own| (factor * own as f64 / side as f64).floor() as usize);
    let counts = match counts {
        [0, _] => [1, (sides[1] / sides[0]).clamp(1, tokens)],
        [_, 0] => [(sides[0] / sides[1]).clamp(1, tokens), 1],
        counts => counts,
    };
    counts.map(|count| count * side)
}

/// The other side where `long`, of sides with this ratio, becomes `to`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn other_side([height, width]: [usize; 2], to: usize) -> usize {
    let ratio = width as f64 / height as f64;
    if width >= height { (to as f64 / ratio) as usize } else { (to as f64 * ratio) as usize }
}

/// Height and width whose longer one is `longest`, the other one even.
pub(super) fn with_longest(sides: [usize; 2], longest: usize) -> [usize; 2] {
    let other = other_side(sides, longest);
    let other = (other + other % 2).max(1);
    if sides[1] >= sides[0] { [other, longest] } else { [longest, other] }
}

/// Height and width whose longer one is `longest`, to the nearest whole numbers, of which none is below
/// `smallest`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn with_longest_near(sides: [usize; 2], longest: usize, smallest: usize) -> [usize; 2] {
    let delta = longest as f64 / sides[0].max(sides[1]) as f64;
    sides.map(|own| ((own as f64 * delta).round_ties_even() as usize).max(smallest))
}

/// Height and width, reduced so that no side is longer than `longest`.
pub(super) fn at_most(sides: [usize; 2], longest: usize) -> [usize; 2] {
    if sides[0].max(sides[1]) <= longest {
        return sides;
    }
    let other = other_side(sides, longest).max(1);
    if sides[1] >= sides[0] { [other, longest] } else { [longest, other] }
}

/// The size in which most of the pixels can be seen, and of several the one with the fewest others.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn best_size(sides: [usize; 2], known: &[[usize; 2]]) -> Option<[usize; 2]> {
    let all = sides[0] * sides[1];
    let seen = |size: &[usize; 2]| {
        let scale = (size[1] as f64 / sides[1] as f64).min(size[0] as f64 / sides[0] as f64);
        let area = sides.map(|own| (own as f64 * scale) as usize).iter().product::<usize>();
        area.min(all)
    };
    let rank = |size: &&[usize; 2]| (seen(size), std::cmp::Reverse(size[0] * size[1] - seen(size)));
    // Of equals the first is taken.
    known.iter().rev().max_by_key(rank).copied()
}

/// Height and width of a picture that is reduced or enlarged to fit into `size`.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn inside(sides: [usize; 2], size: [usize; 2]) -> [usize; 2] {
    let scales = [0, 1].map(|axis| size[axis] as f64 / sides[axis] as f64);
    let other =
        |axis: usize, scale: f64| ((sides[axis] as f64 * scale).ceil() as usize).min(size[axis]);
    if scales[1] < scales[0] {
        [other(0, scales[1]), size[1]]
    } else {
        [size[0], other(1, scales[0])]
    }
}

/// Which rows and columns of a grid of tokens show a picture with these sides in its middle.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn shown(sides: [usize; 2], grid: [usize; 2]) -> [Range<usize>; 2] {
    let ratio = |sides: [usize; 2]| sides[1] as f64 / sides[0] as f64;
    let wide = ratio(sides) > ratio(grid);
    let (long, short) = if wide { (1, 0) } else { (0, 1) };
    let length = sides[short] as f64 * (grid[long] as f64 / sides[long] as f64);
    // The reference rounds to seven places before it cuts off the rest.
    let length = ((length * 1e7).round_ties_even() / 1e7) as usize;
    let around = grid[short].saturating_sub(length) / 2;
    let mut shown = grid.map(|count| 0..count);
    shown[short] = around..grid[short] - around;
    shown
}

/// Height and width of the grid of at most so many tiles that a picture fits by the least change of its
/// size, enlarged rather than reduced; of several the one with the fewest pixels. The reference computes
/// scales in f32.
#[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
pub(super) fn best_grid(sides: [usize; 2], tile: usize, most: usize, enlarges: bool) -> [usize; 2] {
    let scale = |size: &[usize; 2]| {
        let [height, width] = [0, 1].map(|axis| size[axis] as f32 / sides[axis] as f32);
        height.min(width)
    };
    let all = (1..=most).flat_map(|rows| (1..=most / rows).map(move |columns| [rows, columns]));
    let canvases: Vec<_> = all.map(|grid| grid.map(|count| count * tile)).collect();
    let scales = || canvases.iter().map(scale);
    let least = scales().filter(|scale| *scale >= 1.0).reduce(f32::min);
    let largest = scales().fold(0.0, f32::max);
    let chosen = if enlarges { largest } else { least.unwrap_or(largest) };
    let fits = |size: &&[usize; 2]| scale(size).to_bits() == chosen.to_bits();
    let smallest = canvases.iter().filter(fits).min_by_key(|size| size[0] * size[1]);
    smallest.copied().unwrap_or([tile; 2])
}

/// Rows and columns of the grid of at most so many tiles that a picture must be enlarged least to fill
/// by one side, or reduced least where all are smaller; of several the one with the fewest tiles, then
/// columns.
#[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
pub(super) fn least_enlarging(sides: [usize; 2], tile: usize, most: usize) -> [usize; 2] {
    let scale = |grid: &[usize; 2]| {
        let [rows, columns] = [0, 1].map(|axis| (grid[axis] * tile) as f64 / sides[axis] as f64);
        rows.min(columns)
    };
    let all = (1..=most).flat_map(|columns| (1..=most / columns).map(move |rows| [rows, columns]));
    let mut grids: Vec<_> = all.collect();
    grids.sort_by_key(|[rows, columns]| rows * columns);
    let enlarging = grids.iter().filter(|grid| scale(grid) >= 1.0);
    let least = enlarging.min_by(|a, b| scale(a).total_cmp(&scale(b)));
    // Of equals the first is taken, here and there.
    let most = || grids.iter().rev().max_by(|a, b| scale(a).total_cmp(&scale(b)));
    least.or_else(most).copied().unwrap_or([1, 1])
}

/// Height and width of a picture that is reduced or enlarged to fit into `size`, rounded down.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn fitted(sides: [usize; 2], size: [usize; 2]) -> [usize; 2] {
    let scales = [0, 1].map(|axis| size[axis] as f64 / sides[axis] as f64);
    let other = |axis: usize, scale: f64| {
        ((sides[axis] as f64 * scale).floor() as usize).min(size[axis]).max(1)
    };
    if scales[1] < scales[0] {
        [other(0, scales[1]), size[1]]
    } else {
        [size[0], other(1, scales[0])]
    }
}

/// Rows and columns of the grid of tiles whose ratio is nearest to that of the sides; of grids with one
/// ratio the largest that the picture covers half of.
pub(super) fn canvas(sides: [usize; 2], tile: [usize; 2], count: [usize; 2]) -> [usize; 2] {
    canvas_within(sides, tile, count, usize::MAX)
}

/// The same of grids that have at most so many tiles a side.
#[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
pub(super) fn canvas_within(
    sides: [usize; 2],
    tile: [usize; 2],
    [least, most]: [usize; 2],
    longest: usize,
) -> [usize; 2] {
    let ratio = sides[1] as f64 / sides[0] as f64;
    let covered = |count: usize| {
        (sides[0] * sides[1]) as f64 > 0.5 * (tile[0] * tile[1]) as f64 * count as f64
    };
    let (mut best, mut nearest) = ([1, 1], f64::INFINITY);
    let all = (1..=most).flat_map(|columns| (1..=most / columns).map(move |rows| [rows, columns]));
    let fits =
        |[rows, columns]: &[usize; 2]| rows * columns >= least && *rows.max(columns) <= longest;
    let mut grids: Vec<_> = all.filter(fits).collect();
    grids.sort_by_key(|[rows, columns]| rows * columns);
    for [rows, columns] in grids {
        let distance = (ratio - columns as f64 / rows as f64).abs();
        let alike = distance.to_bits() == nearest.to_bits();
        if distance < nearest || (alike && covered(rows * columns)) {
            (best, nearest) = ([rows, columns], distance);
        }
    }
    best
}

/// Height and width, reduced to at most so many `patches` of `patch` pixels a side in all, and in a side.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn reduced(
    sides: [usize; 2],
    patch: usize,
    patches: usize,
    longest: usize,
) -> [usize; 2] {
    let count: usize = sides.map(|own| (own / patch).max(1)).iter().product();
    let scales = sides.map(|own| (longest * patch) as f64 / own as f64);
    let scale = scales.into_iter().fold((patches as f64 / count as f64).sqrt().min(1.0), f64::min);
    sides.map(|own| ((own as f64 * scale) as usize).clamp(1, longest * patch))
}

/// The multiple of `divisor` that is nearest to a length, at least one.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn nearest_multiple(length: usize, divisor: usize) -> usize {
    let count = (length as f64 / divisor as f64).round_ties_even() as usize;
    count.max(1) * divisor
}

/// Height and width as multiples of `side`, with the ratio of the sides: of about the pixels of a square if
/// there are more, or fewer and the picture is enlarged.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn squared(sides: [usize; 2], square: usize, side: usize, enlarges: bool) -> [usize; 2] {
    let [mut height, mut width] = sides;
    if enlarges || height * width > square * square {
        let ratio = width as f64 / height as f64;
        height = (square as f64 / ratio.sqrt()) as usize;
        width = (height as f64 * ratio) as usize;
    }
    [height, width].map(|length| nearest_multiple(length, side))
}

/// Rows and columns of the grid of about as many tiles as the picture has pixels for, of squares and at most
/// so many, whose ratio is nearest to its own; `None`: it has pixels for one alone.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sides are below 2^24"
)]
pub(super) fn slices(sides: [usize; 2], square: usize, most: usize) -> Option<[usize; 2]> {
    let ratio = (sides[1] as f64 / sides[0] as f64).ln();
    let squares = (sides[0] * sides[1]) as f64 / (square * square) as f64;
    let multiple = (squares.ceil() as usize).min(most);
    if multiple <= 1 {
        return None;
    }
    let (mut best, mut nearest) = ([1, 1], f64::INFINITY);
    for count in (multiple - 1..=multiple + 1).filter(|count| *count > 1 && *count <= most) {
        for rows in (1..=count).filter(|rows| count.is_multiple_of(*rows)) {
            let columns = count / rows;
            let distance = (ratio - (columns as f64 / rows as f64).ln()).abs();
            let alike = distance.to_bits() == nearest.to_bits();
            if distance < nearest || (alike && rows > best[0]) {
                (best, nearest) = ([rows, columns], distance);
            }
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_reference() {
        // What transformers' `smart_resize` says.
        let pixels = [56 * 56, 28 * 28 * 1280];
        let sizes = [
            ([56, 56], [56, 56]),
            ([100, 37], [112, 28]),
            ([1, 1], [56, 56]),
            ([3000, 1500], [1400, 700]),
            ([42, 70], [56, 56]),
        ];
        for (sides, expected) in sizes {
            assert_eq!(smart(sides, 28, pixels, 0), Ok(expected), "{sides:?}");
        }
        assert_eq!(smart([3000, 1500], 28, few_pixels(pixels), 0), Ok([700, 336]));
        let long = smart([1, 201], 28, pixels, 0);
        assert_eq!(long, Err(PictureError::TooLong { width: 201, height: 1, most: 200 }));
        // What Gemma 4's `get_aspect_ratio_preserving_size` says.
        let sizes = [([480, 640], [672, 912]), ([10, 4000], [48, 13_440]), ([1, 1], [768, 768])];
        for (sides, expected) in sizes {
            assert_eq!(filled(sides, 280, 48), expected, "{sides:?}");
        }
        // What Pixtral's `get_resize_output_image_size` says.
        let sizes = [([1024, 768], [1036, 784]), ([3000, 17], [1540, 28]), ([1, 1], [28, 28])];
        for (sides, expected) in sizes {
            assert_eq!(within(sides, 1540, 28), expected, "{sides:?}");
        }
    }

    #[test]
    fn grids_of_tiles_are_those_of_the_reference() {
        // What transformers' `get_optimal_tiled_canvas` says.
        let grid = |sides| canvas(sides, [448, 448], [1, 12]);
        assert_eq!(grid([448, 448]), [1, 1]);
        assert_eq!(grid([800, 1300]), [2, 3]);
        assert_eq!(grid([100, 3000]), [1, 12]);
        assert_eq!(grid([2000, 2000]), [3, 3]);
    }

    #[test]
    fn grids_for_padded_pictures_are_those_of_the_reference() {
        // What Llama 4's `get_best_fit` and `get_max_res_without_distortion` say.
        let cases = [
            ([480, 640], [672, 672], [480, 640]),
            ([100, 900], [336, 1008], [100, 900]),
            ([1500, 700], [1680, 1008], [1500, 700]),
            ([50, 50], [336, 336], [336, 336]),
        ];
        for (sides, grid, inner) in cases {
            let best = best_grid(sides, 336, 16, false);
            assert_eq!(best, grid, "{sides:?}");
            let limit = [0, 1].map(|axis: usize| usize::max(sides[axis], 336).min(best[axis]));
            assert_eq!(fitted(sides, limit), inner, "{sides:?}");
        }
        // What GLM-4.1V's `smart_resize` says of two frames.
        let pixels = [112 * 112 / 2, 28 * 28 * 15_000 / 2];
        let cases = [([10, 40], [56, 168]), ([480, 640], [476, 644]), ([3000, 4000], [2100, 2800])];
        for (sides, expected) in cases {
            assert_eq!(smart(at_least(sides, 28), 28, pixels, 0), Ok(expected), "{sides:?}");
        }
    }

    #[test]
    fn a_size_is_chosen_and_filled_as_by_the_reference() {
        // What transformers' `select_best_resolution`, `get_patch_output_size` and `unpad_image` say.
        let sizes = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]];
        let cases = [
            ([480, 640], [672, 672], [504, 672], [6..42, 0..48]),
            ([100, 900], [336, 1008], [113, 1008], [8..16, 0..72]),
            ([900, 500], [672, 672], [672, 374], [0..48, 11..37]),
        ];
        for (sides, size, inner, tokens) in cases {
            let best = best_size(sides, &sizes).unwrap();
            assert_eq!((best, inside(sides, best)), (size, inner), "{sides:?}");
            assert_eq!(shown(sides, size.map(|side| side / 14)), tokens, "{sides:?}");
        }
    }
}
