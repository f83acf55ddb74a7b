//! The transformer decoder: one implementation, driven by plain data.
//!
//! A layer adds to the hidden states what attention makes of them, then what a feed-forward part
//! makes of them; after the last layer comes one more norm and the output head. What differs
//! between architectures is a value in [`DecoderSpec`]; a field is never named after a model.

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Result, Tensor, bail};

use super::adapter::AdapterLayout;
use super::{CausalLm, ForwardOutput, ModelError};
use crate::kernels::pointwise::soft_cap;
use crate::layers::adapter::{Adapters, Site};
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};
use crate::layers::group::Group;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::layers::rope::{Rope, RopeAngles};
use crate::weights::{StoredTensor, WeightError, Weights};

mod adaptable;
mod feed_forward;
mod layer;
mod layer_inputs;
mod mixer;
pub mod spec;
mod split;

use layer::{Layer, Step};
use layer_inputs::LayerInputTable;
pub use spec::DecoderSpec;
use split::Part;

/// A loaded decoder.
pub struct Decoder {
    embedding: Embedding,
    embedding_scale: f32,
    positions: Option<Embedding>,
    embedding_norm: Option<Norm>,
    ropes: Vec<Rope>,
    layers: Vec<Layer>,
    layer_inputs: Option<LayerInputTable>,
    /// For each layer the index of its rope.
    rope_of_layer: Vec<Option<usize>>,
    norm: Norm,
    head: Linear,
    logit_scale: f32,
    logit_softcap: Option<f32>,
    vocab_size: usize,
    hidden_size: usize,
    max_position_embeddings: usize,
    kv_shape: KvShape,
    spec: DecoderSpec,
    group: Arc<dyn Group>,
}

impl Decoder {
    /// Loads the weights of `spec`, or of what one rank of several has of it.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape; a decoder that can't be split among ranks.
    pub fn load(
        spec: &DecoderSpec,
        weights: &Weights,
        group: Arc<dyn Group>,
    ) -> std::result::Result<Self, ModelError> {
        let Some(first) = spec.attention.first().copied() else {
            return Err(super::config::bad("num_hidden_layers", 0, "must be at least 1"));
        };
        let ends = Ends::find(spec, weights);
        let layers = format!("{}{}.", ends.root, spec.names.layers);
        let Part { spec, cuts, vocabulary } =
            split::part(spec, &layers, group.rank(), group.size())?;
        let (spec, weights) = (&spec, &weights.clone().cut(cuts));
        let (embedding, head) = ends.load(spec, weights, vocabulary)?;
        let model = weights.scope_as(ends.root);
        let layers = model.scope(spec.names.layers).with_transposed_matrices(spec.turned_matrices);
        let norm = |name| Norm::load(&model.scope(name), first.hidden_size, spec.norm);
        let positions = |name: &str| {
            let (rows, columns) = (spec.max_position_embeddings, first.hidden_size);
            let table = weights_of_positions(&model.scope(name), rows, columns)?;
            Ok::<_, WeightError>(Embedding::new(table))
        };
        let layer_inputs =
            spec.layer_inputs.map(|inputs| LayerInputTable::load(&model, spec, inputs));
        let layer = |index| Layer::load(&layers.scope(index), spec, index, group.clone());
        let layers = (0..spec.attention.len()).map(layer);
        Ok(Self {
            embedding: Embedding::new(embedding),
            embedding_scale: spec.embedding_scale,
            positions: spec.learned_positions.map(positions).transpose()?,
            embedding_norm: spec.embedding_norm.map(norm).transpose()?,
            ropes: spec.ropes.iter().map(Rope::new).collect(),
            layers: layers.collect::<std::result::Result<_, _>>()?,
            layer_inputs: layer_inputs.transpose()?,
            rope_of_layer: spec.attention.iter().map(|layer| layer.rope).collect(),
            norm: norm(spec.names.norm)?,
            head,
            logit_scale: spec.logit_scale,
            logit_softcap: spec.logit_softcap,
            vocab_size: spec.vocab_size,
            hidden_size: first.hidden_size,
            max_position_embeddings: spec.max_position_embeddings,
            kv_shape: spec.kv_shape(),
            spec: spec.clone(),
            group,
        })
    }
}

/// Names of the embedding and the output head in a checkpoint.
struct Ends {
    root: &'static str,
    embedding: String,
    head: String,
}

