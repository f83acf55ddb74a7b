//! The metadata of one architecture, and what was asked of it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::header::TensorInfo;
use super::value::{Metadata, Value};

/// Keys that change what a layer computes; present, not zero and of no use to an architecture,
/// they mean another model.
const NUMERICAL: [&str; 33] = [
    "expert_count",
    "expert_weights_scale",
    "expert_weights_norm",
    "expert_gating_func",
    "expert_shared_count",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "nextn_predict_layers",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "attention.scale",
    "attention.output_scale",
    "attention.value_scale",
    "attention.temperature_scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.sliding_window_pattern",
    "attention.shared_kv_layers",
    "attention.key_length_swa",
    "attention.key_length_mla",
    "attention.kv_lora_rank",
    "attention.q_lora_rank",
    "embedding_length_per_layer_input",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "use_parallel_residual",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scaling.yarn_log_multiplier",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "activation_sparsity_scale",
];

/// Most layers that are believed of a file without their tensors.
const MOST_LAYERS: usize = 1024;

/// The metadata of one architecture, by the end of its keys, and which tensors there are.
pub(crate) struct ModelKeys<'a> {
    metadata: &'a Metadata<'a>,
    gguf: &'static str,
    heads: Heads,
    tensors: &'a [TensorInfo],
    asked: RefCell<BTreeSet<&'static str>>,
}

/// Finds out how the attention heads are cut.
pub(crate) type Heads = fn(&ModelKeys<'_>) -> Result<HeadCounts, String>;

/// How the attention heads are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadCounts {
    /// Query heads.
    pub query: usize,
    /// Key heads.
    pub key: usize,
    /// Elements of a head's query and key.
    pub dim: usize,
    /// Elements of a head's value.
    pub value: usize,
    /// Elements of a head that are rotated.
    pub rotary: usize,
}

impl<'a> ModelKeys<'a> {
    /// The keys that begin with `gguf`; `heads` reads those of the attention heads.
    pub(crate) fn new(
        metadata: &'a Metadata<'a>,
        gguf: &'static str,
        heads: Heads,
        tensors: &'a [TensorInfo],
    ) -> Self {
        Self { metadata, gguf, heads, tensors, asked: RefCell::default() }
    }

