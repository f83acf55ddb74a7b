//! Streams of hidden states side by side, `[T, C * D]`: weighted sums of a token's streams, streams that go over into
//! each other, and a row that is added to each of them. Hyper-connections have them around each part of a layer: Zhu
//! et al., "Hyper-Connections", 2024.

use candle_core::{Result, Tensor, bail};

use super::args::WeightedRow;
use super::cpu;
use crate::backend::Backend;

/// The sum of each token's streams `x [T, C * D]` with its `weights [T, C]`: `[T, D]`.
///
/// # Errors
///
/// Weights that are not one for each stream of each token.
pub fn sum_streams(x: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let [tokens, count, width] = sizes(x, weights)?;
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            let weighted = rows(weights, |index| index)?;
            let streams = x.reshape((tokens * count, width))?;
            let nothing = Tensor::zeros((tokens, width), x.dtype(), x.device())?;
            cpu::weighted_rows(level, &streams, &weighted, count, &nothing)
        }
        Backend::Cuda | Backend::Portable => {
            let streams = x.reshape((tokens, count, width))?;
            streams.broadcast_mul(&weights.unsqueeze(2)?)?.sum(1)
        }
    }
}

/// Each token's streams `x [T, C * D]` as they go over into each other by its matrix of `mixing [T, C * C]`: stream `to`
/// is the sum of all streams `from` times the element `[from, to]`.
///
/// # Errors
///
/// Matrices that are not one for each token, or not those of `count` streams.
pub fn mix_streams(x: &Tensor, mixing: &Tensor, count: usize) -> Result<Tensor> {
    let (tokens, elements) = x.dims2()?;
    if count == 0 || !elements.is_multiple_of(count) || mixing.dims() != [tokens, count * count] {
        bail!("mix_streams: {:?} by {:?} of {count} streams", x.dims(), mixing.dims());
    }
    let (width, into) =
        (elements / count, mixing.reshape((tokens, count, count))?.transpose(1, 2)?);
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            let weighted = rows(&into, |index| index / (count * count) * count + index % count)?;
            let streams = x.reshape((tokens * count, width))?;
            let nothing = Tensor::zeros((tokens * count, width), x.dtype(), x.device())?;
            cpu::weighted_rows(level, &streams, &weighted, count, &nothing)?.reshape(x.dims())
        }
        Backend::Cuda | Backend::Portable => {
            let streams = x.reshape((tokens, count, width))?;
            let mut sum = x.zeros_like()?.reshape((tokens, count, width))?;
            for from in 0..count {
                let factors = into.narrow(2, from, 1)?;
                sum = (sum + streams.narrow(1, from, 1)?.broadcast_mul(&factors)?)?;
            }
            sum.reshape(x.dims())
        }
    }
}

/// Each token's streams `x [T, C * D]` plus its row of `y [T, D]` with its `weights [T, C]`: `[T, C * D]`.
///
/// # Errors
///
/// Weights that are not one for each stream of each token, rows of another size than streams.
pub fn add_to_streams(x: &Tensor, weights: &Tensor, y: &Tensor) -> Result<Tensor> {
    let [tokens, count, width] = sizes(x, weights)?;
    if y.dims() != [tokens, width] {
        bail!("add_to_streams: {:?} to {tokens} rows of {count} streams of {width}", y.dims());
    }
    match Backend::of(x.device()) {
        Backend::Cpu(level) => {
            let weighted = rows(weights, |index| index / count)?;
            let streams = x.reshape((tokens * count, width))?;
            cpu::weighted_rows(level, y, &weighted, 1, &streams)?.reshape(x.dims())
        }
        Backend::Cuda | Backend::Portable => {
            let added = y.unsqueeze(1)?.broadcast_mul(&weights.unsqueeze(2)?)?;
            x + added.reshape(x.dims())?
        }
    }
}

