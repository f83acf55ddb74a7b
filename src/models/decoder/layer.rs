//! One layer: attention and a feed-forward part, each with its norms, added to the hidden states.

use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use super::feed_forward::FeedForward;
use super::hyper_connections::HyperConnection;
use super::layer_inputs::LayerInput;
use super::mixer::Mixer;
use super::norm_gate::NormGate;
use super::residuals::{Part, Residuals};
use super::shared_block::SharedBlock;
use super::spec::{Block, DecoderSpec};
use super::step::LayerStep;
use super::streams::{LayerStreams, LowRankPath};
use crate::layers::group::Group;
use crate::layers::moe::Moe;
use crate::layers::norm::{Norm, NormSpec};
use crate::layers::normed::Normed;
use crate::weights::{Loaded, WeightError, Weights};

/// A loaded layer.
pub(super) struct Layer {
    mixer: Option<Mixer>,
    /// What is added to the mixer's input.
    shared: Option<SharedBlock>,
    feed_forward: Option<FeedForward>,
    input: Option<LayerInput>,
    streams: Option<LayerStreams>,
    /// Around the mixer and around the feed-forward part.
    connections: Option<[HyperConnection; 2]>,
    low_rank_path: Option<LowRankPath>,
    /// Factor of the layer's output.
    scale: Option<f32>,
    before_attention: Option<Norm>,
    after_attention: Option<Norm>,
    before_mlp: Option<Norm>,
    after_mlp: Option<Norm>,
    /// Of the norms before both parts.
    gates: [Option<NormGate>; 2],
    block: Block,
    residuals: Option<Residuals>,
    shortcut: Option<Shortcut>,
    group: Arc<dyn Group>,
}

/// A layer of a pair with experts: one that they have their input from, or one that their output is added
/// behind.
enum Shortcut {
    Begins(Box<Moe>),
    Ends,
}

impl Shortcut {
    fn load(weights: &Weights, spec: &DecoderSpec, index: usize) -> Loaded<Option<Self>> {
        let Some(moe) = spec.moe.as_ref().filter(|_| spec.pairs) else { return Ok(None) };
        let first = index.is_multiple_of(2);
        Ok(Some(if first { Self::Begins(Box::new(Moe::load(weights, moe)?)) } else { Self::Ends }))
    }
}

