//! The forms of products with packed quantized weights on NVIDIA GPUs.

use super::form::{Form, TILE_THREADS};
use crate::cuda::launch::{Source, source};

pub(super) static SOURCE: Source = source!("linear/packed");

/// Rows of a tile; half of that in each of a gated pair.
const ROWS: usize = 32;
/// Threads that share a tile, by parts of the inputs.
const PARTS: usize = 8;
/// Inputs that are staged come in multiples of this.
const STAGE: usize = 512;
/// Tokens that a block takes at a time, if they are few or if they are many.
pub(crate) const FEW: usize = 8;
const MANY: usize = 64;
/// Tokens whose sums are finished together.
const FINISHED: usize = 16;
/// Least tiles of which two share a block.
const MANY_TILES: usize = 512;
/// Least tokens that are quantized before the launch; of fewer each block quantizes what it reads.
pub(crate) const QUANTIZE_FROM: usize = 4;
/// Most tokens of these kernels; for more of them it is faster to widen the weights and to multiply by
/// cuBLAS.
pub(super) const MOST_TOKENS: usize = 256;

/// The form of a product of tokens with matrices of these many rows, of which a block can have so much
/// shared memory. The source of the kernels has the same numbers.
pub(crate) fn form(
    kind: &str,
    (tokens, inputs): (usize, usize),
    rows: &[usize],
    most_shared: usize,
) -> Form {
    let capacity = if tokens <= FEW { FEW } else { MANY };
    let two = capacity > FEW && rows.iter().sum::<usize>() / ROWS >= MANY_TILES;
    let tiles_at_once = if two { 2 } else { 1 };
    let (own, padded) = (tokens.clamp(1, capacity), inputs.next_multiple_of(STAGE).max(STAGE));
    let token_bytes = |stage: usize| stage / 4 * 5 + 32;
    // As much as leaves room for a second block.
    let room = if two { most_shared } else { most_shared / 2 };
    let (stage, shared) = if own * token_bytes(padded) <= room {
        (padded, own * token_bytes(padded))
    } else {
        let fits = (room / (2 * own)).saturating_sub(32) / 5 * 4 / STAGE * STAGE;
        let stage = fits.max(STAGE);
        (stage, 2 * own * token_bytes(stage))
    };
    let sums = size_of::<f32>() * PARTS * ROWS * capacity.min(FINISHED) * tiles_at_once;
    Form {
        kind: format!("{kind}_{capacity}"),
        capacity,
        tile_rows: ROWS,
        tiles_at_once,
        threads: TILE_THREADS * tiles_at_once,
        shared: shared.max(sums),
        stage,
        shared_in_rounds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::launch::LEAST_SHARED;

    #[test]
    fn blocks_fit_into_shared_memory_with_the_pairs_of_experts() {
        for most_shared in [LEAST_SHARED, 163 << 10, 227 << 10] {
            for tokens in (1..=66).chain([256, 4000]) {
                for inputs in [32, 512, 544, 4096, 14_336, 200_000] {
                    for rows in [[16, 0, 0], [4096, 1024, 1024], [150_000, 0, 0]] {
                        let form = form("q4_k", (tokens, inputs), &rows, most_shared - 512);
                        assert!(form.shared + 512 <= most_shared, "{tokens} {inputs} {rows:?}");
                        assert!(form.stage >= STAGE && form.stage.is_multiple_of(STAGE));
                    }
                }
            }
        }
    }
}
