//! Tensor parallelism: the part of a decoder that one rank has is a smaller decoder, whose weights
//! are parts of the checkpoint's tensors.
//!
//! Attention is split by heads, feed-forward parts and experts by their intermediate size, the
//! output head by rows of the vocabulary. Biases of outputs that are summed over ranks belong to
//! rank 0. All else is replicated: embeddings, norms, routers.

use std::collections::HashMap;
use std::ops::Range;

use super::spec::DecoderSpec;
use crate::layers::attention::{AttentionSpec, GateTensor, NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::moe::{ExpertTensors, MoeSpec, StackedTensors};
use crate::models::error::{ModelError, Result};
use crate::weights::cut::Cut;

/// The part of a decoder that one rank has.
#[derive(Debug)]
pub(super) struct Part {
    /// The smaller decoder, with the whole vocabulary.
    pub(super) spec: DecoderSpec,
    /// The cuts of its tensors, by their full names.
    pub(super) cuts: HashMap<String, Cut>,
    /// Rows of the output head.
    pub(super) vocabulary: Range<usize>,
}

/// One rank of several.
#[derive(Clone, Copy, Debug)]
struct Share {
    rank: usize,
    size: usize,
}

impl Share {
    /// The rank's range of `count` items.
    fn of(self, count: usize, what: &str) -> Result<Range<usize>> {
        if !count.is_multiple_of(self.size) {
            return Err(self.refused(format!("{count} {what} don't divide by {}", self.size)));
        }
        let own = count / self.size;
        Ok(self.rank * own..(self.rank + 1) * own)
    }

    fn refused(self, reason: String) -> ModelError {
        ModelError::Split { size: self.size, reason }
    }

    /// The rank's key heads, which several ranks share where there are fewer heads than ranks.
    fn key_heads(self, spec: &AttentionSpec) -> Result<Range<usize>> {
        let count = spec.num_kv_heads;
        if count < self.size && self.size.is_multiple_of(count) {
            let head = self.rank * count / self.size;
            return Ok(head..head + 1);
        }
        self.of(count, "key heads")
    }
}

/// The part of `spec` that rank `rank` of `size` has; names of its tensors begin with `root`.
pub(super) fn part(spec: &DecoderSpec, root: &str, rank: usize, size: usize) -> Result<Part> {
    let share = Share { rank, size };
    let vocabulary = rank * spec.vocab_size / size..(rank + 1) * spec.vocab_size / size;
    let mut part = Part { spec: spec.clone(), cuts: HashMap::new(), vocabulary };
    if size == 1 {
        return Ok(part);
    }
    if spec.recurrent.is_some() {
        return Err(share.refused("recurrent layers can't be".to_owned()));
    }
    if spec.pairs {
        return Err(share.refused("layers that are stored in pairs can't be".to_owned()));
    }
    for index in 0..spec.attention.len() {
        let layer = format!("{root}{}.", spec.stored_layer(index));
        let mut cuts = Cuts { all: &mut part.cuts, root: layer.clone() };
        cuts.root.push_str(spec.names.attention);
        cuts.root.push('.');
        part.spec.attention[index] = cuts.attention(&spec.attention[index], share)?;
        let mut cuts = Cuts { all: &mut part.cuts, root: layer };
        let experts = spec.moe.as_ref().filter(|moe| moe.layers[index]);
        if let Some(moe) = experts {
            cuts.experts(moe, share)?;
        } else {
            cuts.feed_forward(spec.names.mlp, &spec.mlp(index), share)?;
        }
    }
    let inner = |mlp: &mut MlpSpec| mlp.intermediate_size /= size;
    inner(&mut part.spec.mlp);
    for inner in part.spec.intermediate_sizes.iter_mut().flatten() {
        *inner /= size;
    }
    if let Some(moe) = &mut part.spec.moe {
        inner(&mut moe.expert);
        if let Some(shared) = &mut moe.shared {
            inner(&mut shared.mlp);
        }
    }
    Ok(part)
}

/// Collects cuts below a name.
struct Cuts<'a> {
    all: &'a mut HashMap<String, Cut>,
    root: String,
}

