//! Sparse attention: an indexer chooses the tokens that the queries of a layer see.
//!
//! DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language Models", 2025. The indexer has heads
//! of queries from the low-rank vector of the layer's own queries, one key for all of them and a weight for each
//! head; see [`select_tokens`]. Its keys lie in the KV cache behind the latent vectors. A layer without an indexer
//! sees what the layer before it saw. GLM-5.3-Flash chooses pools of tokens, by keys made of theirs with gates.

use std::cell::RefCell;

use candle_core::{DType, Result, Tensor};

use super::qkv_source::deinterleaved;
use super::spec::{IndexerSpec, LatentSpec, RotatedPart};
use crate::kernels::indexer::{IndexKeys, IndexQueries, KeyPools, SelectedTokens, select_tokens};
use crate::kernels::kv_write::prepare_queries;
use crate::layers::forward::Step;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::{Norm, NormSpec};
use crate::layers::rope::RopeAngles;
use crate::weights::{Loaded, Weights};

/// What the last layer with an indexer chose in a forward pass, for itself and for those without one.
pub type Selection = RefCell<Option<SelectedTokens>>;

/// The projections of an indexer.
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    /// From the low-rank vector of queries.
    queries: Linear,
    /// Elements of that.
    inputs: usize,
    /// From hidden states.
    key: (Linear, Norm),
    /// From hidden states to what each head counts.
    weights: Linear,
    /// From hidden states to the gates of keys of pools, and the offsets of these, `[pool, dim]`.
    pools: Option<(Linear, Tensor)>,
    /// The elements of a head in an order in which halves of the first ones are rotated, if it is another than the
    /// stored one.
    order: Option<Tensor>,
    spec: IndexerSpec,
}

/// The projection to what each head counts, or to gates, in f32 if it isn't quantized: which tokens are seen hangs on
/// it, and files that convert checkpoints have it so.
fn load_unrounded(weights: &Weights, name: &str, [hidden, outputs]: [usize; 2]) -> Loaded<Linear> {
    let matrix = Matrix::load_unrounded(weights, name, outputs, hidden)?;
    Ok(Linear::from_matrix(matrix, None)?)
}

impl Indexer {
    /// Loads the indexer of a layer with `hidden` elements of a hidden state.
    pub(super) fn load(
        weights: &Weights,
        hidden: usize,
        latent: LatentSpec,
        spec: IndexerSpec,
    ) -> Loaded<Self> {
        let IndexerSpec { heads, dim, rotated, eps, pool } = spec;
        let inputs = latent.query_rank.unwrap_or(hidden);
        let first = dim.saturating_sub(latent.rope_dim);
        let order: Option<Vec<usize>> = match rotated {
            RotatedPart::FirstHalves => None,
            RotatedPart::FirstPairs => {
                Some(deinterleaved(latent.rope_dim).chain(latent.rope_dim..dim).collect())
            }
            RotatedPart::LastHalves => Some((first..dim).chain(0..first).collect()),
            RotatedPart::LastPairs => {
                let rotated = deinterleaved(latent.rope_dim).map(|at| first + at);
                Some(rotated.chain(0..first).collect())
            }
        };
        let order = order.map(|order| {
            let order = order.into_iter();
            let order = order.map(|at| u32::try_from(at).map_err(candle_core::Error::wrap));
            Tensor::new(order.collect::<Result<Vec<u32>>>()?, weights.device())
        });
        let norm = NormSpec::layer(eps, true);
        let pools = |pool: usize| -> Loaded<(Linear, Tensor)> {
            let gates = load_unrounded(weights, "index_kpool_compress_gate", [hidden, dim])?;
            let offsets = weights.dense("index_kpool_compress_ape", &[pool, dim], DType::F32)?;
            Ok((gates, offsets))
        };
        Ok(Self {
            queries: Linear::load(&weights.scope("wq_b"), inputs, heads * dim, false)?,
            key: (
                Linear::load(&weights.scope("wk"), hidden, dim, false)?,
                Norm::load(&weights.scope("k_norm"), dim, norm)?,
            ),
            weights: load_unrounded(weights, "weights_proj.weight", [hidden, heads])?,
            pools: pool.map(pools).transpose()?,
            inputs,
            order: order.transpose()?,
            spec,
        })
    }

    /// Heads `x [num_tokens, heads, dim]`, rotated.
    fn rotated(&self, x: Tensor, angles: &RopeAngles) -> Result<Tensor> {
        let x = match &self.order {
            Some(order) => x.index_select(order, 2)?,
            None => x,
        };
        prepare_queries(&x, angles.rotation(None))
    }

    /// The keys of hidden states `x [num_tokens, hidden]`, with the gates of pools behind them if there are pools:
    /// `[num_tokens, 1, dim]` or `[num_tokens, 1, 2 * dim]`.
    pub(super) fn keys(&self, x: &Tensor, angles: &RopeAngles) -> Result<Tensor> {
        let (projection, norm) = &self.key;
        let keys = norm.forward(&projection.forward(x)?)?;
        let keys = self.rotated(keys.unsqueeze(1)?, angles)?;
        match &self.pools {
            None => Ok(keys),
            Some((gates, _)) => Tensor::cat(&[keys, gates.forward(x)?.unsqueeze(1)?], 2),
        }
    }

    /// The at most `count` tokens that each row sees, of hidden states `x [num_tokens, hidden]` and their low-rank
    /// vectors. The keys are in the cache's `values`, behind `first` elements each.
    pub(super) fn select(
        &self,
        [x, low_rank]: [&Tensor; 2],
        angles: &RopeAngles,
        (values, first): (&Tensor, usize),
        step: &Step,
        count: usize,
    ) -> Result<SelectedTokens> {
        if !SelectedTokens::are_fewer(step, count) {
            return Ok(SelectedTokens::all());
        }
        let IndexerSpec { heads, dim, .. } = self.spec;
        let low_rank = low_rank.narrow(1, 0, self.inputs)?.contiguous()?;
        let queries = self.queries.forward(&low_rank)?.reshape((x.dim(0)?, heads, dim))?;
        let queries = self.rotated(queries, angles)?;
        #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
        let scale = 1.0 / ((heads * dim) as f32).sqrt();
        let weights = (self.weights.forward(x)? * f64::from(scale))?;
        let queries = IndexQueries { queries: &queries, weights: &weights };
        let pools = self.pools.as_ref().map(|(_, offsets)| KeyPools { offsets });
        select_tokens(queries, IndexKeys { values, first, dim, pools }, step, count)
    }
}
