//! Candle's fused attention, which only Metal has, for what it can compute: a query by itself, or
//! the last queries of a sequence that see all before them.

use candle_core::{Result, Tensor};

use super::args::{AttentionParams, PerHead};

/// Head sizes of candle's kernels, for one query and for many.
const DIMS: [usize; 5] = [32, 64, 96, 128, 256];
/// The soft-cap that candle takes for none.
const NO_CAP: f32 = 1.0;

/// `softmax(cap(scale * q k^T)) v` of `q [1, H, T, D]`, `k [1, KVH, C, D]` and `v [1, KVH, C, D]`,
/// an additive mask, whether the last query sees all positions and each before it one less, the
/// scale, and the soft-cap.
type Sdpa = fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>, bool, f32, f32) -> Result<Tensor>;

/// As [`super::portable::attend`], if `sdpa` can compute it.
pub(super) fn attend(
    sdpa: Sdpa,
    q: &Tensor,
    cache: [&Tensor; 2],
    positions: &[u32],
    params: AttentionParams,
    per_head: PerHead<'_>,
) -> Result<Option<Tensor>> {
    let (context, _, value_dim) = cache[1].dims3()?;
    let head_dim = q.dim(2)?;
    let plain = per_head.sinks.is_none() && per_head.slopes.is_none();
    if !plain || head_dim != value_dim || !DIMS.contains(&head_dim) {
        return Ok(None);
    }
    let Some(seen) = seen(positions, context, params) else { return Ok(None) };
    let heads_first = |x: &Tensor| x.transpose(0, 1)?.unsqueeze(0)?.contiguous();
    let part = |x: &Tensor| heads_first(&x.narrow(0, seen.start, seen.len())?);
    let [keys, values] = [part(cache[0])?, part(cache[1])?];
    let cap = params.softcap.unwrap_or(NO_CAP);
    let out = sdpa(&heads_first(q)?, &keys, &values, None, positions.len() > 1, params.scale, cap)?;
    out.squeeze(0)?.transpose(0, 1).map(Some)
}

/// The positions that the last query sees, if the others see the same up to their own.
fn seen(
    positions: &[u32],
    context: usize,
    params: AttentionParams,
) -> Option<std::ops::Range<usize>> {
    let last = *positions.last().filter(|_| params.ahead == 0)?;
    let seen = params.first_seen(last)..last as usize + 1;
    if positions.len() == 1 {
        // A cap of one would be taken for none.
        return (params.softcap != Some(NO_CAP)).then_some(seen);
    }
    let in_a_row = positions.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    (in_a_row && params.softcap.is_none() && seen == (0..context)).then_some(seen)
}

#[cfg(test)]
mod tests {
    use candle_core::{D, Device};

    use super::super::args::QueryPositions;
    use super::super::portable;
    use super::*;
    use crate::floats::Floats;
    use crate::random::{Random, assert_close};
    use crate::step::Step;

    /// What candle says that it computes.
    fn sdpa(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        causal: bool,
        scale: f32,
        cap: f32,
    ) -> Result<Tensor> {
        assert!(mask.is_none() && k.is_contiguous() && v.is_contiguous() && q.is_contiguous());
        let (_, heads, queries, _) = q.dims4()?;
        let (_, kv_heads, context, _) = k.dims4()?;
        let heads_of = |group: usize| u32::try_from(group / (heads / kv_heads)).unwrap();
        let shared = Tensor::from_iter((0..heads).map(heads_of), q.device())?;
        let (k, v) = (k.index_select(&shared, 1)?, v.index_select(&shared, 1)?);
        let mut scores = (q.matmul(&k.t()?)? * f64::from(scale))?;
        if cap.to_bits() != NO_CAP.to_bits() {
            scores = ((scores / f64::from(cap))?.tanh()? * f64::from(cap))?;
        }
        if causal {
            let hidden = |i: usize| (0..context).map(move |j| j > context - queries + i);
            let mask = (0..queries).flat_map(hidden);
            let mask = mask.map(|hidden| if hidden { f32::NEG_INFINITY } else { 0.0 });
            let mask = Tensor::from_iter(mask, q.device())?.reshape((queries, context))?;
            scores = scores.broadcast_add(&mask)?;
        }
        let weights = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?.matmul(&v)
    }

    /// Whether queries at these positions in a context of 40 fit; they are then computed alike.
    fn fits(positions: &[u32], dim: usize, params: AttentionParams, per_head: PerHead<'_>) -> bool {
        let mut random = Random::new(8);
        let q = random.tensor((positions.len(), 6, dim));
        let [keys, values] = [(); 2].map(|()| random.tensor((40, 2, dim)));
        let ours = attend(sdpa, &q, [&keys, &values], positions, params, per_head).unwrap();
        if let Some(ours) = &ours {
            let step = Step { positions: positions.to_vec(), ..Step::default() };
            let positions = QueryPositions::of(&step, 0..positions.len());
            let plain = portable::attend(&q, &keys, &values, positions, params, per_head);
            assert_close(&ours.contiguous().unwrap(), &plain.unwrap(), 1e-5);
        }
        ours.is_some()
    }

    #[test]
    fn what_fits_is_computed_as_in_plain_operations() {
        let full = AttentionParams::full(0.3);
        let window = |window| AttentionParams { window: Some(window), ..full };
        let capped = |cap| AttentionParams { softcap: Some(cap), ..full };
        let none = PerHead::default();
        let last: Vec<u32> = (33..40).collect();
        for dim in DIMS {
            assert!(fits(&[39], dim, full, none) && fits(&last, dim, full, none));
        }
        assert!(fits(&[20], 32, full, none) && fits(&[39], 32, window(7), none));
        assert!(fits(&[37], 32, AttentionParams { chunk: Some(16), ..full }, none));
        assert!(fits(&[39], 32, capped(2.0), none) && !fits(&[39], 32, capped(1.0), none));
        assert!(!fits(&last, 32, capped(2.0), none) && fits(&last, 32, window(40), none));
        assert!(!fits(&last, 32, window(39), none) && !fits(&[30, 31], 32, full, none));
        assert!(!fits(&[37, 39], 32, full, none) && !fits(&[39], 80, full, none));
        let numbers = Tensor::zeros(6, candle_core::DType::F32, &Device::Cpu).unwrap();
        let numbers = Floats::of(numbers).unwrap();
        assert!(!fits(&[39], 32, full, PerHead { sinks: Some(&numbers), slopes: None }));
        assert!(!fits(&[39], 32, full, PerHead { sinks: None, slopes: Some(&numbers) }));
    }
}
