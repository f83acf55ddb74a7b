//! The pictures and sounds of a prompt as the scheduler sees them: where they are, and that they are equal or not.

use crate::kv_cache::block_hash::BlockHash;

/// A picture or a sound in a prompt, or a part of one: consecutive tokens, of a picture a grid in rows from the
/// top, of a sound one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaSpan {
    /// The position of its first token.
    pub offset: usize,
    /// Rows of its grid.
    pub rows: usize,
    /// Columns of its grid.
    pub columns: usize,
    /// Equal for equal pictures and sounds alone.
    pub digest: [u8; 16],
    /// Which of its tokens is the first one here.
    pub first: usize,
    /// Whether the tokens see all of the span, also what stands behind them: then a step that computes
    /// any of them computes all up to the last.
    pub two_way: bool,
}

impl MediaSpan {
    /// A whole picture or sound whose tokens see what stands before them alone.
    pub fn whole(offset: usize, [rows, columns]: [usize; 2], digest: [u8; 16]) -> Self {
        Self { offset, rows, columns, digest, first: 0, two_way: false }
    }

    /// The position behind its last token.
    pub fn end(&self) -> usize {
        self.offset + self.rows * self.columns
    }
}

/// The hash of the block of `tokens` at position `start` behind the blocks of `parent`, in a prompt
/// with these `media`.
pub(super) fn chain(
    parent: BlockHash,
    tokens: &[u32],
    start: usize,
    media: &[MediaSpan],
) -> BlockHash {
    let small = |n: usize| u32::try_from(n).expect("positions are below 2^32");
    let end = start + tokens.len();
    let inside = media.iter().filter(|span| span.offset < end && start < span.end());
    let seen = inside.map(|span| {
        let first = span.offset.max(start);
        (span.digest, small(span.first + first - span.offset), small(first - start))
    });
    parent.chain_seeing(tokens, &seen.collect::<Vec<_>>())
}

/// The end of a step's tokens from position `start` on, of a sequence with these `media`, that should
/// be `end`: it is never within a picture that is seen both ways. `most` is the last position at which
/// it may be; `start` itself is the answer where a picture doesn't fit before it.
pub(super) fn whole_media(media: &[MediaSpan], start: usize, end: usize, most: usize) -> usize {
    let cut = |span: &&MediaSpan| span.two_way && span.offset < end && end < span.end();
    match media.iter().find(cut) {
        Some(span) if span.offset > start => span.offset,
        Some(span) if span.end() <= most => span.end(),
        Some(_) => start,
        None => end,
    }
}

/// How many of the positions from `start` to `end` are before the first token of a picture or a sound.
pub(super) fn before_media(media: &[MediaSpan], start: usize, end: usize) -> usize {
    let next = media.iter().find(|span| start < span.end());
    next.map_or(end, |span| span.offset.clamp(start, end)) - start
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: [MediaSpan; 2] = [
        MediaSpan { offset: 3, rows: 2, columns: 2, digest: [1; 16], first: 0, two_way: true },
        MediaSpan { offset: 9, rows: 1, columns: 2, digest: [2; 16], first: 0, two_way: false },
    ];

    #[test]
    fn a_step_ends_before_or_behind_a_picture_that_is_seen_both_ways() {
        let end = |start, end, most| whole_media(&SPANS, start, end, most);
        assert_eq!([end(0, 3, 20), end(0, 5, 20), end(0, 7, 20), end(0, 10, 20)], [3, 3, 7, 10]);
        assert_eq!([end(3, 5, 20), end(3, 5, 7), end(3, 5, 6), end(5, 6, 20)], [7, 7, 3, 7]);
    }

    #[test]
    fn a_part_of_a_picture_knows_which_part_it_is() {
        let of = |first| {
            let part = MediaSpan { first, ..MediaSpan::whole(1, [1, 3], [5; 16]) };
            chain(BlockHash::root(None), &[0; 4], 0, &[part])
        };
        assert_ne!(of(0), of(3));
        assert_eq!(of(3), BlockHash::root(None).chain_seeing(&[0; 4], &[([5; 16], 3, 1)]));
    }

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
        let count = |start, end| before_media(&SPANS, start, end);
        assert_eq!([count(0, 2), count(0, 8), count(3, 8), count(5, 20)], [2, 3, 0, 0]);
        assert_eq!([count(7, 20), count(9, 10), count(11, 20)], [2, 0, 9]);
    }
}
