//! Grids of tiles that a picture is cut to, and what becomes of their tokens, heights and rows first, in the
//! arithmetic of transformers.

/// Rows and columns of tokens that those of tiles of `side` tokens a side are reduced to, if there are many more
/// than so many tiles have.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens are far below 2^24"
)]
pub(super) fn fewer(grid: [usize; 2], tiles: usize, side: usize) -> Option<[usize; 2]> {
    let ratio = ((grid[0] * grid[1]) as f64 / (tiles * side * side) as f64).sqrt();
    // The quotient that Python's `//` rounds down.
    let reduced = |own: usize| {
        let own = own as f64;
        (((own - own % ratio) / ratio).round() as usize).max(1)
    };
    (ratio > 1.1).then(|| grid.map(reduced))
}

/// All grids of so many tiles at most, with the fewest first, and of equals those with the fewest columns.
fn grids(most: usize) -> Vec<[usize; 2]> {
    let all = (1..=most).flat_map(|columns| (1..=most / columns).map(move |rows| [rows, columns]));
    let mut grids: Vec<_> = all.collect();
    grids.sort_by_key(|[rows, columns]| rows * columns);
    grids
}

/// Rows and columns of the smallest grid whose cells, each as a square tile with `side` pixels a side would show
/// it, keep nine tenths of the picture; of equals the one that keeps most. If none does, it is the grid that
/// keeps most. The reference takes the rows of the grid that it measures for the columns of the one that it
/// cuts.
#[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
pub(super) fn covering_grid([height, width]: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    const ENOUGH: f64 = 0.9;
    let kept = |lengths: [usize; 2]| {
        let [long, short] = [lengths[0].max(lengths[1]), lengths[0].min(lengths[1])];
        let [long, short, side] = [long as f64, short as f64, side as f64];
        if long > side { side * (short / long * side) } else { long * short }
    };
    let share = |[rows, columns]: [usize; 2]| {
        let cells = move |length: usize, count: usize| {
            let own = length / count;
            (0..count).map(move |at| if at + 1 == count { length - at * own } else { own })
        };
        // What the reference measures as rows, it cuts as columns.
        let areas = cells(height, columns)
            .flat_map(|down| cells(width, rows).map(move |across| [down, across]));
        areas.map(kept).sum::<f64>() / (height * width) as f64
    };
    let shares: Vec<_> = grids(most).into_iter().map(|grid| (grid, share(grid))).collect();
    let count = |grid: &[usize; 2]| grid[0] * grid[1];
    let enough = shares.iter().filter(|(_, kept)| *kept > ENOUGH);
    let smallest = enough.min_by(|a, b| count(&a.0).cmp(&count(&b.0)).then(b.1.total_cmp(&a.1)));
    let fullest = || {
        let all = shares.iter();
        all.min_by(|a, b| b.1.total_cmp(&a.1).then(count(&a.0).cmp(&count(&b.0))))
    };
    smallest.or_else(fullest).map_or([1, 1], |(grid, _)| *grid)
}

/// Rows and columns of the grid of square tiles in which a picture fits whole and becomes largest, or, if it fits
/// none, of the one whose ratio is next to its own on the side of a square.
#[expect(clippy::cast_precision_loss, reason = "sides are below 2^24")]
pub(super) fn fitting_grid([height, width]: [usize; 2], tile: usize, most: usize) -> [usize; 2] {
    let scale = width as f64 / height as f64;
    let known = by_ratio(most);
    let short = |[columns, rows]: [usize; 2]| {
        let [across, down] = [columns, rows].map(|count| (count * tile) as f64);
        let factor = (across / width as f64).min(down / height as f64);
        if scale > 1.0 {
            (factor * width as f64 / scale).floor()
        } else if scale < 1.0 {
            (factor * height as f64 * scale).floor()
        } else {
            factor * height as f64
        }
    };
    let fits = |[columns, rows]: &[usize; 2]| columns * tile >= width && rows * tile >= height;
    let fitting = known.iter().flat_map(|(_, grids)| grids).copied().filter(fits);
    // Of equals the last is taken.
    let best = fitting.max_by(|a, b| short(*a).total_cmp(&short(*b)));
    let [columns, rows] = best.unwrap_or_else(|| nearest_grid(scale, &known));
    [rows, columns]
}

/// Columns and rows of all grids of so many tiles at most, by their ratio, in the order of the reference.
#[expect(clippy::cast_precision_loss, reason = "tiles are few")]
fn by_ratio(most: usize) -> Vec<(f64, Vec<[usize; 2]>)> {
    let mut known: Vec<(f64, Vec<[usize; 2]>)> = Vec::new();
    for count in (1..=most).rev() {
        for columns in (1..=count).filter(|columns| count.is_multiple_of(*columns)) {
            let grid = [columns, count / columns];
            let ratio = grid[0] as f64 / grid[1] as f64;
            match known.iter_mut().find(|(own, _)| own.to_bits() == ratio.to_bits()) {
                Some((_, grids)) => grids.push(grid),
                None => known.push((ratio, vec![grid])),
            }
        }
    }
    known
}

/// Columns and rows of the largest grid of the ratio that is next to one, towards a square if that is wide, and
/// from it if it is high.
fn nearest_grid(scale: f64, known: &[(f64, Vec<[usize; 2]>)]) -> [usize; 2] {
    let wide = scale >= 1.0;
    let apart = |ratio: f64| {
        if wide { (ratio - scale).abs() } else { (1.0 / ratio - 1.0 / scale).abs() }
    };
    let allowed = known.iter();
    let allowed = allowed.filter(|(ratio, _)| if wide { *ratio <= scale } else { *ratio > scale });
    let nearest = allowed.min_by(|a, b| apart(a.0).total_cmp(&apart(b.0)));
    let length = |grid: &&[usize; 2]| grid[usize::from(!wide)];
    nearest.and_then(|(_, grids)| grids.iter().max_by_key(length).copied()).unwrap_or([1, 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_many_tiles_are_reduced_as_by_the_reference() {
        // What LLaVA-OneVision's processor says of tiles of 27 tokens a side.
        assert_eq!(fewer([81, 81], 9, 27), None);
        assert_eq!(fewer([108, 108], 9, 27), Some([81, 81]));
        assert_eq!(fewer([122, 162], 9, 27), Some([70, 93]));
    }

    #[test]
    fn grids_that_keep_a_picture_are_those_of_the_reference() {
        // What Ovis 2's `get_min_tile_covering_grid` says: columns, then rows.
        let cases = [
            ([448, 448], [1, 1]),
            ([800, 1300], [2, 3]),
            ([100, 3000], [1, 7]),
            ([2000, 2000], [3, 3]),
            ([37, 61], [1, 1]),
            ([1000, 450], [3, 1]),
        ];
        for (sides, [columns, rows]) in cases {
            assert_eq!(covering_grid(sides, 448, 9), [rows, columns], "{sides:?}");
        }
    }

    #[test]
    fn grids_that_a_picture_fits_are_those_of_the_reference() {
        // What PerceptionLM's `_fit_image_to_canvas` and `_find_closest_aspect_ratio` say.
        let cases = [
            ([448, 448], [6, 6]),
            ([800, 1300], [5, 7]),
            ([100, 3000], [1, 30]),
            ([37, 61], [5, 7]),
            ([1000, 450], [9, 4]),
            ([5000, 9000], [4, 7]),
            ([20_000, 3000], [13, 2]),
        ];
        for (sides, grid) in cases {
            assert_eq!(fitting_grid(sides, 448, 36), grid, "{sides:?}");
        }
    }
}
