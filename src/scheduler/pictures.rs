//! The pictures of a prompt as the scheduler sees them: where they are, and that they are equal or not.

use crate::kv_cache::block_hash::BlockHash;

/// A picture in a prompt: consecutive tokens, a grid in rows from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureSpan {
    /// The position of its first token.
    pub offset: usize,
    /// Rows of its grid.
    pub rows: usize,
    /// Columns of its grid.
    pub columns: usize,
    /// Equal for equal pictures alone.
    pub digest: [u8; 16],
}

impl PictureSpan {
    /// The position behind its last token.
    pub fn end(&self) -> usize {
        self.offset + self.rows * self.columns
    }
}

/// The hash of the block of `tokens` at position `start` behind the blocks of `parent`, in a prompt
/// with these `pictures`.
pub(super) fn chain(
    parent: BlockHash,
    tokens: &[u32],
    start: usize,
    pictures: &[PictureSpan],
) -> BlockHash {
    let small = |n: usize| u32::try_from(n).expect("positions are below 2^32");
    let end = start + tokens.len();
    let inside = pictures.iter().filter(|span| span.offset < end && start < span.end());
    let seen = inside.map(|span| {
        let first = span.offset.max(start);
        (span.digest, small(first - span.offset), small(first - start))
    });
    parent.chain_seeing(tokens, &seen.collect::<Vec<_>>())
}

/// How many of the positions from `start` to `end` are before the first token of a picture.
pub(super) fn without_pictures(pictures: &[PictureSpan], start: usize, end: usize) -> usize {
    let next = pictures.iter().find(|span| start < span.end());
    next.map_or(end, |span| span.offset.clamp(start, end)) - start
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: [PictureSpan; 2] = [
        PictureSpan { offset: 3, rows: 2, columns: 2, digest: [1; 16] },
        PictureSpan { offset: 9, rows: 1, columns: 2, digest: [2; 16] },
    ];

    #[test]
    fn a_block_knows_the_part_of_a_picture_that_is_in_it() {
        let root = BlockHash::root(None);
        let plain = |start| chain(root, &[0; 4], start, &[]);
        assert_eq!(plain(0), root.chain(&[0; 4]));
        let hashes: Vec<_> = (0..4).map(|at| chain(root, &[0; 4], 4 * at, &SPANS)).collect();
        assert_eq!(hashes[0], root.chain_seeing(&[0; 4], &[([1; 16], 0, 3)]));
        assert_eq!(hashes[1], root.chain_seeing(&[0; 4], &[([1; 16], 1, 0)]));
        assert_eq!(hashes[2], root.chain_seeing(&[0; 4], &[([2; 16], 0, 1)]));
        assert_eq!(hashes[3], plain(12));
    }

    #[test]
    fn tokens_are_comparable_up_to_the_next_picture() {
        let count = |start, end| without_pictures(&SPANS, start, end);
        assert_eq!([count(0, 2), count(0, 8), count(3, 8), count(5, 20)], [2, 3, 0, 0]);
        assert_eq!([count(7, 20), count(9, 10), count(11, 20)], [2, 0, 9]);
    }
}
