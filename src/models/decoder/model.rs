//! A loaded decoder: the embedding, the layers one after the other, and the output head.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::adaptable;
use super::draft_head::{HeadNames, Join};
use super::embedding_and_head::Names;
use super::layer::Layer;
use super::layer_inputs::LayerInputTable;
use super::pictures;
use super::spec::{DecoderSpec, Head, LearnedPositions};
use super::split::{self, Part};
use super::step::LayerStep;
use super::tapped::Tapped;
use crate::kernels::pointwise::soft_cap;
use crate::layers::adapter::{Adapters, Site};
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, Indices, KvShape, PreviousHidden};
use crate::layers::group::Group;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::Norm;
use crate::layers::rope::{Rope, RopeAngles};
use crate::models::adapter::AdapterLayout;
use crate::models::causal_lm::{CausalLm, ForwardOutput};
use crate::models::error::{ModelError, bad};
use crate::weights::{WeightError, Weights};

/// A loaded decoder.
pub struct Decoder {
    embedding: Embedding,
    positions: Option<Embedding>,
    /// `[hidden]`: the embedding of the first token type.
    token_type: Option<Tensor>,
    embedding_norm: Option<Norm>,
    /// What joins embeddings with hidden states, in a head that drafts.
    join: Option<Join>,
    ropes: Vec<Rope>,
    layers: Vec<Layer>,
    layer_inputs: Option<LayerInputTable>,
    norm: Option<Norm>,
    head: Option<Linear>,
    kv_shape: KvShape,
    spec: DecoderSpec,
    group: Arc<dyn Group>,
}