impl Layer {
    /// Loads layer `index` of `spec`, which may have a `shared` block.
    pub(super) fn load(
        weights: &Weights,
        spec: &DecoderSpec,
        index: usize,
        shared: Option<SharedBlock>,
        group: Arc<dyn Group>,
    ) -> Loaded<Self> {
        let rest = spec.shared_blocks.as_ref().filter(|_| shared.is_some());
        let rest = rest.map(|blocks| weights.scope(blocks.rest));
        let weights = rest.as_ref().unwrap_or(weights);
        let attention = spec.attention[index];
        let norm = |name: Option<&'static str>, variant: NormSpec| {
            let load = |name: &'static str| {
                let name = match spec.names.other_norm {
                    Some([own, other]) if own == name => {
                        if weights.contains(&format!("{own}.weight")) { own } else { other }
                    }
                    _ => name,
                };
                let weights = weights.scope(spec.module(index, name));
                Norm::load(&weights, attention.hidden_size, variant)
            };
            name.map(load).transpose()
        };
        let block = spec.block(index);
        let input = spec.layer_inputs.map(|inputs| LayerInput::load(weights, spec, inputs));
        let scale = spec.layer_scale.map(|name| {
            let scale = weights.dense(name, &[1], DType::F32)?;
            Ok::<_, WeightError>(scale.to_vec1::<f32>()?[0])
        });
        let has_experts = spec.moe.as_ref().is_some_and(|moe| moe.layers[index]);
        let after_mlp = match block.after_experts.filter(|_| has_experts) {
            None => block.after_mlp,
            own => own,
        };
        let mixer = spec.has_mixer(index).then(|| Mixer::load(weights, spec, index)).transpose()?;
        let feed_forward = FeedForward::load(weights, spec, index)?;
        // A layer without a mixer or a feed-forward part doesn't have its norms.
        let around_mixer =
            |name: Option<&'static str>, variant| norm(name.filter(|_| mixer.is_some()), variant);
        let around_mlp = |name: Option<&'static str>, variant| {
            norm(name.filter(|_| feed_forward.is_some()), variant)
        };
        let outputs = spec.other_norms.outputs.unwrap_or(spec.norm);
        Ok(Self {
            input: input.transpose()?,
            streams: LayerStreams::load(weights, spec)?,
            connections: HyperConnection::load(weights, spec)?,
            low_rank_path: LowRankPath::load(weights, spec)?,
            scale: scale.transpose()?,
            before_attention: around_mixer(
                block.before_attention.filter(|_| index > 0 || !block.first_input_is_plain),
                spec.norm,
            )?,
            after_attention: around_mixer(block.after_attention, outputs)?,
            before_mlp: around_mlp(block.before_mlp, spec.norm)?,
            after_mlp: around_mlp(after_mlp, outputs)?,
            gates: NormGate::load(weights, spec)?,
            residuals: Residuals::load(
                weights,
                spec,
                index,
                [mixer.is_some(), feed_forward.is_some()],
            )?,
            mixer,
            shared,
            feed_forward,
            block,
            shortcut: Shortcut::load(weights, spec, index)?,
            group,
        })
    }

    /// Hidden states after this layer.
    pub(super) fn forward(&self, x: Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        if let Some(connections) = &self.connections {
            return self.connected(connections, x, step);
        }
        let Some(streams) = &self.streams else {
            let x = self.transform(x, step)?;
            return self.finish(x, step);
        };
        let predicted = streams.predict(&x)?;
        let computed = self.transform(streams.active(&predicted)?, step)?;
        let kept = |x: &Tensor| step.keep.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0));
        let x = streams.correct(&kept(&predicted)?, &computed)?;
        match (&self.input, &step.input) {
            (Some(layer), Some(input)) => {
                let added = layer.forward(&streams.gating(&x)?, &kept(input)?)?;
                streams.add_behind_first(&x, &added)
            }
            _ => Ok(x),
        }
    }

    /// The streams `x [num_tokens, streams * hidden]` after both parts, which read and write them.
    fn connected(
        &self,
        [around_mixer, around_mlp]: &[HyperConnection; 2],
        mut x: Tensor,
        step: &LayerStep<'_>,
    ) -> Result<Tensor> {
        let LayerStep { keep, adapters: [_, adapters], .. } = *step;
        let kept = |x: Tensor| keep.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0));
        if let Some(mixer) = &self.mixer {
            let around = around_mixer.read(&x)?;
            let dtype = mixer.input_type(around.seen.dim(0)?, step);
            let input = Normed::new(&around.seen, self.before_attention.as_ref(), dtype);
            let output = kept(mixer.mix(&input, step)?)?;
            let output = self.group.all_reduce(mixer.project(&output, adapters)?)?;
            x = around.join(&x, &output, keep)?;
        } else {
            x = kept(x)?;
        }
        let Some(feed_forward) = &self.feed_forward else { return Ok(x) };
        let around = around_mlp.read(&x)?;
        let dtype = feed_forward.input_type(around.seen.dim(0)?, adapters);
        let input = Normed::new(&around.seen, self.before_mlp.as_ref(), dtype);
        let output = feed_forward.forward(&input, &around.seen, step)?;
        around.join(&x, &self.group.all_reduce(output)?, None)
    }

    /// The one stream of hidden states of `x` that layers compute, or what the mixer sees of all of them.
    pub(super) fn active(&self, x: &Tensor) -> Result<Tensor> {
        if let Some([around_mixer, _]) = &self.connections {
            return Ok(around_mixer.read(x)?.seen);
        }
        self.streams.as_ref().map_or_else(|| Ok(x.clone()), |streams| streams.active(x))
    }

    /// Hidden states after both parts.
    fn transform(&self, x: Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        let LayerStep { keep, adapters: [_, adapters], .. } = *step;
        let (x, mixer_input, residual) = if let Some(mixer) = &self.mixer {
            self.mix(mixer, x, step)?
        } else {
            let x = keep.map_or(Ok(x.clone()), |rows| x.index_select(rows, 0))?;
            (x.clone(), x.clone(), x)
        };
        let Some(feed_forward) = &self.feed_forward else { return Ok(residual) };
        let input = match (&self.before_mlp, self.block.parallel) {
            (None, true) => Normed::plain(&mixer_input),
            (norm, true) => Normed::new(&x, norm.as_ref(), DType::F32),
            (norm, false) => {
                let rounds =
                    self.residuals.is_none() && self.shortcut.is_none() && self.gates[1].is_none();
                let rows = residual.dim(0)?;
                let dtype =
                    if rounds { feed_forward.input_type(rows, adapters) } else { DType::F32 };
                Normed::new(&residual, norm.as_ref(), dtype)
            }
        };
        let gated = self.gates[1].as_ref().map(|gate| gate.forward(input.tensor()?)).transpose()?;
        let input = gated.as_ref().map_or(input, Normed::plain);
        if let Some(Shortcut::Begins(experts)) = &self.shortcut {
            let (input, memory) = (input.tensor()?, &step.carried.router_memory);
            let given = experts.forward_add(input, &input.zeros_like()?, 1.0, memory)?;
            step.carried.shortcut.replace(Some(given));
        }
        if let Some(rows) = keep
            && let Some(memory) = step.carried.router_memory.take()
        {
            step.carried.router_memory.replace(Some(memory.index_select(rows, 0)?));
        }
        if let Some(own) = &self.residuals {
            let output = || self.group.all_reduce(feed_forward.forward(&input, &residual, step)?);
            if let Some(sum) = own.affine_sum(Part::Mlp, &residual, output)? {
                return Ok(sum);
            }
        }
        let scale = self.block.residual_scale;
        let (residual, scale) = match &self.residuals {
            None => (residual.clone(), scale),
            Some(own) => {
                let seen = if own.from_norms { input.tensor()? } else { &residual };
                own.of(Part::Mlp, seen, scale)?
            }
        };
        let sum = match &self.after_mlp {
            None => {
                let own = self.group.own_part(&residual)?;
                let scale = scale * self.block.mlp_scale;
                self.group.all_reduce(feed_forward.forward_add(&input, &own, scale, step)?)?
            }
            Some(norm) => {
                let output = feed_forward.forward(&input, &residual, step)?;
                let output = self.group.all_reduce(output)?;
                self.join(Part::Mlp, norm, &output, &residual, scale)?
            }
        };
        let ends = matches!(self.shortcut, Some(Shortcut::Ends));
        match (ends.then(|| step.carried.shortcut.take()).flatten(), keep) {
            (None, _) => Ok(sum),
            (Some(given), None) => sum + given,
            (Some(given), Some(rows)) => sum + given.index_select(rows, 0)?,
        }
    }

    /// Writes keys and values of the rows `x`, which are not normalized any more, to the layer's cache.
    pub(super) fn write(&self, x: &Tensor, step: &LayerStep<'_>) -> Result<()> {
        self.mixer.as_ref().map_or(Ok(()), |mixer| mixer.write(x, step))
    }

    /// Of the rows that are kept: the hidden states, the mixer's input, and the hidden states plus
    /// the mixer's output.
    fn mix(
        &self,
        mixer: &Mixer,
        mut x: Tensor,
        step: &LayerStep<'_>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let LayerStep { keep, adapters: [_, adapters], .. } = *step;
        let more = self.shared.as_ref().map(|block| block.forward_add(&x, step)).transpose()?;
        let seen = more.as_ref().unwrap_or(&x);
        // Who else looks at the mixer's input looks at it as it is.
        let shared =
            self.block.parallel || self.residuals.is_some() || self.low_rank_path.is_some();
        let rounds = !shared && self.gates[0].is_none();
        let dtype = if rounds { mixer.input_type(seen.dim(0)?, step) } else { DType::F32 };
        let (mut output, mut input) = {
            let seen = Normed::new(seen, self.before_attention.as_ref(), dtype);
            let gated = self.gates[0].as_ref().map(|gate| gate.forward(seen.tensor()?));
            let gated = gated.transpose()?;
            let seen = gated.as_ref().map_or(seen, Normed::plain);
            (mixer.mix(&seen, step)?, if shared { seen.tensor()?.clone() } else { x.clone() })
        };
        let mut scale = self.block.residual_scale;
        if let Some(own) = &self.residuals {
            let seen = if own.from_norms { &input } else { &x };
            (x, scale) = own.of(Part::Mixer, seen, scale)?;
        }
        if let Some(rows) = keep {
            output = output.index_select(rows, 0)?;
            x = x.index_select(rows, 0)?;
            let is_mlp_input = self.block.parallel && self.before_mlp.is_none();
            if is_mlp_input || self.low_rank_path.is_some() {
                input = input.index_select(rows, 0)?;
            }
        }
        if let Some(own) = &self.residuals {
            let projected = || self.group.all_reduce(mixer.project(&output, adapters)?);
            if let Some(sum) = own.affine_sum(Part::Mixer, &x, projected)? {
                return Ok((x, input, sum));
            }
        }
        let residual = match &self.after_attention {
            None => {
                let own = self.group.own_part(&x)?;
                self.group.all_reduce(mixer.project_add(&output, &own, scale, adapters)?)?
            }
            Some(norm) => {
                let projected = mixer.project(&output, adapters)?;
                let projected = self.group.all_reduce(projected)?;
                self.join(Part::Mixer, norm, &projected, &x, scale)?
            }
        };
        let residual = match &self.low_rank_path {
            None => residual,
            Some(path) => path.join(&residual, &input)?,
        };
        Ok((x, input, residual))
    }

    /// Hidden states plus a part's output, either of which may be what is normalized.
    fn join(
        &self,
        part: Part,
        norm: &Norm,
        output: &Tensor,
        residual: &Tensor,
        scale: f32,
    ) -> Result<Tensor> {
        if let Some(rates) = self.residuals.as_ref().and_then(|own| own.rates(part)) {
            let way = (norm.forward(output)? - residual)?;
            return residual + way.broadcast_mul(rates)?;
        }
        if self.block.normalizes_sums {
            return norm.forward(&(output + residual)?);
        }
        match scale {
            1.0 => norm.forward_add(output, residual),
            scale => residual + (norm.forward(output)? * f64::from(scale))?,
        }
    }

    /// Adds the projection of the layer's own embeddings, and scales the sum.
    fn finish(&self, mut x: Tensor, step: &LayerStep<'_>) -> Result<Tensor> {
        if let (Some(layer), Some(input)) = (&self.input, &step.input) {
            let kept = step.keep.map(|rows| input.index_select(rows, 0)).transpose()?;
            x = layer.forward_add(&x, kept.as_ref().unwrap_or(input))?;
        }
        match self.scale {
            Some(scale) => x * f64::from(scale),
            None => Ok(x),
        }
    }
}
