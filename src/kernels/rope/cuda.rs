//! Rotary angles on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor, bail};

use super::args::AngleParams;
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};

static SOURCE: Source = source!("rope/kernel");

kernel_struct! {
    struct Angles {
        positions: Address,
        lengths: Address,
        frequencies: Address,
        beyond: Address,
        longest: u32,
        pairs: u32,
        magnitude: f32,
        cos: Address,
        sin: Address,
        query_scale: Address,
        beta: f32,
        every: f32,
        first: f32,
    }
}

/// Cosines and sines `[T, pairs]` and, if there is one, the query scale `[T, 1, 1]`, of tokens at
/// `positions [T]` of sequences of `lengths [T]` (both u32).
pub(super) fn angles(
    positions: &Tensor,
    lengths: &Tensor,
    params: &AngleParams<'_>,
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let (tokens, pairs) = (positions.dims1()?, params.frequencies.dims1()?);
    let beyond = params.beyond.map(|(_, frequencies)| frequencies);
    if lengths.dims() != [tokens] || beyond.is_some_and(|beyond| beyond.dims() != [pairs]) {
        bail!("angles: {tokens} positions with {:?} lengths", lengths.dims());
    }
    let device = positions.device();
    let [cos, sin] = [(); 2].map(|()| output_buffer((tokens, pairs), DType::F32, device));
    let (cos, sin) = (cos?, sin?);
    let query_scale = params.query_scale.map(|_| output_buffer((tokens, 1, 1), DType::F32, device));
    let query_scale = query_scale.transpose()?;
    let write = |tensor: &Tensor| Address::to_write(tensor, DType::F32);
    let [beta, every, first] = params.query_scale.unwrap_or([0.0, 1.0, 0.0]);
    let frequencies = Address::of(params.frequencies, DType::F32)?;
    let arguments = Angles {
        positions: Address::of(positions, DType::U32)?,
        lengths: Address::of(lengths, DType::U32)?,
        frequencies,
        beyond: beyond.map_or(Ok(frequencies), |beyond| Address::of(beyond, DType::F32))?,
        longest: params.beyond.map_or(Ok(u32::MAX), |(longest, _)| narrow(longest))?,
        pairs: narrow(pairs)?,
        magnitude: params.magnitude,
        cos: write(&cos)?,
        sin: write(&sin)?,
        query_scale: query_scale.as_ref().map_or(Ok(Address::NONE), write)?,
        beta,
        every,
        first,
    };
    let grid = [tokens, 1, 1];
    let launch = Launch { source: &SOURCE, kernel: "angles", grid, threads: 64, shared: 0 };
    // SAFETY: the shapes were checked.
    unsafe { launch.run(device, arguments)? };
    Ok((cos, sin, query_scale))
}
