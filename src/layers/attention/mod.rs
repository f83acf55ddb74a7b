//! Self-attention of one layer: projections, norms of queries and keys, rotation, KV write, paged
//! attention.

use candle_core::{DType, Result, Tensor, bail};

use super::adapter::{LayerAdapters, Projection};
use super::forward::{KvLayer, Step};
use super::linear::{Linear, LowRank};
use super::norm::{Norm, RmsNorm};
use super::normed::Normed;
use super::rope::RopeAngles;
use crate::kernels::chosen_attention::{paged_attention_blocks, paged_attention_chosen};
use crate::kernels::floats::Floats;
use crate::kernels::indexer::SelectedTokens;
use crate::kernels::kv_write::{HeadNorms, KvCache, Projections, kv_write, prepare_queries};
use crate::kernels::paged_attention::{PerHead, paged_attention_as};
use crate::kernels::pointwise::{sigmoid, softplus};
use crate::weights::{Loaded, WeightError, Weights};

mod alibi;
mod block_indexer;
mod convolved;
mod difference;
mod indexer;
mod latent;
mod projections;
mod qkv_source;
mod query_key_norms;
mod routed;
mod spec;
mod value_bias;

use block_indexer::BlockIndexer;
use convolved::ConvolvedProjections;
use difference::Minus;
pub use indexer::Selection;
use latent::LatentProjections;
use projections::QkvProjections;
pub use qkv_source::QkvSource;
use query_key_norms::QueryKeyNorms;
pub use routed::RoutedAttention;
pub use spec::{
    AttentionSpec, BlockIndexerSpec, ConvolutionSpec, Difference, GateTensor, HeadGate,
    IndexerSpec, LatentSpec, NormSpan, QkvTensors, QueryKeyNorm, RotatedPart, RoutedHeads,
    SelectionSpec, SquaredScales, ValueBias,
};
use value_bias::ValueBiases;

/// The biases of gates, if they have some.
fn load_gate_bias(weights: &Weights, spec: &AttentionSpec) -> Loaded<Option<Tensor>> {
    let name = spec.gate.and_then(|gate| gate.bias);
    let load = |name| {
        let bias = weights.dense(name, &[spec.num_heads], DType::F32)?;
        Ok::<_, WeightError>(bias.unsqueeze(1)?)
    };
    name.map(load).transpose()
}

/// The factors of queries and gates that squared scales are.
fn load_scales(weights: &Weights, spec: &AttentionSpec, own: SquaredScales) -> Loaded<[Tensor; 2]> {
    let AttentionSpec { num_heads, head_dim, .. } = *spec;
    let load = |(name, factor): (&str, f32)| {
        let scales = weights.dense(name, &[num_heads * head_dim], DType::F32)?;
        Ok::<_, WeightError>((scales * f64::from(factor))?.sqr()?)
    };
    Ok([load(own.queries)?.reshape((num_heads, head_dim))?, load(own.gates)?])
}

/// Weights of one layer's attention. Clones share them.
#[derive(Clone, Debug)]
pub struct Attention {
    inputs: Inputs,
    output: Linear,
    /// The norm of the output projection's input.
    output_norm: Option<Norm>,
    value_norm: Option<Norm>,
    /// `[heads, 1]`
    gate_bias: Option<Tensor>,
    difference: Option<Minus>,
    blocks: Option<Box<BlockIndexer>>,
    value_biases: Option<ValueBiases>,
    /// `[heads, head_dim]` of queries, and `[heads * head_dim]` of gates.
    scales: Option<[Tensor; 2]>,
    sinks: Option<Floats>,
    slopes: Option<Floats>,
    spec: AttentionSpec,
}

/// The projections to queries, keys and values.
#[derive(Clone, Debug)]
enum Inputs {
    Heads(Box<QkvProjections>),
    /// Queries alone, perhaps normalized: keys and values are in the cache of another layer.
    Query(Linear, Option<RmsNorm>),
    /// With convolutions, whose states are beside the cache.
    Convolved(Box<ConvolvedProjections>),
    /// With the projection to gates of heads, if there is one.
    Latent(Box<LatentProjections>, Option<Linear>),
}

