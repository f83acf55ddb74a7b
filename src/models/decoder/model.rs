//! A loaded decoder: the embedding, the layers one after the other, and the output head.

use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::adaptable;
use super::draft_head::{HeadNames, Join};
use super::embedding_and_head::{HeadTransform, Names};
use super::layer::Layer;
use super::layer_inputs::LayerInputTable;
use super::pictures;
use super::positions;
use super::schedule::Joins;
use super::shared_block;
use super::spec::{DecoderSpec, Head, Memory};
use super::split::{self, Part};
use super::stage::Stage;
use super::step::{Carried, LayerStep};
use super::streams::Streams;
use super::tapped::Tapped;
use crate::kernels::pointwise::soft_cap;
use crate::layers::adapter::{Adapters, Site, add_to_embeddings};
use crate::layers::embedding::Embedding;
use crate::layers::forward::{ForwardBatch, ForwardContext, Indices, KvShape, PreviousHidden};
use crate::layers::group::Group;
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, NormSpec};
use crate::layers::rope::{Rope, RopeAngles};
use crate::models::adapter::AdapterLayout;
use crate::models::causal_lm::{CausalLm, ForwardOutput};
use crate::models::error::{ModelError, bad};
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded decoder.
pub struct Decoder {
    /// The first stage alone has it.
    embedding: Option<Embedding>,
    positions: Option<Embedding>,
    /// `[hidden]`: the embedding of the first token type.
    token_type: Option<Tensor>,
    embedding_norm: Option<Norm>,
    /// `[hidden]`: what is added to embeddings, and what they are multiplied by then.
    embedding_sum: Option<[Tensor; 2]>,
    /// What joins embeddings with hidden states, in a head that drafts.
    join: Option<Join>,
    ropes: Vec<Rope>,
    layers: Vec<Layer>,
    /// The layer at each place that hidden states go through, and where it has its memory there.
    places: Vec<(usize, Memory)>,
    joins: Joins,
    streams: Option<Streams>,
    layer_inputs: Option<LayerInputTable>,
    norm: Option<Norm>,
    before_head: Option<HeadTransform>,
    head: Option<Linear>,
    /// `[vocab_size]`: scales of logits.
    logit_scales: Option<Tensor>,
    kv_shape: KvShape,
    spec: DecoderSpec,
    group: Arc<dyn Group>,
    stage: Stage,
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
        Self::load_stage(spec, weights, group, Stage::WHOLE)
    }

    /// The same for the layers of a stage.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; more stages than layers, or layers that must stay together.
    pub fn load_stage(
        spec: &DecoderSpec,
        weights: &Weights,
        group: Arc<dyn Group>,
        stage: Stage,
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
            split::part(spec, names.root, group.rank(), group.size())?;
        let weights = &weights.clone().cut(cuts);
        let own = stage.layers(&spec, weights, &names, &layers)?;
        let spec = &stage.part(spec, &own)?;
        let ends = stage.is_first().then(|| names.load(spec, weights, vocabulary)).transpose()?;
        let (embedding, head) = ends.unzip();
        let model = weights.scope_as(names.root);
        let layers =
            model.scope(spec.names.layers).with_transposed_matrices(spec.transposed_matrices);
        let norm = |name: &'static str, variant: Option<NormSpec>| {
            Norm::load(&model.scope(name), first.hidden_size, variant.unwrap_or(spec.norm))
        };
        let of_embedding = |name: &'static str| norm(name, spec.other_norms.embedding);
        let last = |name: &'static str| norm(name, spec.other_norms.last);
        let token_type = |(name, rows): (&str, usize)| {
            let table =
                model.scope(name).dense("weight", &[rows, first.hidden_size], DType::F32)?;
            Ok::<_, WeightError>(table.narrow(0, 0, 1)?.squeeze(0)?)
        };
        let layer_inputs =
            spec.layer_inputs.map(|inputs| LayerInputTable::load(&model, spec, inputs));
        let shared = shared_block::load(&layers, spec)?.into_iter();
        let of_places = model.clone().with_transposed_matrices(spec.transposed_matrices);
        let layer = |(index, (own, shared))| {
            let own = of_places.scope(spec.stored_layer(own));
            Layer::load(&own, spec, index, shared, group.clone())
        };
        let is_first = |place: &(usize, _)| spec.first_place(place.0) == place.0;
        let layers = own.zip(shared).enumerate().filter(is_first).map(layer);
        let before_head =
            stage.is_first().then(|| HeadTransform::load(weights, spec)).transpose()?;
        Ok(Self {
            embedding: embedding.map(Embedding::new),
            positions: positions::load(&model, spec)?,
            token_type: spec.token_types.map(token_type).transpose()?,
            embedding_norm: spec.embedding_norm.map(of_embedding).transpose()?,
            embedding_sum: embedding_sum(&model, spec, stage)?,
            join: None,
            ropes: spec.ropes.iter().map(Rope::new).collect(),
            layers: layers.collect::<std::result::Result<_, _>>()?,
            places: places(spec),
            joins: Joins::load(&model, spec)?,
            streams: Streams::load(&model, spec)?,
            layer_inputs: layer_inputs.transpose()?,
            norm: (!spec.names.norm.is_empty()).then(|| last(spec.names.norm)).transpose()?,
            before_head: before_head.flatten(),
            head: head.flatten(),
            logit_scales: logit_scales(weights, spec, stage)?,
            kv_shape: spec.kv_shape(),
            spec: spec.clone(),
            group,
            stage,
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
        let mut spec = self.spec.of_draft_head(names.is_dense(&self.spec, weights));
        if let Some(norm) = names.mlp_norm() {
            spec.block.before_mlp = Some(norm);
        }
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
            embedding: embedding.map(Embedding::new).or_else(|| self.embedding.clone()),
            positions: None,
            token_type: None,
            embedding_norm: None,
            embedding_sum: None,
            join: Some(names.join(&spec, weights)?),
            ropes: spec.ropes.iter().map(Rope::new).collect(),
            layers: vec![Layer::load(&layer, &spec, 0, None, self.group.clone())?],
            places: places(&spec),
            joins: Joins::load(&layer, &spec)?,
            streams: None,
            layer_inputs: None,
            norm: names.norm().map(norm).transpose()?,
            before_head: None,
            head: head.map_err(WeightError::from)?.or_else(|| self.head.clone()),
            logit_scales: self.logit_scales.clone(),
            kv_shape: spec.kv_shape(),
            spec,
            group: self.group.clone(),
            stage: Stage::WHOLE,
        }))
    }

    /// The hidden states before the first layer: of tokens, or those that the stage before gave.
    fn first(&self, batch: &ForwardBatch, ids: Indices<'_>, device: &Device) -> Result<Tensor> {
        let hidden = batch.previous_hidden.as_ref().map(|PreviousHidden(hidden)| hidden);
        let step = &batch.step;
        let Some(embedding) = &self.embedding else {
            let (rows, size) = (step.input_ids.len(), self.hidden_size());
            return match hidden {
                Some(hidden) if hidden.dims() == [rows, size] => Ok(hidden.clone()),
                given => {
                    let given = given.map_or(&[][..], Tensor::dims);
                    bail!("a stage was given hidden states {given:?}, expected [{rows}, {size}]")
                }
            };
        };
        let mut x = embedding.forward(ids, device)?;
        if is_not_one(self.spec.embedding_scale) {
            x = (x * f64::from(self.spec.embedding_scale))?;
        }
        x = add_to_embeddings(&batch.adapters, &step.input_ids, x)?;
        if let Some(positions) = &self.positions {
            x = (x + positions.forward(step.token_positions(), device)?)?;
        }
        if let Some(token_type) = &self.token_type {
            x = x.broadcast_add(token_type)?;
        }
        if let Some(norm) = &self.embedding_norm {
            x = norm.forward(&x)?;
        }
        if let Some([added, factors]) = &self.embedding_sum {
            x = x.broadcast_add(added)?.broadcast_mul(factors)?;
        }
        if let Some(join) = &self.join {
            let Some(hidden) = hidden else { bail!("a head that drafts needs hidden states") };
            x = join.forward(&x, hidden, &step.positions)?;
        }
        pictures::show(&mut x, &batch.pictures)?;
        Ok(x)
    }

    /// Logits of hidden states after the final norm; without an output head there must be no rows.
    fn logits(&self, x: &Tensor, adapters: &Adapters<'_>) -> Result<Tensor> {
        let rows = x.dim(0)?;
        if rows == 0 {
            return Tensor::zeros((0, self.spec.vocab_size), DType::F32, x.device());
        }
        let Some(head) = &self.head else {
            bail!("{rows} rows of logits are wanted of a decoder without a head");
        };
        let transformed = self.before_head.as_ref().map(|own| own.forward(x)).transpose()?;
        let x = transformed.as_ref().unwrap_or(x);
        // Scaling hidden states is cheaper than scaling logits.
        let scale = self.spec.logit_scale;
        let scaled = is_not_one(scale).then(|| x * f64::from(scale)).transpose()?;
        let x = scaled.as_ref().unwrap_or(x);
        let mut logits = self.group.gather(head.forward(x)?)?;
        if let Some(scales) = &self.logit_scales {
            logits = logits.broadcast_mul(scales)?;
        }
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
        let mut x = self.first(batch, ids, device)?;
        let no_angles = RopeAngles::none(step.positions.len(), &x)?;
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map(|table| table.forward(ids, &x, device)).transpose()?;
        let embeddings = self.spec.shared_blocks.as_ref().map(|_| x.clone());
        let embeddings = embeddings.as_ref();
        if let Some(streams) = &self.streams {
            x = streams.expand(&x)?;
        }
        // After the last layer's attention only the rows that are wanted are computed.
        let mut wanted = batch.wanted_rows();
        // No GPU starts a kernel for no rows: if none is wanted, as in the middle of a prompt, one goes
        // through the last layer all the same.
        let none = wanted.is_empty();
        wanted.extend(none.then_some(0));
        // The next stage needs all.
        let all = wanted.len() == step.input_ids.len() || !self.stage.is_last();
        let kept = if all { None } else { Some(Tensor::new(wanted.as_slice(), device)?) };
        let adapters = Adapters::of_all(&batch.adapters, step.input_ids.len(), device)?;
        let adapters_kept = Adapters::of_kept(&batch.adapters, &wanted, device)?;
        let mut tapped = Tapped::new(&batch.taps, step.input_ids.len(), device)?;
        let carried = Carried::default();
        let (mut x, mut joined) = self.joins.begin(x)?;
        for (i, &(layer, memory)) in self.places.iter().enumerate() {
            context.check_interruption()?;
            x = self.joins.join(i, x, &mut joined, self.norm.as_ref())?;
            let keep = kept.as_ref().filter(|_| i + 1 == self.places.len());
            let after = if keep.is_some() { &adapters_kept } else { &adapters };
            let adapters = [adapters.layer(layer), after.layer(layer)];
            let layer = &self.layers[layer];
            tapped.look(i, || layer.active(&x))?;
            let angles = self.spec.attention[i].rope.map_or(&no_angles, |rope| &angles[rope]);
            let input = inputs.as_ref().map(|all| all.narrow(1, i, 1)?.squeeze(1)?.contiguous());
            let input = input.transpose()?;
            let inputs = LayerStep {
                context,
                step,
                angles,
                memory,
                input,
                embeddings,
                carried: &carried,
                keep,
                adapters,
            };
            x = layer.forward(x, &inputs)?;
            if i < self.spec.picture_layers {
                pictures::show_again(&mut x, &batch.pictures, i)?;
            }
        }
        let tapped = tapped.joined()?;
        if none || !self.stage.is_last() {
            let hidden = (!self.stage.is_last()).then_some(x);
            let nothing = ForwardOutput::of_no_rows(self.spec.vocab_size, device)?;
            return Ok(ForwardOutput { hidden, tapped, ..nothing });
        }
        if let Some(streams) = &self.streams {
            x = streams.contract(&x)?;
        }
        let x = self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))?;
        Ok(ForwardOutput { tapped, ..self.finish(batch, &x)? })
    }

    fn is_stage(&self) -> bool {
        self.stage.count > 1
    }

    fn finish(&self, batch: &ForwardBatch, hidden: &Tensor) -> Result<ForwardOutput> {
        let adapters = Adapters::of_kept(&batch.adapters, &batch.logits_rows, hidden.device())?;
        if batch.hidden_rows.is_empty() {
            let logits = self.logits(hidden, &adapters)?;
            return Ok(ForwardOutput { logits, hidden: None, tapped: None });
        }
        let wanted = batch.wanted_rows();
        let logits = self.logits(&rows_of(hidden, &batch.logits_rows, &wanted)?, &adapters)?;
        let hidden = rows_of(hidden, &batch.hidden_rows, &wanted)?;
        Ok(ForwardOutput { logits, hidden: Some(hidden), tapped: None })
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

    fn is_prefix_lm(&self) -> bool {
        self.spec.prefix_lm
    }

    fn hidden_size(&self) -> usize {
        self.spec.mlp.hidden_size
    }

    fn needs_hidden(&self) -> bool {
        self.join.is_some()
    }

    fn num_layers(&self) -> usize {
        self.places.len()
    }

    fn embedding(&self) -> Option<&Embedding> {
        self.embedding.as_ref()
    }

    fn output_head(&self) -> Option<&Linear> {
        self.head.as_ref()
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
        (self.group.size() == 1 && !self.is_stage()).then(|| adaptable::layout(&self.spec))
    }
}

