//! From a call's tensors to the pass over its tokens, on the CPU.

use candle_core::{Result, Tensor};
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::{HeadNorms, KvCache, NAME, Projections, Rotation};
use super::tokens::{Angles, Norm, Queries, Tokens};
use crate::cache::kv_format::{CacheShape, KvFormat};
use crate::cpu::Level;
use crate::storage::read;

/// Normalizes, rotates and writes by the kernels of a level, with checked arguments.
pub(super) fn kv_write(
    level: Level,
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: &[u32],
    shape: CacheShape,
) -> Result<Tensor> {
    let (tokens, heads, head_dim) = new.q.dims3()?;
    let [q, k, v] = [new.q, new.k, new.v].map(|tensor| read(NAME, tensor));
    let (q, k, v) = (q.rows()?, k.rows()?, v.rows()?);
    let queries = with_angles(rotation, |angles| {
        let tokens = Tokens { level, q, k, v, angles, heads, shape, slots };
        match shape.format {
            KvFormat::F32 => tokens.apply::<f32>(cache),
            KvFormat::F16 => tokens.apply::<f16>(cache),
            KvFormat::Bf16 => tokens.apply::<bf16>(cache),
            KvFormat::Fp8 => tokens.apply::<F8E4M3>(cache),
            KvFormat::Q8_0 => tokens.apply::<u8>(cache),
        }
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), new.q.device())
}

/// Normalizes and rotates queries by the kernels of a level, with checked arguments.
pub(super) fn prepare_queries(level: Level, q: &Tensor, rotation: Rotation<'_>) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let rows = read(NAME, q);
    let rows = rows.rows()?;
    let queries = with_angles(rotation, |angles| {
        Ok(Queries { level, q: rows, angles, heads, head_dim }.run(tokens))
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), q.device())
}

/// Calls `work` with the elements of a rotation's tensors.
fn with_angles<T>(rotation: Rotation<'_>, work: impl FnOnce(Angles<'_>) -> Result<T>) -> Result<T> {
    let [cos, sin] = [rotation.cos, rotation.sin].map(|tensor| read(NAME, tensor));
    let (cos, sin) = (cos.rows()?, sin.rows()?);
    let Some(HeadNorms { query, key, eps, after_rotation }) = rotation.norms else {
        return work(Angles { cos, sin, norms: None });
    };
    let [query, key] = [query, key].map(|tensor| read(NAME, tensor));
    let query = Norm { weight: query.contiguous()?, eps, after_rotation };
    let key = Norm { weight: key.contiguous()?, ..query };
    work(Angles { cos, sin, norms: Some((query, key)) })
}