impl Attention {
    /// Loads the weights of `spec`.
    pub fn load(weights: &Weights, spec: AttentionSpec) -> Loaded<Self> {
        Self::load_from(weights, spec, spec.hidden_size)
    }

    /// The same with queries, keys and values of rows of `width` elements; only without latent vectors.
    pub fn load_from(weights: &Weights, spec: AttentionSpec, width: usize) -> Loaded<Self> {
        let (inner, outer) = (spec.outputs(), spec.hidden_size);
        let output = weights.scope(spec.output);
        let sinks = spec.sinks.map(|name| {
            let sinks = weights.dense(name, &[spec.num_heads], DType::F32)?;
            Ok::<_, WeightError>(Floats::of(sinks)?)
        });
        let slopes = |max_bias| {
            Floats::of(Tensor::new(alibi::slopes(spec.num_heads, max_bias), weights.device())?)
        };
        let value_norm = spec.value_norm.map(|norm| Norm::load(weights, spec.value_dim(), norm));
        let output_norm =
            spec.output_norm.map(|(name, norm)| Norm::load(&weights.scope(name), inner, norm));
        Ok(Self {
            inputs: match (spec.latent, spec.kv_from_layer) {
                (None, None) if let Some(own) = spec.convolution => {
                    Inputs::Convolved(Box::new(ConvolvedProjections::load(weights, &spec, own)?))
                }
                (None, None) => {
                    let spec = AttentionSpec { hidden_size: width, ..spec };
                    Inputs::Heads(Box::new(QkvProjections::load(weights, &spec)?))
                }
                (None, Some(_)) => {
                    let (query, norm) = projections::load_query(weights, &spec)?;
                    Inputs::Query(query, norm)
                }
                (Some(latent), _) => {
                    let gate = projections::load_gate(weights, &spec)?;
                    Inputs::Latent(Box::new(LatentProjections::load(weights, &spec, latent)?), gate)
                }
            },
            value_norm: value_norm.transpose()?,
            output_norm: output_norm.transpose()?,
            output: match spec.output_bias_beside {
                None => Linear::load(&output, inner, outer, spec.output_bias)?,
                Some(name) => Linear::load(&output, inner, outer, false)?
                    .with_bias(weights.dense(name, &[outer], DType::F32)?)?,
            },
            gate_bias: load_gate_bias(weights, &spec)?,
            scales: spec.squared_scales.map(|own| load_scales(weights, &spec, own)).transpose()?,
            value_biases: spec
                .value_bias
                .map(|own| ValueBiases::load(weights, &spec, own))
                .transpose()?,
            difference: spec.difference.map(|own| Minus::load(weights, &spec, own)).transpose()?,
            blocks: spec
                .blocks
                .map(|own| BlockIndexer::load(weights, spec.hidden_size, own).map(Box::new))
                .transpose()?,
            sinks: sinks.transpose()?,
            slopes: spec.alibi.map(slopes).transpose()?,
            spec,
        })
    }

    /// The same weights with changes of low rank to the projections to queries, keys and values, where it
    /// has those projections.
    #[must_use]
    pub fn with_low_rank(&self, changes: [LowRank; 3]) -> Self {
        let mut own = self.clone();
        if let Inputs::Heads(qkv) = &mut own.inputs {
            qkv.changes = Some(changes);
        }
        own
    }

    /// The type in which so many rows are best given: see [`Linear::input_type`].
    pub fn input_type(&self, rows: usize, adapters: LayerAdapters<'_>) -> DType {
        let projections =
            [Projection::Query, Projection::Key, Projection::Value, Projection::HeadGate];
        let Inputs::Heads(qkv) = &self.inputs else { return DType::F32 };
        if qkv.changes.is_some() || adapters.change(&projections) {
            return DType::F32;
        }
        let indexer = self.blocks.iter().flat_map(|indexer| indexer.layers());
        let layers = qkv.layers.iter().chain(&qkv.gate).chain(indexer);
        let mut types = layers.map(|layer| layer.input_type(rows));
        let first = types.next().unwrap_or(DType::F32);
        if types.all(|dtype| dtype == first) { first } else { DType::F32 }
    }