/// Loads what is added to embeddings and what they are multiplied by, where there is such.
fn embedding_sum(
    weights: &Weights,
    spec: &DecoderSpec,
    stage: Stage,
) -> Loaded<Option<[Tensor; 2]>> {
    let Some(names) = spec.embedding_sum.filter(|_| stage.is_first()) else { return Ok(None) };
    let [added, factors] =
        names.map(|name| weights.dense(name, &[spec.mlp.hidden_size], DType::F32));
    Ok(Some([added?, factors?]))
}

/// Loads the scales of logits `[vocab_size]`, where the output head has some.
fn logit_scales(weights: &Weights, spec: &DecoderSpec, stage: Stage) -> Loaded<Option<Tensor>> {
    let there = stage.is_first() && spec.head != Head::Absent;
    let Some((name, factor)) = spec.logit_scales.filter(|_| there) else { return Ok(None) };
    let scales = weights.dense(name, &[spec.vocab_size], DType::F32)?;
    Ok(Some((scales * f64::from(factor))?))
}

/// The layer at each place, and where it has its memory there.
fn places(spec: &DecoderSpec) -> Vec<(usize, Memory)> {
    let mut layers = 0;
    let mut places: Vec<(usize, Memory)> = Vec::new();
    for index in 0..spec.attention.len() {
        let first = spec.first_place(index);
        let layer = if first < index { places[first].0 } else { layers };
        layers = layers.max(layer + 1);
        places.push((layer, spec.memory(index)));
    }
    places
}

/// The states of `rows` out of `states`, which are those of the `wanted` rows; both ascend.
pub(super) fn rows_of(states: &Tensor, rows: &[u32], wanted: &[u32]) -> Result<Tensor> {
    // No GPU starts a kernel for no rows.
    if rows.is_empty() {
        return Tensor::zeros((0, states.dim(1)?), states.dtype(), states.device());
    }
    // Captured steps want all, and move nothing to the device.
    if rows == wanted {
        return Ok(states.clone());
    }
    let indices = rows.iter().map(|row| wanted.partition_point(|other| other < row));
    let indices = indices.map(|index| u32::try_from(index).map_err(candle_core::Error::wrap));
    let indices = Tensor::new(indices.collect::<Result<Vec<u32>>>()?, states.device())?;
    states.index_select(&indices, 0)
}

fn is_not_one(factor: f32) -> bool {
    factor.to_bits() != 1.0f32.to_bits()
}