/// `[T, C, D]` of streams `x [T, C * D]` and `weights [T, C]`.
fn sizes(x: &Tensor, weights: &Tensor) -> Result<[usize; 3]> {
    let ((tokens, elements), (rows, count)) = (x.dims2()?, weights.dims2()?);
    if rows != tokens || count == 0 || elements == 0 || !elements.is_multiple_of(count) {
        bail!("streams {:?} don't go with weights {:?}", x.dims(), weights.dims());
    }
    Ok([tokens, count, elements / count])
}

/// The weights, in their order, and the row that each of them is a factor of.
fn rows(weights: &Tensor, row: impl Fn(usize) -> usize) -> Result<Vec<WeightedRow>> {
    let weights = weights.flatten_all()?.to_vec1::<f32>()?.into_iter().enumerate();
    Ok(weights.map(|(index, weight)| WeightedRow { row: row(index), weight }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, assert_close, bits};

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for (tokens, count, width) in [(1, 1, 1), (3, 4, 16), (70, 3, 39)] {
            let x = random.tensor((tokens, count * width));
            let (weights, y) = (random.tensor((tokens, count)), random.tensor((tokens, width)));
            let streams = x.reshape((tokens, count, width)).unwrap();
            let factors = weights.unsqueeze(2).unwrap();
            let sum = streams.broadcast_mul(&factors).unwrap().sum(1).unwrap();
            assert_close(&sum_streams(&x, &weights).unwrap(), &sum, 1e-5);
            let added = y.unsqueeze(1).unwrap().broadcast_mul(&factors).unwrap();
            let all = (&x + added.reshape(x.dims()).unwrap()).unwrap();
            assert_close(&add_to_streams(&x, &weights, &y).unwrap(), &all, 1e-5);
        }
    }

    #[test]
    fn streams_go_over_into_each_other() {
        let mut random = Random::new(4);
        for (tokens, count, width) in [(1, 1, 3), (5, 3, 20), (70, 4, 39)] {
            let x = random.tensor((tokens, count * width));
            let mixing = random.tensor((tokens, count * count));
            let mixed = mix_streams(&x, &mixing, count).unwrap();
            let into = mixing.reshape((tokens, count, count)).unwrap().transpose(1, 2).unwrap();
            let streams = x.reshape((tokens, count, width)).unwrap();
            let expected = into.contiguous().unwrap().matmul(&streams).unwrap();
            assert_close(&mixed, &expected.reshape(x.dims()).unwrap(), 1e-5);
            let last = |all: &Tensor| all.narrow(0, tokens - 1, 1).unwrap();
            let alone = mix_streams(&last(&x), &last(&mixing), count).unwrap();
            assert_eq!(bits(&alone), bits(&last(&mixed)));
        }
        let x = random.tensor((2, 12));
        assert!(mix_streams(&x, &random.tensor((2, 9)), 4).is_err());
        assert!(mix_streams(&x, &random.tensor((1, 16)), 4).is_err());
    }

    #[test]
    fn a_token_is_the_same_alone_and_in_a_batch() {
        let mut random = Random::new(2);
        let (x, weights) = (random.tensor((40, 4 * 50)), random.tensor((40, 4)));
        let y = random.tensor((40, 50));
        let own = |all: &Tensor| all.narrow(0, 33, 1).unwrap();
        let sum = sum_streams(&own(&x), &own(&weights)).unwrap();
        assert_eq!(bits(&sum), bits(&own(&sum_streams(&x, &weights).unwrap())));
        let added = add_to_streams(&own(&x), &own(&weights), &own(&y)).unwrap();
        assert_eq!(bits(&added), bits(&own(&add_to_streams(&x, &weights, &y).unwrap())));
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let mut random = Random::new(3);
        let (x, weights, y) =
            (random.tensor((2, 12)), random.tensor((2, 3)), random.tensor((2, 4)));
        assert!(sum_streams(&x, &random.tensor((3, 3))).is_err());
        assert!(sum_streams(&x, &random.tensor((2, 5))).is_err());
        assert!(add_to_streams(&x, &weights, &random.tensor((2, 3))).is_err());
        assert!(add_to_streams(&x, &weights, &y).is_ok());
    }
}