impl Ends {
    /// The names that the checkpoint has, else the first that it may have.
    fn find(spec: &DecoderSpec, weights: &Weights) -> Self {
        let names = &spec.names;
        let embedding = |root: &str| format!("{root}{}.weight", names.embedding);
        let first = names.roots.first().copied().unwrap_or_default();
        let root = names.roots.iter().copied().find(|root| weights.contains(&embedding(root)));
        let root = root.unwrap_or(first);
        // A head beside `a.b.` is called as one beside `b.` there: `a.head`.
        let outer = root.trim_end_matches('.').rsplit_once('.').map_or("", |(outer, _)| outer);
        let outer = if outer.is_empty() { String::new() } else { format!("{outer}.") };
        let heads = [String::new(), outer].map(|outer| format!("{outer}{}", names.head));
        let head = heads.iter().find(|head| weights.contains(&format!("{head}.weight")));
        Self { root, embedding: embedding(root), head: head.unwrap_or(&heads[0]).clone() }
    }

    /// The embedding, and the rows `vocabulary` of the output head.
    ///
    /// A tied checkpoint has one of the two, or both with the same values; with different values
    /// it is not tied, whatever its configuration says.
    fn load(
        &self,
        spec: &DecoderSpec,
        weights: &Weights,
        vocabulary: Range<usize>,
    ) -> std::result::Result<(Matrix, Linear), ModelError> {
        let (embedding, head) = (self.embedding.as_str(), format!("{}.weight", self.head));
        let shape = [spec.vocab_size, spec.mlp.hidden_size];
        let kind = weights.rounding().map(at_least_eight_bits);
        let rows = std::slice::from_ref(&vocabulary);
        let rows = (vocabulary.len() < spec.vocab_size).then_some(rows);
        let load = |name: &str| Matrix::from_stored(weights, &weights.stored(name, &shape)?, kind);
        let part = |name: &str| {
            Matrix::from_stored(weights, &weights.stored_rows(name, &shape, rows)?, kind)
        };
        let both = |name: &str| {
            let whole = load(name)?;
            let part = if rows.is_some() { part(name)? } else { whole.clone() };
            Ok::<_, WeightError>((whole, part))
        };
        let (embedding, head) = if !spec.tied_embeddings {
            (load(embedding)?, part(&head)?)
        } else if !weights.contains(embedding) && weights.contains(&head) {
            both(&head)?
        } else if weights.contains(&head) && !same(weights, [embedding, &head], &shape)? {
            tracing::warn!("{embedding} and {head} differ in a tied checkpoint: both are used");
            (load(embedding)?, part(&head)?)
        } else {
            both(embedding)?
        };
        let bias = if spec.head_bias {
            let name = format!("{}.bias", self.head);
            let bias = weights.dense(&name, &shape[..1], DType::F32)?;
            let own = bias.narrow(0, vocabulary.start, vocabulary.len());
            Some(own.map_err(WeightError::from)?)
        } else {
            None
        };
        let head = Linear::from_matrix(head, bias).map_err(WeightError::from)?;
        Ok((embedding, head))
    }
}

/// The ends of a model suffer most from few bits: they keep at least about eight, as in llama.cpp.
fn at_least_eight_bits(kind: GgmlDType) -> GgmlDType {
    match kind {
        GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::Q8_0 => kind,
        _ => GgmlDType::Q6K,
    }
}

/// The embedding of positions, which is small and is never rounded.
fn weights_of_positions(
    weights: &Weights,
    rows: usize,
    columns: usize,
) -> std::result::Result<Matrix, WeightError> {
    Matrix::from_stored(weights, &weights.stored("weight", &[rows, columns])?, None)
}

/// Whether two stored tensors are equal in kind and values.
fn same(
    weights: &Weights,
    names: [&str; 2],
    shape: &[usize],
) -> std::result::Result<bool, WeightError> {
    let [a, b] = names.map(|name| weights.stored(name, shape));
    let (a, b): (StoredTensor, StoredTensor) = (a?, b?);
    Ok(a.kind() == b.kind() && a.bytes() == b.bytes())
}

