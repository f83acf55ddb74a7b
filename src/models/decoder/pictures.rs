//! What a vision tower sees, among the hidden states of a step.
//!
//! The first features of a picture's token are its embedding. DeepStack adds others after each of the
//! first layers: Meng et al., "DeepStack", 2024.

use candle_core::{Result, Tensor, bail};

use crate::layers::forward::{PictureRows, Step};

/// Refuses features of another `width`, or at other rows than those of a step with so many `rows`.
pub(super) fn check(pictures: &[PictureRows], rows: usize, width: usize) -> Result<()> {
    for picture in pictures {
        let (count, features) = picture.features.dims2()?;
        if features != width || picture.first + count > rows {
            let first = picture.first;
            bail!("{count} rows of {features} features at {first}, expected {width} within {rows}");
        }
    }
    Ok(())
}

/// The token ids of a step with `filler` in place of those of pictures, if there are any.
pub(super) fn fill(pictures: &[PictureRows], filler: Option<u32>, step: &Step) -> Option<Vec<u32>> {
    let filler = filler.filter(|_| !pictures.is_empty())?;
    let mut ids = step.input_ids.clone();
    for picture in pictures {
        ids[picture.first..picture.first + picture.len()].fill(filler);
    }
    Some(ids)
}

/// Replaces the embeddings of the pictures' tokens in `x [num_tokens, hidden]`.
pub(super) fn show(x: &mut Tensor, pictures: &[PictureRows]) -> Result<()> {
    for picture in pictures {
        let own = features(picture, x, 0)?;
        x.slice_set(&own, 0, picture.first)?;
    }
    Ok(())
}

/// Adds the features of the pictures' tokens for layer `layer` to its output `x [num_tokens, hidden]`.
pub(super) fn show_again(x: &mut Tensor, pictures: &[PictureRows], layer: usize) -> Result<()> {
    for picture in pictures {
        let own = features(picture, x, layer + 1)?;
        let sum = (x.narrow(0, picture.first, picture.len())? + own)?;
        x.slice_set(&sum, 0, picture.first)?;
    }
    Ok(())
}

/// The `index`-th part of a picture's features, each as wide as `x`.
fn features(picture: &PictureRows, x: &Tensor, index: usize) -> Result<Tensor> {
    let hidden = x.dim(1)?;
    // Those that another rank has sent are on the host.
    picture.features.narrow(1, index * hidden, hidden)?.contiguous()?.to_device(x.device())
}