    /// Writes keys and values of the rows `x [num_tokens, hidden]` to the cache and computes
    /// attention up to the output projection: `[num_tokens, heads * head_dim]`, in the type that this
    /// rounds it to if `rounds`.
    pub fn attend(
        &self,
        x: &Normed<'_>,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
        (adapters, rounds): (LayerAdapters<'_>, bool),
    ) -> Result<Tensor> {
        let (rows, params) = (x.rows()?, self.spec.params);
        let is_last = match &self.inputs {
            Inputs::Heads(qkv) => qkv.gate.is_none() && self.difference.is_none(),
            Inputs::Query(..) => true,
            Inputs::Latent(..) | Inputs::Convolved(_) => false,
        };
        let is_last = is_last && self.output_norm.is_none();
        let dtype = if rounds && is_last && !adapters.change(&[Projection::Output]) {
            self.output.input_type(rows)
        } else {
            DType::F32
        };
        let mut q = self.queries(x, angles, kv, step, adapters)?;
        if let Some([scales, _]) = &self.scales {
            q = q.broadcast_mul(scales)?;
        }
        let per_head = PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() };
        let attended = paged_attention_as(dtype, &q, [&kv.k, &kv.v], step, params, per_head)?;
        let attended = match &self.inputs {
            Inputs::Latent(latent, gate) => {
                let values = latent.values(&attended)?.reshape((rows, self.spec.num_heads, ()))?;
                self.gated(gate.as_ref(), x, &values, adapters)?
            }
            Inputs::Query(..) | Inputs::Convolved(_) => attended.reshape((rows, ()))?,
            Inputs::Heads(qkv) => match &self.difference {
                None => self.gated(qkv.gate.as_ref(), x, &attended, adapters)?,
                Some(minus) => minus.forward(&attended)?,
            },
        };
        self.output_norm.as_ref().map_or(Ok(attended.clone()), |norm| norm.forward(&attended))
    }

    /// How many states the layer has beside its KV cache.
    pub fn states(&self) -> usize {
        self.spec.states().len()
    }

