//! A mixture of attention heads: a router chooses a few experts for each token, of which each has query and
//! output projections of its own; all share the keys and values.
//!
//! Zhang et al., "Mixture of Attention Heads: Selecting Attention Heads Per Token", 2022; in the form of
//! JetMoE.

use candle_core::{DType, Result, Tensor, bail};

use super::spec::{AttentionSpec, RoutedHeads};
use crate::kernels::kv_write::{KvCache, Projections, kv_write};
use crate::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::layers::forward::{KvLayer, Step};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::rope::RopeAngles;
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Weights of the attention of a layer whose query heads a router chooses.
#[derive(Debug)]
pub struct RoutedAttention {
    router: Linear,
    /// Of each expert: to queries, and from what their heads give.
    experts: Vec<[Linear; 2]>,
    /// To keys and values.
    shared: [Linear; 2],
    /// `[hidden]`
    bias: Tensor,
    chosen: usize,
    heads: usize,
    head_dim: usize,
    params: AttentionParams,
}

/// The experts of each token, best first, and their weights.
struct Routes {
    experts: Vec<Vec<(usize, f32)>>,
}

impl RoutedAttention {
    /// Loads the experts that `routed` describes, and the keys and values of `spec`.
    pub fn load(weights: &Weights, spec: &AttentionSpec, routed: RoutedHeads) -> Loaded<Self> {
        let (hidden, heads, head_dim) = (spec.hidden_size, spec.num_kv_heads, spec.head_dim);
        let inner = heads * head_dim;
        let own = weights.scope("experts");
        let stack = |name: &str, outputs, inputs| {
            own.scope(name).stored("weight", &[routed.experts, outputs, inputs])
        };
        let (queries, outputs) =
            (stack("input_linear", inner, hidden)?, stack("output_linear", hidden, inner)?);
        let layer = |all: &StoredTensor, index: usize, rows: usize| {
            let own = index * rows..(index + 1) * rows;
            let matrix = Matrix::from_stored(
                weights,
                &all.rows(std::slice::from_ref(&own))?,
                weights.rounding(),
            )?;
            Ok::<_, WeightError>(Linear::from_matrix(matrix, None)?)
        };
        let expert = |index| Ok([layer(&queries, index, inner)?, layer(&outputs, index, hidden)?]);
        let shared = |rows: std::ops::Range<usize>| {
            let rows = std::slice::from_ref(&rows);
            Linear::load_rows(&weights.scope("kv_proj"), hidden, 2 * inner, false, rows)
        };
        let scores = own.scope("router.layer");
        Ok(Self {
            router: Linear::load(&scores, hidden, routed.experts, false)?,
            experts: (0..routed.experts).map(expert).collect::<Loaded<_>>()?,
            shared: [shared(0..inner)?, shared(inner..2 * inner)?],
            bias: own.dense("bias", &[hidden], DType::F32)?,
            chosen: routed.chosen,
            heads,
            head_dim,
            params: spec.params,
        })
    }