impl CausalLm for Decoder {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        self.check(context, batch)?;
        let device = context.device;
        let angles = self.ropes.iter().map(|rope| rope.angles(batch, device));
        let angles = angles.collect::<Result<Vec<_>>>()?;
        let no_angles = RopeAngles::none(batch.positions.len(), device)?;
        let mut x = self.embedding.forward(batch.ids(), device)?;
        if is_not_one(self.embedding_scale) {
            x = (x * f64::from(self.embedding_scale))?;
        }
        if let Some(positions) = &self.positions {
            x = (x + positions.forward(batch.token_positions(), device)?)?;
        }
        if let Some(norm) = &self.embedding_norm {
            x = norm.forward(&x)?;
        }
        // Behind the last layer's attention only rows that are wanted matter.
        let wanted = wanted_rows(batch);
        let all = wanted.len() == batch.input_ids.len();
        let kept = if all { None } else { Some(Tensor::new(wanted.as_slice(), device)?) };
        let adapters = Adapters::of_all(&batch.adapters, batch.input_ids.len(), device)?;
        let adapters_kept = Adapters::of_kept(&batch.adapters, &wanted, device)?;
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map(|table| table.forward(batch.ids(), &x, device)).transpose()?;
        for (i, layer) in self.layers.iter().enumerate() {
            let keep = kept.as_ref().filter(|_| i + 1 == self.layers.len());
            let behind = if keep.is_some() { &adapters_kept } else { &adapters };
            let adapters = [adapters.layer(i), behind.layer(i)];
            let angles = self.rope_of_layer[i].map_or(&no_angles, |rope| &angles[rope]);
            let input = inputs.as_ref().map(|all| all.narrow(1, i, 1)?.squeeze(1)?.contiguous());
            let input = input.transpose()?;
            x = layer.forward(x, &Step { context, batch, angles, input, keep, adapters })?;
        }
        let x = self.norm.forward(&x)?;
        if batch.hidden_rows.is_empty() {
            return Ok(ForwardOutput { logits: self.logits(&x, &adapters_kept)?, hidden: None });
        }
        let with_logits = x.index_select(&places(&batch.logits_rows, &wanted, device)?, 0)?;
        let hidden = x.index_select(&places(&batch.hidden_rows, &wanted, device)?, 0)?;
        let adapters = Adapters::of_kept(&batch.adapters, &batch.logits_rows, device)?;
        Ok(ForwardOutput { logits: self.logits(&with_logits, &adapters)?, hidden: Some(hidden) })
    }

    fn kv_shape(&self) -> KvShape {
        self.kv_shape.clone()
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    fn max_position_embeddings(&self) -> usize {
        self.max_position_embeddings
    }

    fn longest_unchanged(&self) -> Option<usize> {
        self.ropes.iter().find_map(Rope::longest_unchanged)
    }

    fn adapter_layout(&self) -> Option<AdapterLayout> {
        // Those of a part are no adapter's.
        (self.group.size() == 1).then(|| adaptable::layout(&self.spec))
    }
}

/// All rows that anything is wanted of, ascending.
fn wanted_rows(batch: &ForwardBatch) -> Vec<u32> {
    if batch.hidden_rows.is_empty() {
        return batch.logits_rows.clone();
    }
    let mut rows = [&batch.logits_rows[..], &batch.hidden_rows[..]].concat();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Where each of `rows` stands among the `wanted` ones.
fn places(rows: &[u32], wanted: &[u32], device: &Device) -> Result<Tensor> {
    let places = rows.iter().map(|row| wanted.partition_point(|other| other < row));
    let places = places.map(|place| u32::try_from(place).map_err(candle_core::Error::wrap));
    Tensor::new(places.collect::<Result<Vec<u32>>>()?, device)
}

fn is_not_one(factor: f32) -> bool {
    factor.to_bits() != 1.0f32.to_bits()
}

impl Decoder {
    /// Logits of hidden states behind the last norm.
    fn logits(&self, x: &Tensor, adapters: &Adapters<'_>) -> Result<Tensor> {
        // The smaller of two places where the factor could be.
        let scaled = is_not_one(self.logit_scale).then(|| x * f64::from(self.logit_scale));
        let scaled = scaled.transpose()?;
        let x = scaled.as_ref().unwrap_or(x);
        let logits = self.group.gather(self.head.forward(x)?)?;
        let logits = adapters.add(Site::Head, x, logits, 1.0)?;
        self.logit_softcap.map_or_else(|| Ok(logits.clone()), |cap| soft_cap(cap, &logits))
    }

    /// Refuses a batch whose parts don't fit each other, before anything is written.
    fn check(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<()> {
        let rows = batch.input_ids.len();
        if rows == 0 {
            bail!("a batch needs at least one token");
        }
        let [caches, states] = [self.kv_shape.layers.len(), self.kv_shape.states.len()];
        if context.kv.len() != caches || context.states.len() != states {
            let (kv, own) = (context.kv.len(), context.states.len());
            bail!("{kv} kv layers and {own} states, expected {caches} and {states}");
        }
        let sequences = batch.context_lens.len();
        for count in [batch.sequence_lens.len(), batch.state_slots.len()] {
            if count != sequences {
                bail!("{count} lengths or slots of {sequences} sequences");
            }
        }
        if batch.positions.len() != rows || batch.slot_mapping.len() != rows {
            bail!(
                "{rows} tokens with {} positions and {} slots",
                batch.positions.len(),
                batch.slot_mapping.len()
            );
        }
        for (what, wanted) in [("logits", &batch.logits_rows), ("hidden", &batch.hidden_rows)] {
            let ascending = wanted.is_sorted_by(|a, b| a < b);
            if !ascending || wanted.last().is_some_and(|row| *row as usize >= rows) {
                bail!("{what} rows {wanted:?} don't ascend below {rows}");
            }
        }
        Ok(())
    }
}