    /// What the file calls the architecture, which is how all its keys begin.
    pub(super) fn gguf(&self) -> &'static str {
        self.gguf
    }

    pub(super) fn metadata(&self) -> &'a Metadata<'a> {
        self.metadata
    }

    /// Whether somebody asked for the key that ends so.
    pub(super) fn was_asked(&self, end: &str) -> bool {
        self.asked.borrow().contains(end)
    }

    /// The whole key, which counts as asked for.
    pub(super) fn key(&self, end: &'static str) -> String {
        self.asked.borrow_mut().insert(end);
        format!("{}.{end}", self.gguf)
    }

    /// A count that the format stores once, or once for every layer.
    pub(super) fn count(&self, end: &'static str) -> Result<Option<u64>, String> {
        let key = self.key(end);
        if let Some(array) = self.metadata.get(&key).and_then(Value::as_array) {
            let counts = array.collect(Value::as_u64).filter(|counts| !counts.is_empty());
            let counts = counts.ok_or_else(|| format!("metadata `{key}` is no array of counts"))?;
            if counts.iter().any(|count| *count != counts[0]) {
                return Err(format!("metadata `{key}` differs from layer to layer: not supported"));
            }
            return Ok(Some(counts[0]));
        }
        self.metadata.u64(&key)
    }

    pub(super) fn required(&self, end: &'static str) -> Result<u64, String> {
        match self.count(end)? {
            Some(0) => Err(format!("metadata `{}` is 0, expected at least 1", self.key(end))),
            Some(count) => Ok(count),
            None => Err(format!("metadata `{}` is missing", self.key(end))),
        }
    }

    pub(super) fn float(&self, end: &'static str) -> Result<Option<f64>, String> {
        self.metadata.f64(&self.key(end))
    }

    pub(super) fn required_float(&self, end: &'static str) -> Result<f64, String> {
        self.float(end)?.ok_or_else(|| format!("metadata `{}` is missing", self.key(end)))
    }

    pub(super) fn text(&self, end: &'static str) -> Result<Option<String>, String> {
        self.metadata.text(&self.key(end))
    }

    pub(super) fn bool(&self, end: &'static str) -> Result<Option<bool>, String> {
        self.metadata.bool(&self.key(end))
    }

    /// An array with one value for each layer.
    pub(super) fn per_layer<T>(
        &self,
        end: &'static str,
        convert: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, String> {
        let key = self.key(end);
        if self.metadata.get(&key).is_some_and(|value| value.as_array().is_none()) {
            return Ok(None);
        }
        let values = self.metadata.array(&key, "an array with a value for each layer", convert)?;
        let layers = self.layers()?;
        match values {
            Some(values) if values.len() < layers => Err(format!(
                "metadata `{key}` has {} values, expected {layers}, one for each layer",
                values.len()
            )),
            values => Ok(values.map(|mut values| {
                values.truncate(layers);
                values
            })),
        }
    }

    /// A count of each layer, which the file may store once for all of them.
    pub(super) fn each_layer(&self, end: &'static str) -> Result<Vec<u64>, String> {
        match self.per_layer(end, Value::as_u64)? {
            Some(counts) => Ok(counts),
            None => Ok(vec![self.required(end)?; self.layers()?]),
        }
    }

    pub(super) fn tensors(&self) -> &'a [TensorInfo] {
        self.tensors
    }

    /// A tensor by its GGUF name.
    pub(super) fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensor(name).is_some()
    }

    /// Layers that generate text; others only draft tokens.
    pub(crate) fn layers(&self) -> Result<usize, String> {
        let all = self.required("block_count")?;
        let drafting = self.count("nextn_predict_layers")?.unwrap_or(0);
        match usize::try_from(all.saturating_sub(drafting)) {
            Ok(0) => Err(format!("{drafting} of {all} layers draft tokens, expected fewer")),
            Ok(layers) if layers <= self.tensors.len() => Ok(layers),
            // The file of a head that drafts has none of them.
            Ok(layers) if drafting > 0 && layers <= MOST_LAYERS => Ok(layers),
            _ => Err(format!("{} tensors are too few for {all} layers", self.tensors.len())),
        }
    }

    /// How the attention heads are cut.
    pub(crate) fn heads(&self) -> Result<HeadCounts, String> {
        (self.heads)(self)
    }

    /// How heads are cut where those of all layers, and of keys and values, have one size.
    pub(super) fn equal_heads(&self) -> Result<HeadCounts, String> {
        let query = self.required("attention.head_count")?;
        let key = self.count("attention.head_count_kv")?.unwrap_or(query);
        self.heads_of(query, key)
    }

    /// How heads are cut where there are this many query and key heads, all of one size.
    pub(super) fn heads_of(&self, query: u64, key: u64) -> Result<HeadCounts, String> {
        let hidden = self.required("embedding_length")?;
        if key == 0 || !query.is_multiple_of(key) {
            return Err(format!("{query} query heads can't share {key} key heads evenly"));
        }
        let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
        let dim = match self.count("attention.key_length")? {
            Some(dim) => dim,
            None => self.stored_head_dim(query).unwrap_or(hidden / query),
        };
        let value_dim = self.count("attention.value_length")?.unwrap_or(dim);
        let rotary = self.count("rope.dimension_count")?.unwrap_or(dim);
        if dim == 0 || dim % 2 != 0 || value_dim != dim {
            return Err(format!(
                "heads have {dim} key and {value_dim} value dimensions, expected two equal and \
                 even numbers"
            ));
        }
        if rotary == 0 || rotary > dim || rotary % 2 != 0 {
            return Err(format!(
                "{rotary} of the {dim} dimensions of a head are rotary, expected an even number \
                 from 2 to {dim}"
            ));
        }
        Ok(HeadCounts {
            query: small(query)?,
            key: small(key)?,
            dim: small(dim)?,
            value: small(value_dim)?,
            rotary: small(rotary)?,
        })
    }

    /// Rows of the query projection for each head: some files don't say it otherwise.
    fn stored_head_dim(&self, heads: u64) -> Option<u64> {
        let rows = *self.tensor("blk.0.attn_q.weight")?.shape.first()? as u64;
        rows.is_multiple_of(heads).then_some(rows / heads)
    }

    /// Refuses a key of [`NUMERICAL`] that is set and that nobody asked for.
    pub(super) fn refuse_unread(&self) -> Result<(), String> {
        for end in NUMERICAL {
            if self.asked.borrow().contains(end) {
                continue;
            }
            let key = format!("{}.{end}", self.gguf);
            let value = self.metadata.get(&key);
            let set = value.and_then(Value::as_f64).is_some_and(|v| v != 0.0);
            let on = value.and_then(Value::as_bool) == Some(true);
            let any = value
                .and_then(Value::as_array)
                .is_some_and(|array| array.values().any(|value| value.as_f64() != Some(0.0)));
            if set || on || any {
                return Err(format!("metadata `{key}` is set, which is not supported in GGUF"));
            }
        }
        Ok(())
    }
}
