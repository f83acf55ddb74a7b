//! What tells one checkpoint from another: a digest that is quick to compute.
//!
//! Names and sizes are equal for all models that were trained from one, so numbers are looked at: all of
//! a small tensor, and pieces of a large one that are spread over it. Training changes nearly all
//! numbers of the tensors that it changes.

use sha2::{Digest, Sha256};

use super::error::WeightError;
use super::tensors::TensorSource;

/// Tensors up to so many bytes are looked at as a whole.
const SMALL: usize = 16 << 10;
/// Pieces of a larger one.
const PIECES: usize = 16;
/// Bytes of a piece.
const PIECE: usize = 256;

/// The digest of a checkpoint: what its configuration says, and its tensors as they are stored.
pub(crate) fn of_checkpoint(
    config: &str,
    tensors: &dyn TensorSource,
) -> Result<[u8; 32], WeightError> {
    let mut hasher = Sha256::new();
    add(&mut hasher, config.as_bytes());
    tensors.for_each_stored(&mut |about, bytes| {
        add(&mut hasher, about.as_bytes());
        add(&mut hasher, &bytes.len().to_le_bytes());
        pieces(bytes).for_each(|piece| hasher.update(piece));
    })?;
    Ok(hasher.finalize().into())
}

/// The digest of an adapter, which is small enough to look at every number.
pub(crate) fn of_adapter(
    config: &str,
    tensors: &dyn TensorSource,
) -> Result<[u8; 16], WeightError> {
    let mut hasher = Sha256::new();
    add(&mut hasher, config.as_bytes());
    tensors.for_each_stored(&mut |about, bytes| {
        add(&mut hasher, about.as_bytes());
        add(&mut hasher, bytes);
    })?;
    let digest = hasher.finalize();
    let mut cut = [0; 16];
    cut.copy_from_slice(&digest[..16]);
    Ok(cut)
}

/// Adds a text of any length, so that no two sequences of texts add the same bytes.
fn add(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// The parts of a tensor that are looked at: its first and its last bytes, and some between.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = (bytes.len() <= SMALL).then_some(bytes);
    let last = bytes.len().saturating_sub(PIECE);
    let starts = (0..PIECES).map(move |index| last / (PIECES - 1) * index);
    let starts = starts.chain([last]).filter(move |_| bytes.len() > SMALL);
    whole.into_iter().chain(starts.map(move |start| &bytes[start..start + PIECE]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::{Device, Tensor};

    use super::super::tensors::MemoryTensors;
    use super::*;

    /// A large and a small tensor, some of whose numbers are changed.
    fn digest(config: &str, change: impl Fn(&mut [f32], &mut [f32])) -> [u8; 32] {
        let (mut large, mut small) = (vec![0.5; 40_000], vec![1.0; 100]);
        change(&mut large, &mut small);
        let tensor = |numbers: Vec<f32>| {
            let count = numbers.len();
            Tensor::from_vec(numbers, count, &Device::Cpu).unwrap()
        };
        let tensors = [("large", tensor(large)), ("small", tensor(small))];
        let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
        of_checkpoint(config, &MemoryTensors::new(HashMap::from(tensors))).unwrap()
    }

    #[test]
    fn training_of_any_tensor_changes_the_digest() {
        let plain = digest("{}", |_, _| {});
        assert_eq!(plain, digest("{}", |_, _| {}));
        assert_ne!(plain, digest("{\"a\":1}", |_, _| {}));
        assert_ne!(plain, digest("{}", |_, small| small[57] = 2.0));
        assert_ne!(plain, digest("{}", |large, _| large[39_999] = 2.0));
        assert_ne!(plain, digest("{}", |large, _| large.iter_mut().for_each(|x| *x += 0.01)));
        let third = |large: &mut [f32], _: &mut [f32]| large[13_000..27_000].fill(0.25);
        assert_ne!(plain, digest("{}", third));
    }
}
