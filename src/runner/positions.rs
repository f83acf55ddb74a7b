//! Where a token is for a rotary embedding that tells time, rows and columns apart.
//!
//! Wang et al., "Qwen2-VL", 2024: a text goes on in all three directions alike; a picture stands still
//! in time and counts its rows and columns from where it begins; what follows it begins behind its
//! longer side.

use crate::scheduler::output::MediaSpan;

/// The place in time, the row and the column of the token at `position` of a sequence with these
/// `media`, in order of position.
pub(super) fn rope_position(media: &[MediaSpan], position: usize) -> [u32; 3] {
    let narrow = |n: usize| u32::try_from(n).expect("positions are below 2^32");
    // By how much the pictures so far are shorter than their tokens.
    let mut saved = 0;
    for span in media.iter().take_while(|span| span.offset <= position) {
        if position < span.end() {
            let (start, index) = (span.offset - saved, position - span.offset);
            return [start, start + index / span.columns, start + index % span.columns].map(narrow);
        }
        saved += span.rows * span.columns - span.rows.max(span.columns);
    }
    [narrow(position - saved); 3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_on_behind_the_longer_side_of_each_picture() {
        let spans = [MediaSpan::whole(2, [2, 3], [0; 16]), MediaSpan::whole(8, [4, 1], [0; 16])];
        let places: Vec<_> = (0..14).map(|position| rope_position(&spans, position)).collect();
        let first = [[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]];
        let second = [[5, 5, 5], [5, 6, 5], [5, 7, 5], [5, 8, 5]];
        assert_eq!(places[..2], [[0; 3], [1; 3]]);
        assert_eq!(places[2..8], first);
        assert_eq!(places[8..12], second);
        assert_eq!(places[12..], [[9; 3], [10; 3]]);
    }
}
