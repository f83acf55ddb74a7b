//! From a call's tensors to the pass over its tokens, on the CPU.

use candle_core::{Result, Tensor};
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::{KvCache, NAME, Projections, Rotation};
use super::tokens::{Angles, Norm, Queries, Tokens};
use crate::kernels::cache::kv_format::{CacheShape, KvFormat};
use crate::kernels::cpu::Level;
use crate::kernels::storage::{self, Rows};

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
    let mut queries = Vec::new();
    with_rows(new, |q, k, v| {
        with_angles(rotation, |angles| {
            let tokens = Tokens { level, q, k, v, angles, heads, shape, slots };
            queries = match shape.format {
                KvFormat::F32 => tokens.apply::<f32>(cache)?,
                KvFormat::F16 => tokens.apply::<f16>(cache)?,
                KvFormat::Bf16 => tokens.apply::<bf16>(cache)?,
                KvFormat::Fp8 => tokens.apply::<F8E4M3>(cache)?,
                KvFormat::Q8_0 => tokens.apply::<u8>(cache)?,
            };
            Ok(())
        })
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), new.q.device())
}

/// Normalizes and rotates queries by the kernels of a level, with checked arguments.
pub(super) fn prepare_queries(level: Level, q: &Tensor, rotation: Rotation<'_>) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let mut queries = Vec::new();
    storage::read(NAME, q, |q, layout| {
        let q = Rows::of(NAME, q, layout)?;
        with_angles(rotation, |angles| {
            queries = Queries { level, q, angles, heads, head_dim }.run(tokens);
            Ok(())
        })
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), q.device())
}

fn with_rows(
    new: Projections<'_>,
    work: impl FnOnce(Rows<'_>, Rows<'_>, Rows<'_>) -> Result<()>,
) -> Result<()> {
    storage::read(NAME, new.q, |q, q_layout| {
        storage::read(NAME, new.k, |k, k_layout| {
            storage::read(NAME, new.v, |v, v_layout| {
                work(
                    Rows::of(NAME, q, q_layout)?,
                    Rows::of(NAME, k, k_layout)?,
                    Rows::of(NAME, v, v_layout)?,
                )
            })
        })
    })
}

fn with_angles(rotation: Rotation<'_>, work: impl FnOnce(Angles<'_>) -> Result<()>) -> Result<()> {
    storage::read(NAME, rotation.cos, |cos, cos_layout| {
        storage::read(NAME, rotation.sin, |sin, sin_layout| {
            let (cos, sin) = (Rows::of(NAME, cos, cos_layout)?, Rows::of(NAME, sin, sin_layout)?);
            let Some(norms) = rotation.norms else {
                return work(Angles { cos, sin, norms: None });
            };
            storage::read(NAME, norms.query, |query, query_layout| {
                storage::read(NAME, norms.key, |key, key_layout| {
                    let query = storage::contiguous::<f32>(NAME, query, query_layout)?;
                    let key = storage::contiguous::<f32>(NAME, key, key_layout)?;
                    let (eps, after_rotation) = (norms.eps, norms.after_rotation);
                    let query = Norm { weight: query, eps, after_rotation };
                    let key = Norm { weight: key, ..query };
                    work(Angles { cos, sin, norms: Some((query, key)) })
                })
            })
        })
    })
}
