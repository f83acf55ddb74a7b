//! The fields of a drafter's configuration.

use serde_json::{Map, Value};

use crate::models::causal_lm::CausalLm;
use crate::models::error::{Result, bad};

/// The fields of a head's configuration, some of which may be in a part of it.
pub(super) struct Fields<'a> {
    outer: &'a Value,
    inner: Option<&'a Value>,
}

impl<'a> Fields<'a> {
    /// The fields of `outer`, and those of its part `inner`, which come first.
    pub(super) fn of(outer: &'a Value, inner: &str) -> Self {
        Self { outer, inner: outer.get(inner) }
    }

    /// A field that is there.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        let own = self.inner.and_then(|inner| inner.get(name));
        own.or_else(|| self.outer.get(name)).filter(|value| !value.is_null())
    }

    /// A field that is true or false, or what it is `otherwise`.
    pub(super) fn is(&self, name: &str, otherwise: bool) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(otherwise)
    }

    /// A size.
    pub(super) fn size(&self, name: &'static str) -> Result<Option<usize>> {
        let size = |value: &Value| {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| bad(name, value, "must be a size"))
        };
        self.get(name).map(size).transpose()
    }

    /// The configuration of the layers: that of a small language model, which may be a part.
    pub(super) fn of_layers(&self) -> Map<String, Value> {
        let mut fields: Map<String, Value> = self.outer.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(layers)) = fields.remove("transformer_layer_config") {
            fields.extend(layers);
        }
        fields
    }

    /// Refuses a drafter whose layers know `own_vocab` tokens and have hidden states of `own_hidden`
    /// elements, unless they fit `model`; gives how many elements the model's hidden states have and how
    /// many of its tokens the drafter knows.
    pub(super) fn fit(
        &self,
        [own_vocab, own_hidden]: [usize; 2],
        model: &dyn CausalLm,
    ) -> Result<[usize; 2]> {
        let [hidden, vocab] = [model.hidden_size(), model.vocab_size()];
        if own_vocab != vocab {
            return Err(bad("vocab_size", own_vocab, format!("the model's is {vocab}")));
        }
        let model_hidden_size = self.size("target_hidden_size")?.unwrap_or(own_hidden);
        if model_hidden_size != hidden {
            let bound = format!("the model's hidden states have {hidden} elements");
            return Err(bad("target_hidden_size", model_hidden_size, bound));
        }
        let draft_vocab_size = self.size("draft_vocab_size")?.unwrap_or(vocab);
        if !(1..=vocab).contains(&draft_vocab_size) {
            return Err(bad("draft_vocab_size", draft_vocab_size, format!("must be 1 to {vocab}")));
        }
        Ok([model_hidden_size, draft_vocab_size])
    }

    /// A list that isn't empty, of the outer fields or the inner ones.
    pub(super) fn list(&self, name: &str, is_inner: bool) -> Option<Vec<Value>> {
        let source = if is_inner { self.inner } else { Some(self.outer) };
        let ids = source.and_then(|source| source.get(name)).and_then(Value::as_array);
        ids.filter(|ids| !ids.is_empty()).cloned()
    }
}

/// The layers of a model of `layers` whose inputs a drafter sees, `least` or more: those that the field
/// `name` lists, which counts inputs of layers with an `offset`.
pub(super) fn taps(
    name: &'static str,
    listed: Vec<Value>,
    offset: usize,
    layers: usize,
    least: usize,
) -> Result<Vec<usize>> {
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| usize::try_from(id).ok());
        id.and_then(|id| id.checked_add(offset))
    };
    let mut taps: Vec<usize> = listed.iter().filter_map(id).collect();
    taps.sort_unstable();
    taps.dedup();
    let known = taps.last().is_some_and(|last| *last < layers);
    if taps.len() != listed.len() || taps.len() < least || !known {
        let count = if least == 1 { "one" } else { "two" };
        // What a layer gives is the input of the next one.
        let of = if offset == 0 { "" } else { " but the last one" };
        let bound = format!("must be {count} or more of the model's {layers} layers{of}");
        return Err(bad(name, Value::Array(listed), bound));
    }
    Ok(taps)
}
