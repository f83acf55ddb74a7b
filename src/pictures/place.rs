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
    for (picture, behind) in pictures.iter().zip(between) {
        for piece in &picture.pieces {
            match piece {
                Piece::Text(text) => expanded.push_str(text),
                Piece::Token(id) => expanded.push_str(&token(*id)),
                Piece::Tokens { part, .. } => expanded.push_str(&image_token.repeat(part.len())),
            }
        }
        expanded.push_str(behind);
    }
    Ok(expanded)
}

/// Where the pictures are among the ids of an expanded text; `None` if `image_token` stands there more
/// often or less often than the pictures have tokens.
pub fn place(ids: &[u32], image_token: u32, pictures: &[Prepared]) -> Option<Vec<PlacedPicture>> {
    let mut parts = pictures.iter().flat_map(Prepared::parts);
    let mut placed: Vec<PlacedPicture> = Vec::new();
    let mut end = 0;
    for (offset, _) in ids.iter().enumerate().filter(|(_, id)| **id == image_token) {
        if offset < end {
            continue;
        }
        let (picture, part) = parts.next()?;
        end = offset + part.len();
        if ids.get(offset..end)?.iter().any(|id| *id != image_token) {
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
        assert_eq!(expand("<p>", &pictures, spelling), Err(1));
        assert_eq!(expand("", &pictures, Spelling { placeholder: "", ..spelling }), Err(0));
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
