//! The way of pictures into a prompt: a template leaves one token for each picture, in whose place the
//! text has what the picture's processor wants there; tokenized, it has a token for each of the
//! picture's.

use super::picture::PlacedPicture;
use super::wording::{Piece, Prepared};

/// How the tokens are written that pictures have.
#[derive(Clone, Copy)]
pub struct Spelling<'a> {
    /// The token that a template leaves for a picture.
    pub placeholder: &'a str,
    /// The token that stands for each token of a picture.
    pub image_token: &'a str,
    /// Any other token by its id.
    pub token: &'a dyn Fn(u32) -> String,
}

/// The text with what pictures want in place of their placeholders. Fails with the number of places
/// there are, if it is not that of the pictures.
pub fn expand(text: &str, pictures: &[Prepared], spelling: Spelling<'_>) -> Result<String, usize> {
    let Spelling { placeholder, image_token, token } = spelling;
    let gaps = if placeholder.is_empty() { 0 } else { text.matches(placeholder).count() };
    if gaps != pictures.len() {
        return Err(gaps);
    }
    let mut between = text.split(placeholder);
    let mut expanded = between.next().unwrap_or_default().to_owned();
    for (number, (picture, behind)) in pictures.iter().zip(between).enumerate() {
        for piece in &picture.pieces {
            match piece {
                Piece::Once(text) if expanded.ends_with(text.as_str()) => {}
                Piece::Text(text) | Piece::Once(text) => expanded.push_str(text),
                Piece::Token(id) | Piece::Mark { token: id, .. } => {
                    expanded.push_str(&token(*id));
                }
                Piece::Gap if follows_closely(behind) => expanded.push(' '),
                Piece::Gap => {}
                Piece::Number => expanded.push_str(&number.to_string()),
                Piece::Tokens { part, .. } => expanded.push_str(&image_token.repeat(part.len())),
            }
        }
        expanded.push_str(behind);
    }
    Ok(expanded)
}

/// Whether a text begins with something else than a space, as Python's `\s` knows it, or a mark.
fn follows_closely(text: &str) -> bool {
    let is_space = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    text.chars().next().is_some_and(|c| !is_space(c) && c != '<')
}

/// Where the pictures are among the ids of an expanded text; `None` if `image_token`, or a token that is
/// seen beside it, stands there more often or less often than the pictures have such tokens.
pub fn place(ids: &[u32], image_token: u32, pictures: &[Prepared]) -> Option<Vec<PlacedPicture>> {
    let mut parts = pictures.iter().flat_map(Prepared::seen);
    let marks = pictures.iter().flat_map(Prepared::seen).filter_map(|(token, ..)| token);
    let mut known: Vec<u32> = marks.collect();
    known.push(image_token);
    known.sort_unstable();
    known.dedup();
    let mut placed: Vec<PlacedPicture> = Vec::new();
    let mut end = 0;
    for (offset, _) in ids.iter().enumerate().filter(|(_, id)| known.contains(id)) {
        if offset < end {
            continue;
        }
        let (token, picture, part) = parts.next()?;
        let token = token.unwrap_or(image_token);
        end = offset + part.len();
        if ids.get(offset..end)?.iter().any(|id| *id != token) {
            return None;
        }
        placed.push(PlacedPicture { offset, picture: picture.clone(), part: part.clone() });
    }
    parts.next().is_none().then_some(placed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pictures::picture::{Normalization, Picture, Rgb};

    fn picture(rows: usize, columns: usize) -> Prepared {
        let normalization = Normalization { mean: [0.0; 3], std: [1.0; 3], narrow: false };
        let rgb = Rgb { width: columns, height: rows, pixels: vec![0; rows * columns * 3] };
        let picture = Arc::new(Picture::new(rgb, [rows, columns], &normalization));
        let rows = (0..rows).map(|row| row * columns..(row + 1) * columns);
        let tokens = rows.map(|part| Piece::Tokens { picture: picture.clone(), part });
        let pieces = tokens.flat_map(|tokens| [tokens, Piece::Token(7), Piece::Text("\n".into())]);
        Prepared { pieces: pieces.collect() }
    }

    #[test]
    fn each_place_becomes_what_its_picture_wants() {
        let pictures = [picture(2, 2), picture(1, 3)];
        let token = |id: u32| format!("<{id}>");
        let spelling = Spelling { placeholder: "<p>", image_token: "<i>", token: &token };
        let text = expand("a<p>b<p>", &pictures, spelling).unwrap();
        assert_eq!(text, "a<i><i><7>\n<i><i><7>\nb<i><i><i><7>\n");
        let numbered = pictures.clone().map(|mut picture| {
            picture.pieces = vec![Piece::Number];
            picture
        });
        assert_eq!(expand("a<p>b<p>", &numbered, spelling).unwrap(), "a0b1");
        assert_eq!(expand("<p>", &pictures, spelling), Err(1));
        assert_eq!(expand("", &pictures, Spelling { placeholder: "", ..spelling }), Err(0));
    }

    #[test]
    fn marks_stand_once_and_words_apart() {
        let mut one = picture(1, 1);
        one.pieces.insert(0, Piece::Once("<f>".into()));
        one.pieces.truncate(2);
        one.pieces.extend([Piece::Text("<f>".into()), Piece::Gap]);
        let token = |id: u32| format!("<{id}>");
        let spelling = Spelling { placeholder: "<p>", image_token: "<i>", token: &token };
        let said = |text: &str, count| expand(text, &vec![one.clone(); count], spelling).unwrap();
        assert_eq!(said("a<p><p>b", 2), "a<f><i><f><i><f> b");
        assert_eq!(said("<f><p> b", 1), "<f><i><f> b");
        assert_eq!(said("<p><e>", 1), "<f><i><f><e>");
        assert_eq!(said("<p>", 1), "<f><i><f>");
    }

    #[test]
    fn tokens_that_are_seen_beside_a_picture_are_placed_too() {
        let normalization = Normalization { mean: [0.0; 3], std: [1.0; 3], narrow: false };
        let mark = |index, token| {
            let picture = Arc::new(Picture::of_mark(index, &normalization));
            Piece::Mark { picture, part: 0..1, token }
        };
        let mut one = picture(1, 2);
        one.pieces.truncate(1);
        one.pieces.insert(0, mark(0, 5));
        one.pieces.push(mark(1, 6));
        let one = [one];
        let placed = place(&[1, 5, 9, 9, 6, 2], 9, &one).unwrap();
        let at: Vec<_> = placed.iter().map(|one| (one.offset, one.picture.mark())).collect();
        assert_eq!(at, [(1, Some(0)), (2, None), (4, Some(1))]);
        assert_eq!(place(&[5, 1, 5, 9, 9, 6], 9, &one), None);
        assert_eq!(place(&[5, 9, 9, 6, 6], 9, &one), None);
    }

    #[test]
    fn tokens_are_those_of_the_pictures_in_order() {
        let pictures = [picture(2, 2), picture(1, 3)];
        let placed = place(&[1, 9, 9, 7, 9, 9, 7, 9, 9, 9, 7], 9, &pictures).unwrap();
        let at: Vec<_> = placed.iter().map(|placed| (placed.offset, placed.part.clone())).collect();
        assert_eq!(at, [(1, 0..2), (4, 2..4), (7, 0..3)]);
        assert_eq!(place(&[9, 9, 7, 9, 9], 9, &pictures), None);
        assert_eq!(place(&[9, 9, 9, 9, 9, 9, 9, 9], 9, &pictures), None);
        assert_eq!(place(&[9, 7, 9, 9, 9, 9, 9, 9], 9, &pictures), None);
    }
}