    /// Writes keys and values of the rows `x [num_tokens, hidden]` to the cache and computes attention,
    /// with its output projections: `[num_tokens, hidden]`.
    pub fn attend(
        &self,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
    ) -> Result<Tensor> {
        let ([q, k, v], routes) = self.inputs(x)?;
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(None), cache, step.kv_slots())?;
        let per_head = PerHead { sinks: None, slopes: None };
        self.output(&paged_attention(&q, &kv.k, &kv.v, step, self.params, per_head)?, &routes)
    }

    /// Queries `[num_tokens, heads * chosen, head_dim]` in which those of a key head follow each other,
    /// keys and values `[num_tokens, heads, head_dim]`, and which experts the queries are of.
    fn inputs(&self, x: &Tensor) -> Result<([Tensor; 3], Routes)> {
        if !x.device().is_cpu() {
            bail!("heads that a router chooses have no kernel for GPUs, only for the CPU");
        }
        let (rows, heads, dim) = (x.dim(0)?, self.heads, self.head_dim);
        let routes = self.routes(x)?;
        let queries = self.by_expert(&routes, x.dims2()?.1, |token, _| token, x, 0)?;
        let queries = queries.reshape((rows, self.chosen, heads, dim))?.transpose(1, 2)?;
        let queries = queries.contiguous()?.reshape((rows, heads * self.chosen, dim))?;
        let [keys, values] = Linear::forward_each(self.shared.each_ref(), x)?;
        let of_heads = |x: Tensor| x.reshape((rows, heads, dim));
        Ok(([queries, of_heads(keys)?, of_heads(values)?], routes))
    }

    /// Projects what the queries' heads give, `[num_tokens, heads * chosen, head_dim]`, to hidden states.
    fn output(&self, attended: &Tensor, routes: &Routes) -> Result<Tensor> {
        let (rows, inner) = (attended.dim(0)?, self.heads * self.head_dim);
        let each = attended.reshape((rows, self.heads, self.chosen, self.head_dim))?;
        let each = each.transpose(1, 2)?.contiguous()?.reshape((rows * self.chosen, inner))?;
        let slot = |token: usize, slot: usize| token * self.chosen + slot;
        let each = self.by_expert(routes, inner, slot, &each, 1)?;
        let weights = routes.experts.iter().flatten().map(|(_, weight)| *weight);
        let weights = Tensor::from_iter(weights, attended.device())?.reshape(((), 1))?;
        let each = each.broadcast_mul(&weights)?.reshape((rows, self.chosen, ()))?;
        let mut sum = each.narrow(1, 0, 1)?.squeeze(1)?;
        for slot in 1..self.chosen {
            sum = (sum + each.narrow(1, slot, 1)?.squeeze(1)?)?;
        }
        sum.broadcast_add(&self.bias)
    }

    /// The best experts of each token, weighted by the softmax of their scores.
    fn routes(&self, x: &Tensor) -> Result<Routes> {
        let best = |scores: Vec<f32>| {
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            order.truncate(self.chosen);
            let most = order.first().map_or(0.0, |expert| scores[*expert]);
            let weights: Vec<f32> = order.iter().map(|i| (scores[*i] - most).exp()).collect();
            let sum: f32 = weights.iter().sum();
            order.into_iter().zip(weights.into_iter().map(|weight| weight / sum)).collect()
        };
        let scores = self.router.forward(x)?.to_vec2::<f32>()?;
        Ok(Routes { experts: scores.into_iter().map(best).collect() })
    }

    /// Projection `which` of the experts of every token and slot, of the rows of `x [.., inputs]` that
    /// `source` says: `[num_tokens * chosen, outputs]`.
    fn by_expert(
        &self,
        routes: &Routes,
        inputs: usize,
        source: impl Fn(usize, usize) -> usize,
        x: &Tensor,
        which: usize,
    ) -> Result<Tensor> {
        let narrow = |index: usize| u32::try_from(index).map_err(candle_core::Error::wrap);
        let (mut parts, mut places) = (Vec::new(), vec![0; routes.experts.len() * self.chosen]);
        let mut done = 0;
        for (expert, layers) in self.experts.iter().enumerate() {
            let mut rows = Vec::new();
            for (token, chosen) in routes.experts.iter().enumerate() {
                for (slot, _) in chosen.iter().enumerate().filter(|(_, own)| own.0 == expert) {
                    places[token * self.chosen + slot] = narrow(done + rows.len())?;
                    rows.push(narrow(source(token, slot))?);
                }
            }
            if rows.is_empty() {
                continue;
            }
            done += rows.len();
            let rows = Tensor::new(rows, x.device())?;
            let own = x.reshape(((), inputs))?.index_select(&rows, 0)?;
            parts.push(layers[which].forward(&own)?);
        }
        Tensor::cat(&parts, 0)?.index_select(&Tensor::new(places, x.device())?, 0)
    }
}