impl Decoder {
    /// Loads the weights of `spec`, or the part of them that a rank of `group` has.
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
            return Err(bad("num_hidden_layers", 0, "must be at least 1"));
        };
        if spec.picture_layers >= spec.attention.len() {
            let bound = format!("must be fewer than the {} layers", spec.attention.len());
            return Err(bad("deepstack_visual_indexes", spec.picture_layers, bound));
        }
        let names = Names::find(spec, weights);
        let layers = format!("{}{}.", names.root, spec.names.layers);
        let Part { spec, cuts, vocabulary } =
            split::part(spec, &layers, group.rank(), group.size())?;
        let (spec, weights) = (&spec, &weights.clone().cut(cuts));
        let (embedding, head) = names.load(spec, weights, vocabulary)?;
        let model = weights.scope_as(names.root);
        let layers =
            model.scope(spec.names.layers).with_transposed_matrices(spec.transposed_matrices);
        let norm = |name| Norm::load(&model.scope(name), first.hidden_size, spec.norm);
        let positions = |positions: LearnedPositions| {
            // A table so small isn't worth rounding.
            let rows = positions.first..positions.first + spec.max_position_embeddings;
            let shape = [rows.end, first.hidden_size];
            let table = model.scope(positions.name);
            let all = rows.start == 0;
            let rows = (!all).then_some(std::slice::from_ref(&rows));
            let table = table.stored_rows("weight", &shape, rows)?;
            Ok::<_, WeightError>(Embedding::new(Matrix::from_stored(&model, &table, None)?))
        };
        let token_type = |(name, rows): (&str, usize)| {
            let table =
                model.scope(name).dense("weight", &[rows, first.hidden_size], DType::F32)?;
            Ok::<_, WeightError>(table.narrow(0, 0, 1)?.squeeze(0)?)
        };
        let layer_inputs =
            spec.layer_inputs.map(|inputs| LayerInputTable::load(&model, spec, inputs));
        let layer = |index| Layer::load(&layers.scope(index), spec, index, group.clone());
        let layers = (0..spec.attention.len()).map(layer);
        Ok(Self {
            embedding: Embedding::new(embedding),
            positions: spec.learned_positions.map(positions).transpose()?,
            token_type: spec.token_types.map(token_type).transpose()?,
            embedding_norm: spec.embedding_norm.map(norm).transpose()?,
            join: None,
            ropes: spec.ropes.iter().map(Rope::new).collect(),
            layers: layers.collect::<std::result::Result<_, _>>()?,
            layer_inputs: layer_inputs.transpose()?,
            norm: (!spec.names.norm.is_empty()).then(|| norm(spec.names.norm)).transpose()?,
            head,
            kv_shape: spec.kv_shape(),
            spec: spec.clone(),
            group,
        })
    }

    /// The head that the checkpoint has for drafting the token after the next one, if it has one: a
    /// decoder of one layer with this one's embedding and, unless it has its own, output head.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn draft_head(&self, weights: &Weights) -> std::result::Result<Option<Self>, ModelError> {
        let names = HeadNames::find(&self.spec, weights).filter(|_| self.group.size() == 1);
        let Some(names) = names else { return Ok(None) };
        let spec = self.spec.of_draft_head(names.is_dense(&self.spec, weights));
        let layer = weights.scope(names.layer());
        let layer = layer.with_transposed_matrices(spec.transposed_matrices);
        let outer = Names::find(&self.spec, weights);
        let another = |own: Option<String>, is_head| {
            let own = own.map(|own| outer.another(&self.spec, weights, &own, is_head));
            own.transpose().map(Option::flatten)
        };
        let [embedding, head] = names.own();
        let (embedding, head) = (another(embedding, false)?, another(head, true)?);
        let head = head.map(|head| Linear::from_matrix(head, None)).transpose();
        let norm = |name| Norm::load(&weights.scope(name), spec.mlp.hidden_size, spec.norm);
        Ok(Some(Self {
            embedding: embedding.map_or_else(|| self.embedding.clone(), Embedding::new),
            positions: None,
            token_type: None,
            embedding_norm: None,
            join: Some(names.join(&spec, weights)?),
            ropes: spec.ropes.iter().map(Rope::new).collect(),
            layers: vec![Layer::load(&layer, &spec, 0, self.group.clone())?],
            layer_inputs: None,
            norm: names.norm().map(norm).transpose()?,
            head: head.map_err(WeightError::from)?.or_else(|| self.head.clone()),
            kv_shape: spec.kv_shape(),
            spec,
            group: self.group.clone(),
        }))
    }

    /// Logits of hidden states after the final norm; without an output head there must be no rows.
    fn logits(&self, x: &Tensor, adapters: &Adapters<'_>) -> Result<Tensor> {
        let Some(head) = &self.head else {
            return match x.dim(0)? {
                0 => Tensor::zeros((0, self.spec.vocab_size), DType::F32, x.device()),
                rows => bail!("{rows} rows of logits are wanted of a decoder without a head"),
            };
        };
        // Scaling hidden states is cheaper than scaling logits.
        let scale = self.spec.logit_scale;
        let scaled = is_not_one(scale).then(|| x * f64::from(scale)).transpose()?;
        let x = scaled.as_ref().unwrap_or(x);
        let logits = self.group.gather(head.forward(x)?)?;
        let logits = adapters.add(Site::Head, x, logits, 1.0)?;
        self.spec.logit_softcap.map_or_else(|| Ok(logits.clone()), |cap| soft_cap(cap, &logits))
    }

    /// Refuses a batch whose parts don't fit each other, before anything is written to the cache.
    fn check(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<()> {
        let step = &batch.step;
        let rows = step.input_ids.len();
        if rows == 0 {
            bail!("a batch needs at least one token");
        }
        let [caches, states] = [self.kv_shape.layers.len(), self.kv_shape.states.len()];
        if context.kv.len() != caches || context.states.len() != states {
            let (kv, own) = (context.kv.len(), context.states.len());
            bail!("{kv} kv layers and {own} states, expected {caches} and {states}");
        }
        let sequences = step.context_lens.len();
        for count in [step.sequence_lens.len(), step.state_slots.len()] {
            if count != sequences {
                bail!("{count} lengths or slots of {sequences} sequences");
            }
        }
        if step.positions.len() != rows || step.slots.len() != rows {
            bail!(
                "{rows} tokens with {} positions and {} slots",
                step.positions.len(),
                step.slots.len()
            );
        }
        pictures::check(&batch.pictures, rows, self.picture_width())?;
        let wanted = [&batch.logits_rows, &batch.hidden_rows, &batch.taps.rows];
        for (what, wanted) in ["logits", "hidden", "tapped"].into_iter().zip(wanted) {
            let ascending = wanted.is_sorted_by(|a, b| a < b);
            if !ascending || wanted.last().is_some_and(|row| *row as usize >= rows) {
                bail!("{what} rows {wanted:?} don't ascend below {rows}");
            }
        }
        Ok(())
    }
}

