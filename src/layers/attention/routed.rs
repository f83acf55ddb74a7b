//! A mixture of attention heads: a router chooses a few experts for each token, of which each has query and
//! output projections of its own; all share the keys and values.
//!
//! Zhang et al., "Mixture of Attention Heads: Selecting Attention Heads Per Token", 2022; in the form of
//! JetMoE.

use candle_core::{DType, Result, Tensor};

use super::spec::{AttentionSpec, RoutedHeads};
use crate::kernels::experts::{DeviceExperts, ExpertLayers, Routing};
use crate::kernels::kv_write::{KvCache, Projections, kv_write};
use crate::kernels::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::kernels::weighted_rows::{WeightedRow, weighted_rows};
use crate::layers::forward::{KvLayer, Step};
use crate::layers::linear::{Linear, Matrix};
use crate::layers::rope::RopeAngles;
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Weights of the attention of a layer whose query heads a router chooses.
#[derive(Debug)]
pub struct RoutedAttention {
    router: Linear,
    routing: Routing,
    /// Of each expert: to queries, and from what their heads give.
    experts: Vec<[Linear; 2]>,
    on_device: Option<DeviceExperts>,
    /// To keys and values.
    shared: [Linear; 2],
    /// `[hidden]`
    bias: Tensor,
    heads: usize,
    head_dim: usize,
    params: AttentionParams,
}

/// The experts of each token and their weights, in ascending order of the experts.
type Routes = Vec<Vec<(usize, f32)>>;

/// An expert as device kernels take it, if it is on a device that has any for it.
fn on_device([queries, outputs]: &[Linear; 2]) -> Option<ExpertLayers<'_>> {
    Some(ExpertLayers { gate: None, up: queries.on_device()?, down: outputs.on_device()? })
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
        let experts = (0..routed.experts).map(expert).collect::<Loaded<Vec<_>>>()?;
        let layers: Option<Vec<_>> = experts.iter().map(on_device).collect();
        let on_device = layers.map(|all| DeviceExperts::new(weights.device(), &all, [None; 2]));
        Ok(Self {
            router: Linear::load(&scores, hidden, routed.experts, false)?,
            routing: routed.routing,
            on_device: on_device.transpose()?.flatten(),
            experts,
            shared: [shared(0..inner)?, shared(inner..2 * inner)?],
            bias: own.dense("bias", &[hidden], DType::F32)?,
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
        let (rows, hidden) = x.dims2()?;
        let scores = self.router.forward(x)?;
        let bias = self.bias.broadcast_as((rows, hidden))?.contiguous()?;
        let heads = |queries: &Tensor| self.heads(queries, x, angles, kv, step);
        let kernels = self.on_device.as_ref();
        if let Some(own) = kernels.filter(|own| own.takes(rows, self.routing, false)) {
            let rows = [x, &scores, &bias];
            return own.forward_add(rows, self.routing, None, heads, (1.0, false));
        }
        let routes = self.routes(&scores)?;
        let queries = self.by_expert(&routes, |token, _| token, x, 0)?;
        let slot = |token, slot| token * self.routing.experts_per_token + slot;
        let given = self.by_expert(&routes, slot, &heads(&queries)?, 1)?;
        let weights = routes.iter().flatten().enumerate();
        let weighted: Vec<_> =
            weights.map(|(row, (_, weight))| WeightedRow { row, weight: *weight }).collect();
        weighted_rows(&given, &weighted, self.routing.experts_per_token, &bias)
    }

    /// What the heads of the chosen experts give for their queries, both `[num_tokens * chosen, heads *
    /// head_dim]`, with the keys and values of `x [num_tokens, hidden]`.
    fn heads(
        &self,
        queries: &Tensor,
        x: &Tensor,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
    ) -> Result<Tensor> {
        let (rows, heads, dim) = (x.dim(0)?, self.heads, self.head_dim);
        let chosen = self.routing.experts_per_token;
        // Queries of a key head follow each other.
        let q = queries.reshape((rows, chosen, heads, dim))?.transpose(1, 2)?;
        let q = q.contiguous()?.reshape((rows, heads * chosen, dim))?;
        let [k, v] = Linear::forward_each(self.shared.each_ref(), x)?;
        let [k, v] = [k.reshape((rows, heads, dim))?, v.reshape((rows, heads, dim))?];
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(None), cache, step.kv_slots())?;
        let per_head = PerHead { sinks: None, slopes: None };
        let given = paged_attention(&q, &kv.k, &kv.v, step, self.params, per_head)?;
        let given = given.reshape((rows, heads, chosen, dim))?.transpose(1, 2)?;
        given.contiguous()?.reshape((rows * chosen, heads * dim))
    }

    fn routes(&self, scores: &Tensor) -> Result<Routes> {
        let best = |scores| self.routing.choose_ascending(scores, None);
        Ok(scores.to_vec2::<f32>()?.into_iter().map(best).collect())
    }

    /// Projection `which` of the experts of every token and slot, of the rows of `x [.., inputs]` that
    /// `source` says: `[num_tokens * chosen, outputs]`.
    fn by_expert(
        &self,
        routes: &Routes,
        source: impl Fn(usize, usize) -> usize,
        x: &Tensor,
        which: usize,
    ) -> Result<Tensor> {
        let per_token = self.routing.experts_per_token;
        let narrow = |index: usize| u32::try_from(index).map_err(candle_core::Error::wrap);
        let (mut parts, mut places) = (Vec::new(), vec![0; routes.len() * per_token]);
        let mut done = 0;
        for (expert, layers) in self.experts.iter().enumerate() {
            let mut rows = Vec::new();
            for (token, chosen) in routes.iter().enumerate() {
                for (slot, _) in chosen.iter().enumerate().filter(|(_, own)| own.0 == expert) {
                    places[token * per_token + slot] = narrow(done + rows.len())?;
                    rows.push(narrow(source(token, slot))?);
                }
            }
            if rows.is_empty() {
                continue;
            }
            done += rows.len();
            let own = x.index_select(&Tensor::new(rows, x.device())?, 0)?;
            parts.push(layers[which].forward(&own)?);
        }
        Tensor::cat(&parts, 0)?.index_select(&Tensor::new(places, x.device())?, 0)
    }
}