impl Cuts<'_> {
    fn add(&mut self, name: &str, cut: Cut) {
        self.all.insert(format!("{}{name}", self.root), cut);
    }

    /// Cuts a linear layer to these outputs.
    fn outputs(&mut self, name: &str, ranges: &[Range<usize>]) {
        for end in ["weight", "bias"] {
            self.add(&format!("{name}.{end}"), Cut::Rows(ranges.to_vec()));
        }
    }

    /// Cuts a linear layer to these inputs; its outputs are summed over ranks.
    fn inputs(&mut self, name: &str, range: Range<usize>, share: Share) {
        self.add(&format!("{name}.weight"), Cut::Columns(vec![range]));
        if share.rank > 0 {
            self.add(&format!("{name}.bias"), Cut::Zeros);
        }
    }

    fn attention(&mut self, spec: &AttentionSpec, share: Share) -> Result<AttentionSpec> {
        let heads = share.of(spec.num_heads, "query heads")?;
        let own = AttentionSpec { num_heads: heads.len(), ..*spec };
        match spec.gate.map(|gate| gate.tensor) {
            None => {}
            Some(GateTensor::BehindQueries | GateTensor::BeforeQueries) => {
                return Err(share.refused("heads with gates can't be".to_owned()));
            }
            Some(GateTensor::Elements(name)) => {
                let each = spec.latent.map_or(spec.head_dim, |latent| latent.value_dim);
                let elements = heads.start * each..heads.end * each;
                self.outputs(name, &[elements]);
            }
            Some(GateTensor::Heads(name)) => self.outputs(name, std::slice::from_ref(&heads)),
        }
        if let Some(name) = spec.gate.and_then(|gate| gate.bias) {
            self.add(name, Cut::Rows(vec![heads.clone()]));
        }
        if let Some(name) = spec.output_bias_beside.filter(|_| share.rank > 0) {
            self.add(name, Cut::Zeros);
        }
        if spec.convolution.is_some() {
            return Err(share.refused("convolved queries and keys can't be".to_owned()));
        }
        if spec.blocks.is_some() {
            return Err(share.refused("heads that see chosen blocks can't be".to_owned()));
        }
        if spec.difference.is_some() {
            return Err(share.refused("differences of heads can't be".to_owned()));
        }
        if spec.squared_scales.is_some() {
            return Err(share.refused("heads with learned scales can't be".to_owned()));
        }
        if spec.value_bias.is_some() {
            return Err(share.refused("scores that depend on values can't be".to_owned()));
        }
        if spec.routed.is_some() {
            return Err(share.refused("heads that a router chooses can't be".to_owned()));
        }
        if spec.output_norm.is_some() {
            return Err(share.refused("heads that are normalized together can't be".to_owned()));
        }
        if spec.alibi.is_some() {
            return Err(share.refused("heads with slopes can't be".to_owned()));
        }
        if let Some(name) = spec.sinks {
            self.add(name, Cut::Rows(vec![heads.clone()]));
        }
        if let Some(latent) = spec.latent {
            let of = |size: usize| heads.start * size..heads.end * size;
            let queries = if latent.query_rank.is_some() { "q_b_proj" } else { "q_proj" };
            self.outputs(queries, &[of(latent.query_dim())]);
            self.outputs("kv_b_proj", &[of(latent.nope_dim + latent.value_dim)]);
            self.inputs(spec.output, of(latent.value_dim), share);
            return Ok(own);
        }
        let keys = share.key_heads(spec)?;
        self.qkv(spec, &heads, &keys, share)?;
        if let Some(norm) = spec.query_key_norm {
            self.query_key_norm(norm, [&heads, &keys], share)?;
        }
        let dim = spec.value_dim();
        self.inputs(spec.output, heads.start * dim..heads.end * dim, share);
        Ok(AttentionSpec { num_kv_heads: keys.len(), ..own })
    }

    /// Cuts the projections to queries, keys and values of these heads.
    fn qkv(
        &mut self,
        spec: &AttentionSpec,
        heads: &Range<usize>,
        keys: &Range<usize>,
        share: Share,
    ) -> Result<()> {
        let dim = spec.head_dim;
        let elements = |heads: &Range<usize>| heads.start * dim..heads.end * dim;
        match spec.qkv {
            QkvTensors::Separate(names) => {
                let values = keys.start * spec.value_dim()..keys.end * spec.value_dim();
                let ranges = [elements(heads), elements(keys), values];
                for (name, range) in names.into_iter().zip(ranges) {
                    self.outputs(name, &[range]);
                }
            }
            QkvTensors::Stacked(name) => {
                let after = |before: usize, heads: &Range<usize>| {
                    elements(&(before + heads.start..before + heads.end))
                };
                let (queries, kv) = (spec.num_heads, spec.num_kv_heads);
                let parts = [after(0, heads), after(queries, keys), after(queries + kv, keys)];
                self.outputs(name, &parts);
            }
            QkvTensors::Grouped(name) => {
                let sharing = spec.num_heads / spec.num_kv_heads;
                let of_key = |key: usize| {
                    let (before, first) = (key * sharing, key * (sharing + 2));
                    // The rank may have only some of the query heads that share a key head.
                    let [start, end] = [heads.start, heads.end]
                        .map(|head| first + head.saturating_sub(before).min(sharing));
                    [start..end, first + sharing..first + sharing + 2]
                };
                let parts = keys.clone().flat_map(of_key).map(|heads| elements(&heads));
                self.outputs(name, &parts.collect::<Vec<_>>());
            }
            QkvTensors::InParts(..) => {
                return Err(share.refused("heads that are stored in parts can't be".to_owned()));
            }
        }
        Ok(())
    }

    fn query_key_norm(
        &mut self,
        norm: QueryKeyNorm,
        heads: [&Range<usize>; 2],
        share: Share,
    ) -> Result<()> {
        match norm.over {
            NormSpan::Head | NormSpan::RotatedHead => Ok(()),
            NormSpan::EachHead => {
                for (name, heads) in norm.tensors.into_iter().zip(heads) {
                    self.add(&format!("{name}.weight"), Cut::Rows(vec![heads.clone()]));
                    self.each_head(name, heads);
                }
                Ok(())
            }
            NormSpan::AllHeads => {
                Err(share.refused("norms over all heads of a token can't be".to_owned()))
            }
        }
    }

    /// Renames scales that have a tensor for each head.
    fn each_head(&mut self, name: &str, heads: &Range<usize>) {
        for (own, head) in heads.clone().enumerate() {
            let theirs = format!("{}{name}.norms.{head}.weight", self.root);
            self.add(&format!("{name}.norms.{own}.weight"), Cut::Other(theirs));
        }
    }

    fn feed_forward(&mut self, name: &str, spec: &MlpSpec, share: Share) -> Result<()> {
        if spec.inner_norm.is_some() {
            let reason = "feed-forward parts with a norm inside can't be".to_owned();
            return Err(share.refused(reason));
        }
        if spec.scales.is_some() {
            return Err(share.refused("feed-forward parts with learned scales can't be".to_owned()));
        }
        if spec.gate_threshold.is_some() {
            return Err(share.refused("gates with a threshold for all can't be".to_owned()));
        }
        let inner = spec.intermediate_size;
        let own = share.of(inner, "inner elements of feed-forward parts")?;
        let path = |part: &str| {
            if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") }
        };
        let down = match spec.tensors {
            MlpTensors::Gated([gate, up, down]) => {
                self.outputs(&path(gate), std::slice::from_ref(&own));
                self.outputs(&path(up), std::slice::from_ref(&own));
                down
            }
            MlpTensors::GateAndUp([both, down]) | MlpTensors::UpAndGate([both, down]) => {
                self.outputs(&path(both), &[own.clone(), inner + own.start..inner + own.end]);
                down
            }
            MlpTensors::Plain([up, down]) => {
                self.outputs(&path(up), std::slice::from_ref(&own));
                down
            }
        };
        self.inputs(&path(down), own, share);
        Ok(())
    }

    fn experts(&mut self, spec: &MoeSpec, share: Share) -> Result<()> {
        if spec.output_bias.is_some() {
            return Err(share.refused("experts with a bias of their sum can't be".to_owned()));
        }
        if spec.parallel_dense.is_some() {
            return Err(share.refused("experts beside a feed-forward part can't be".to_owned()));
        }
        if spec.remembering.is_some() {
            return Err(share.refused("routers that remember others can't be".to_owned()));
        }
        if spec.extra.count() > 0 {
            return Err(share.refused("experts that give their input can't be".to_owned()));
        }
        match spec.experts {
            ExpertTensors::List(name) => self.listed(name, spec, share)?,
            ExpertTensors::Stacked(tensors) => self.stacked(tensors, &spec.expert, share)?,
            // Cuts of absent tensors have no effect.
            ExpertTensors::StackedOrList(tensors, name) => {
                self.stacked(tensors, &spec.expert, share)?;
                self.listed(name, spec, share)?;
            }
        }
        match &spec.shared {
            Some(shared) => self.feed_forward(shared.name, &shared.mlp, share),
            None => Ok(()),
        }
    }

    fn listed(&mut self, name: &str, spec: &MoeSpec, share: Share) -> Result<()> {
        let one = |index| format!("{name}.{index}");
        (0..spec.num_experts).try_for_each(|i| self.feed_forward(&one(i), &spec.expert, share))
    }

    fn stacked(&mut self, tensors: StackedTensors, spec: &MlpSpec, share: Share) -> Result<()> {
        let inner = spec.intermediate_size;
        let own = share.of(inner, "inner elements of experts")?;
        if tensors.ups.is_some() {
            return Err(share.refused("experts in three tensors can't be".to_owned()));
        }
        let both = if tensors.interleaved {
            let pairs = 2 * own.start..2 * own.end;
            vec![pairs]
        } else {
            vec![own.clone(), inner + own.start..inner + own.end]
        };
        let down = vec![own];
        let [outputs, inputs]: [fn(_) -> Cut; 2] = [Cut::Rows, Cut::Columns];
        let (gates, downs) = if tensors.transposed { (inputs, outputs) } else { (outputs, inputs) };
        self.add(tensors.names[0], gates(both.clone()));
        self.add(tensors.names[1], downs(down.clone()));
        if let Some([gates, downs]) = tensors.compressed {
            self.add(gates, Cut::Rows(both.clone()));
            self.add(downs, Cut::Columns(down));
        }
        if let Some([gates, downs]) = tensors.biases {
            self.add(gates, Cut::Columns(both));
            if share.rank > 0 {
                self.add(downs, Cut::Zeros);
            }
        }
        Ok(())
    }
}