impl CausalLm for Decoder {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        self.check(context, batch)?;
        let (device, step) = (context.device, &batch.step);
        let angles = self.ropes.iter().map(|rope| rope.angles(step, device));
        let angles = angles.collect::<Result<Vec<_>>>()?;
        let ids = pictures::fill(&batch.pictures, self.spec.picture_filler, step);
        let ids = ids.as_deref().map_or_else(|| step.ids(), Indices::from);
        let mut x = self.embedding.forward(ids, device)?;
        let no_angles = RopeAngles::none(step.positions.len(), &x)?;
        if is_not_one(self.spec.embedding_scale) {
            x = (x * f64::from(self.spec.embedding_scale))?;
        }
        if let Some(positions) = &self.positions {
            x = (x + positions.forward(step.token_positions(), device)?)?;
        }
        if let Some(token_type) = &self.token_type {
            x = x.broadcast_add(token_type)?;
        }
        if let Some(norm) = &self.embedding_norm {
            x = norm.forward(&x)?;
        }
        if let Some(join) = &self.join {
            let Some(PreviousHidden(hidden)) = &batch.previous_hidden else {
                bail!("a head that drafts needs hidden states");
            };
            x = join.forward(&x, hidden, &step.positions)?;
        }
        pictures::show(&mut x, &batch.pictures)?;
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map(|table| table.forward(ids, &x, device)).transpose()?;
        // After the last layer's attention only the rows that are wanted are computed.
        let mut wanted = wanted_rows(batch);
        // No GPU starts a kernel for no rows: if none is wanted, as in the middle of a prompt, one goes
        // through the last layer all the same.
        let none = wanted.is_empty();
        wanted.extend(none.then_some(0));
        let all = wanted.len() == step.input_ids.len();
        let kept = if all { None } else { Some(Tensor::new(wanted.as_slice(), device)?) };
        let adapters = Adapters::of_all(&batch.adapters, step.input_ids.len(), device)?;
        let adapters_kept = Adapters::of_kept(&batch.adapters, &wanted, device)?;
        let mut tapped = Tapped::new(&batch.taps, device)?;
        for (i, layer) in self.layers.iter().enumerate() {
            tapped.look(i, &x)?;
            let keep = kept.as_ref().filter(|_| i + 1 == self.layers.len());
            let after = if keep.is_some() { &adapters_kept } else { &adapters };
            let adapters = [adapters.layer(i), after.layer(i)];
            let angles = self.spec.attention[i].rope.map_or(&no_angles, |rope| &angles[rope]);
            let input = inputs.as_ref().map(|all| all.narrow(1, i, 1)?.squeeze(1)?.contiguous());
            let input = input.transpose()?;
            x = layer.forward(x, &LayerStep { context, step, angles, input, keep, adapters })?;
            if i < self.spec.picture_layers {
                pictures::show_again(&mut x, &batch.pictures, i)?;
            }
        }
        let tapped = tapped.joined()?;
        if none {
            let logits = Tensor::zeros((0, self.spec.vocab_size), DType::F32, device)?;
            return Ok(ForwardOutput { logits, hidden: None, tapped });
        }
        let x = self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))?;
        if batch.hidden_rows.is_empty() {
            let logits = self.logits(&x, &adapters_kept)?;
            return Ok(ForwardOutput { logits, hidden: None, tapped });
        }
        let with_logits = x.index_select(&indices(&batch.logits_rows, &wanted, device)?, 0)?;
        let hidden = x.index_select(&indices(&batch.hidden_rows, &wanted, device)?, 0)?;
        let adapters = Adapters::of_kept(&batch.adapters, &batch.logits_rows, device)?;
        let logits = self.logits(&with_logits, &adapters)?;
        Ok(ForwardOutput { logits, hidden: Some(hidden), tapped })
    }

    fn kv_shape(&self) -> KvShape {
        self.kv_shape.clone()
    }

    fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }

    fn gives_logits(&self) -> bool {
        self.spec.head != Head::Absent
    }

    fn hidden_size(&self) -> usize {
        self.spec.mlp.hidden_size
    }

    fn needs_hidden(&self) -> bool {
        self.join.is_some()
    }

    fn num_layers(&self) -> usize {
        self.layers.len()
    }

    fn embedding(&self) -> Option<&Embedding> {
        Some(&self.embedding)
    }

    fn picture_width(&self) -> usize {
        self.hidden_size() * (1 + self.spec.picture_layers)
    }

    fn max_position_embeddings(&self) -> usize {
        self.spec.max_position_embeddings
    }

    fn fixed_rope_length(&self) -> Option<usize> {
        self.ropes.iter().find_map(Rope::fixed_rope_length)
    }

    fn adapter_layout(&self) -> Option<AdapterLayout> {
        // Adapters are not split among ranks.
        (self.group.size() == 1).then(|| adaptable::layout(&self.spec))
    }
}

/// The rows whose logits or hidden states are wanted, ascending.
pub(super) fn wanted_rows(batch: &ForwardBatch) -> Vec<u32> {
    if batch.hidden_rows.is_empty() {
        return batch.logits_rows.clone();
    }
    let mut rows = [&batch.logits_rows[..], &batch.hidden_rows[..]].concat();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// The index of each of `rows` among the `wanted` ones, both ascending.
pub(super) fn indices(rows: &[u32], wanted: &[u32], device: &Device) -> Result<Tensor> {
    let indices = rows.iter().map(|row| wanted.partition_point(|other| other < row));
    let indices = indices.map(|index| u32::try_from(index).map_err(candle_core::Error::wrap));
    Tensor::new(indices.collect::<Result<Vec<u32>>>()?, device)
}

fn is_not_one(factor: f32) -> bool {
    factor.to_bits() != 1.0f32.to_bits()
}
