//! The places of pictures among the tokens of a prompt: a template leaves one token for each picture,
//! where as many are needed as the picture has.

use std::sync::Arc;

use crate::pictures::picture::{Picture, PlacedPicture};

/// The prompt with a token in `image_token` for each token of a picture, and where the pictures are.
/// Fails with the number of places there are, if it is not that of the pictures.
pub(crate) fn expand(
    token_ids: &[u32],
    image_token: u32,
    pictures: Vec<Arc<Picture>>,
) -> Result<(Vec<u32>, Vec<PlacedPicture>), usize> {
    let gaps = token_ids.iter().filter(|token| **token == image_token).count();
    if gaps != pictures.len() {
        return Err(gaps);
    }
    let more: usize = pictures.iter().map(|picture| picture.num_tokens()).sum();
    let mut expanded = Vec::with_capacity(token_ids.len() + more);
    let mut placed = Vec::with_capacity(pictures.len());
    let mut pictures = pictures.into_iter();
    for token in token_ids {
        let next = if *token == image_token { pictures.next() } else { None };
        let Some(picture) = next else {
            expanded.push(*token);
            continue;
        };
        let offset = expanded.len();
        expanded.resize(offset + picture.num_tokens(), image_token);
        placed.push(PlacedPicture { offset, picture });
    }
    Ok((expanded, placed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pictures::picture::{Normalization, Rgb};

    fn picture(rows: usize, columns: usize) -> Arc<Picture> {
        let normalization = Normalization { mean: [0.0; 3], std: [1.0; 3] };
        let rgb = Rgb { width: columns, height: rows, pixels: vec![0; rows * columns * 3] };
        Arc::new(Picture::new(rgb, [rows, columns], &normalization))
    }

    #[test]
    fn each_place_becomes_as_many_tokens_as_its_picture_has() {
        let (tokens, placed) =
            expand(&[1, 9, 2, 9], 9, vec![picture(1, 2), picture(3, 1)]).unwrap();
        assert_eq!(tokens, [1, 9, 9, 2, 9, 9, 9]);
        assert_eq!(placed.iter().map(|placed| placed.offset).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(expand(&[1, 9, 9], 9, vec![picture(1, 1)]), Err(2));
        assert_eq!(expand(&[1], 9, vec![picture(1, 1)]), Err(0));
    }
}