    /// As [`attend`](Self::attend), of a layer that has [`states`](Self::states), in f32.
    pub fn attend_convolved(
        &self,
        x: &Normed<'_>,
        angles: &RopeAngles,
        kv: &KvLayer,
        states: &[Tensor],
        step: &Step,
    ) -> Result<Tensor> {
        let Inputs::Convolved(own) = &self.inputs else {
            bail!("attention without convolutions has no states");
        };
        let [q, k, v] = own.forward(x.tensor()?, states, step)?;
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(own.norms()), cache, step.kv_slots())?;
        let (q, params) = (own.scaled(&q)?, self.spec.params);
        let per_head = PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() };
        let cache = [&kv.k, &kv.v];
        let attended = paged_attention_as(DType::F32, &q, cache, step, params, per_head)?;
        attended.reshape((x.rows()?, ()))
    }

    /// Whether the layer chooses the blocks of the context that its heads see.
    pub fn chooses_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// As [`attend`](Self::attend), of a layer that [chooses blocks](Self::chooses_blocks), in f32: with the cache for
    /// the keys that it chooses by behind its own.
    pub fn attend_to_blocks(
        &self,
        x: &Normed<'_>,
        angles: &RopeAngles,
        [kv, keys]: [&KvLayer; 2],
        step: &Step,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let (Some(indexer), Inputs::Heads(qkv)) = (&self.blocks, &self.inputs) else {
            bail!("blocks are chosen for attention with queries, keys and values of its own alone");
        };
        if self.sinks.is_some() || self.slopes.is_some() {
            bail!("attention to chosen blocks has no sinks and no biases by distance");
        }
        let q = self.queries(x, angles, kv, step, adapters)?;
        let chosen = indexer.select(x.tensor()?, angles, keys, step)?;
        let cache = [&kv.k, &kv.v];
        let attended = paged_attention_blocks(&q, cache, step, self.spec.params, &chosen)?;
        self.gated(qkv.gate.as_ref(), x, &attended, adapters)
    }

    /// Whether the low-rank vectors of queries say more than the queries: which tokens are seen, or how much of
    /// what heads give goes on.
    pub fn asks_low_rank(&self) -> bool {
        self.spec.latent.is_some_and(|latent| latent.selection.is_some() || latent.query_gates)
    }

    /// As [`attend`](Self::attend), of a layer that [asks](Self::asks_low_rank) low-rank vectors: with what the
    /// layer chooses, or with what was chosen before it.
    pub fn attend_asking(
        &self,
        x: &Normed<'_>,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
        (adapters, selection): (LayerAdapters<'_>, &Selection),
    ) -> Result<Tensor> {
        let Inputs::Latent(latent, gate) = &self.inputs else {
            bail!("tokens are selected for attention with latent vectors alone");
        };
        let Some(spec) = self.spec.latent else { bail!("attention without latent vectors") };
        let states = x.tensor()?;
        let low_rank = latent.low_rank(states)?;
        let [q, k, mut v] = latent.forward(states, low_rank.as_ref())?;
        let indexer = latent.indexer();
        if let Some(indexer) = indexer {
            v = Tensor::cat(&[v, indexer.keys(states, angles)?], 2)?;
        }
        let q = angles.scale_queries(q)?;
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let q = kv_write(new, angles.rotation(None), cache, step.kv_slots())?;
        if let (Some(indexer), Some(chosen)) = (indexer, spec.selection) {
            let inputs = [states, low_rank.as_ref().unwrap_or(states)];
            let keys = (&kv.v, spec.kv_rank);
            let own = indexer.select(inputs, angles, keys, step, chosen.count)?;
            selection.replace(Some(own));
        }
        let attended = {
            let all = SelectedTokens::all();
            let selection = selection.borrow();
            let selected = match (spec.selection, selection.as_ref()) {
                (None, _) => &all,
                (Some(_), Some(selected)) => selected,
                (Some(_), None) => bail!("no layer before this one chose which tokens it sees"),
            };
            let per_head = PerHead { sinks: self.sinks.as_ref(), slopes: self.slopes.as_ref() };
            let (cache, seen) = ([&kv.k, &kv.v], (selected, spec.kv_rank));
            paged_attention_chosen(&q, cache, step, self.spec.params, per_head, seen)?
        };
        let heads = (states.dim(0)?, self.spec.num_heads, ());
        let values = latent.gated(latent.values(&attended)?, low_rank.as_ref())?.reshape(heads)?;
        self.gated(gate.as_ref(), x, &values, adapters)
    }

    /// What heads give, `attended [num_tokens, heads, value_dim]`, times their gates: `[num_tokens,
    /// heads * value_dim]`.
    fn gated(
        &self,
        projection: Option<&Linear>,
        x: &Normed<'_>,
        attended: &Tensor,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let rows = x.rows()?;
        let (Some(layer), Some(gate)) = (projection, self.spec.gate) else {
            return attended.reshape((rows, ()));
        };
        let x = x.tensor()?;
        let mut factors = adapters.add(Projection::HeadGate, x, layer.forward(x)?, 1.0)?;
        if let Some(bias) = &self.gate_bias {
            let heads = (rows, self.spec.num_heads, ());
            factors = factors.reshape(heads)?.broadcast_add(bias)?.reshape(factors.shape())?;
        }
        if let Some([_, scales]) = &self.scales {
            factors = factors.broadcast_mul(scales)?;
        }
        let factors = if gate.softplus { softplus(&factors)? } else { sigmoid(&factors)? };
        if let GateTensor::Heads(_) = gate.tensor {
            return attended.broadcast_mul(&factors.unsqueeze(2)?)?.reshape((rows, ()));
        }
        attended.reshape((rows, ()))? * factors
    }

    /// Writes keys and values of the rows `x [num_tokens, hidden]` to the cache, for queries of others.
    pub fn write(&self, x: &Tensor, angles: &RopeAngles, kv: &KvLayer, step: &Step) -> Result<()> {
        self.queries(&Normed::plain(x), angles, kv, step, LayerAdapters::none()).map(drop)
    }

    /// Queries, ready for attention; keys and values, unless another layer's, are written to the
    /// cache.
    fn queries(
        &self,
        x: &Normed<'_>,
        angles: &RopeAngles,
        kv: &KvLayer,
        step: &Step,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let ([q, k, v], fused) = match &self.inputs {
            Inputs::Latent(latent, _) => {
                if self.asks_low_rank() {
                    bail!("low-rank vectors say more than queries here");
                }
                let x = x.tensor()?;
                let [q, k, v] = latent.forward(x, latent.low_rank(x)?.as_ref())?;
                ([angles.scale_queries(q)?, k, v], None)
            }
            Inputs::Convolved(_) => bail!("convolutions of queries and keys have states"),
            Inputs::Query(query, norm) => {
                let AttentionSpec { num_heads, head_dim, .. } = self.spec;
                let x = x.tensor()?;
                let q = adapters.add(Projection::Query, x, query.forward(x)?, 1.0)?;
                let q = q.reshape((x.dim(0)?, num_heads, head_dim))?;
                let fused = norm.as_ref().map(|norm| HeadNorms {
                    query: norm.weight(),
                    key: norm.weight(),
                    eps: norm.eps(),
                    after_rotation: false,
                });
                return prepare_queries(&q, angles.rotation(fused));
            }
            Inputs::Heads(qkv) => {
                let fused = qkv.norms.as_ref().and_then(QueryKeyNorms::fused);
                (self.heads(qkv, x, angles, adapters)?, fused)
            }
        };
        let cache = KvCache { k: &kv.k, v: &kv.v };
        let new = Projections { q: &q, k: &k, v: &v };
        let normalized = fused.is_some();
        let q = kv_write(new, angles.rotation(fused), cache, step.kv_slots())?;
        if normalized { angles.scale_queries(q) } else { Ok(q) }
    }

    /// Queries, keys and values, `[num_tokens, heads, head_dim]`, before the rotation.
    fn heads(
        &self,
        qkv: &QkvProjections,
        x: &Normed<'_>,
        angles: &RopeAngles,
        adapters: LayerAdapters<'_>,
    ) -> Result<[Tensor; 3]> {
        let AttentionSpec { num_heads, num_kv_heads, head_dim, .. } = self.spec;
        let rows = x.rows()?;
        let [mut q, mut k, mut v] = Linear::normed_each(qkv.layers.each_ref(), x)?;
        if let Some(changes) = &qkv.changes {
            let x = x.tensor()?;
            for (change, projected) in changes.iter().zip([&mut q, &mut k, &mut v]) {
                *projected = change.add(x, projected)?;
            }
        }
        if adapters.change(&[Projection::Query, Projection::Key, Projection::Value]) {
            let x = x.tensor()?;
            q = adapters.add(Projection::Query, x, q, 1.0)?;
            k = adapters.add(Projection::Key, x, k, 1.0)?;
            v = adapters.add(Projection::Value, x, v, 1.0)?;
        }
        let mut q = q.reshape((rows, num_heads, head_dim))?;
        let mut k = k.reshape((rows, num_kv_heads, head_dim))?;
        let mut v = v.reshape((rows, num_kv_heads, self.spec.value_dim()))?;
        if let Some(norms) = &qkv.norms {
            [q, k] = norms.apply([q, k])?;
        }
        // Where a norm is fused with the rotation, queries are scaled behind both.
        if qkv.norms.as_ref().and_then(QueryKeyNorms::fused).is_none() {
            q = angles.scale_queries(q)?;
        }
        if let Some(norm) = &self.value_norm {
            v = norm.forward(&v)?;
        }
        if self.spec.value_scale.to_bits() != 1.0f32.to_bits() {
            v = (v * f64::from(self.spec.value_scale))?;
        }
        if let Some(bound) = self.spec.clip {
            for x in [&mut q, &mut k, &mut v] {
                *x = x.clamp(-bound, bound)?;
            }
        }
        if let Some(biases) = &self.value_biases {
            [q, k] = biases.extend(&q, &k, &v)?;
        }
        Ok([q, k, v])
    }

    /// Elements of a row before the output projection.
    pub fn width(&self) -> usize {
        self.spec.outputs()
    }

    /// The output projection of `attended [.., heads * head_dim]`: `[.., hidden]`.
    pub fn project(&self, attended: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        adapters.add(Projection::Output, attended, self.output.forward(attended)?, 1.0)
    }

    /// `residual + factor * project(attended)`.
    pub fn project_add(
        &self,
        attended: &Tensor,
        residual: &Tensor,
        factor: f32,
        adapters: LayerAdapters<'_>,
    ) -> Result<Tensor> {
        let sum = self.output.forward_add_scaled(attended, residual, factor)?;
        adapters.add(Projection::Output, attended, sum, factor)
    }
}
