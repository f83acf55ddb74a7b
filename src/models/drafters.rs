//! Files that draft for a model: which kinds there are, and those that are made of the model's layers.

use serde_json::{Map, Value};

use super::causal_lm::CausalLm;
use super::config::HfConfig;
use super::decoder::eagle::{EagleHead, EagleSpec};
use super::error::{ModelError, Result, bad};
use super::registry;
use crate::weights::Weights;

/// What a configuration describes, as something that drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrafterKind {
    /// A language model of its own.
    Model,
    /// A head that goes on from what layers of the model gave, EAGLE-3.
    Eagle,
}

/// Parts of the class names of what drafts in other ways, and what that is called.
const OTHERS: [(&str, &str); 9] = [
    ("dflash", "the block drafter DFlash"),
    ("dspark", "the block drafter DSpark"),
    ("peagle", "P-EAGLE, which drafts several tokens at a time,"),
    ("eagle3deepseek", "EAGLE-3 with latent attention"),
    ("eagle", "EAGLE of the first and second version"),
    ("medusa", "Medusa"),
    ("mlpspeculator", "an MLP speculator"),
    ("mtp", "a head for multi-token prediction outside of its model's checkpoint"),
    ("assistantmodel", "an assistant that reads its model's cache"),
];

/// The kind of drafter that `config` describes.
///
/// # Errors
///
/// A kind that is not supported.
pub fn drafter_kind(config: &Value) -> Result<DrafterKind> {
    let classes = config.get("architectures").and_then(Value::as_array);
    let classes: Vec<&str> = classes.into_iter().flatten().filter_map(Value::as_str).collect();
    let lower = classes.join(" ").to_ascii_lowercase();
    let other = |(part, _): &&(&str, &str)| lower.contains(part);
    let eagle3 = lower.contains("eagle3") || config.get("draft_vocab_size").is_some();
    match OTHERS.iter().find(other) {
        Some(("eagle", _)) | None if eagle3 => Ok(DrafterKind::Eagle),
        None => Ok(DrafterKind::Model),
        Some((_, name)) => Err(ModelError::Unsupported {
            what: format!("{name} ({})", classes.join(", ")),
            supported: "a draft model and EAGLE-3 are".to_owned(),
        }),
    }
}

/// The configuration of a drafter as that of a language model, which a head nearly is.
///
/// # Errors
///
/// As [`HfConfig::from_value`].
pub fn drafter_config(kind: DrafterKind, config: &Value) -> Result<HfConfig> {
    match kind {
        DrafterKind::Model => HfConfig::from_value(config),
        DrafterKind::Eagle => HfConfig::from_value(&Fields::of(config).of_layer()),
    }
}

/// Builds the head that `config` describes, for drafting what `model` generates.
///
/// # Errors
///
/// As [`load`](super::load); a head that was made for another model.
pub fn load_eagle(
    config: &Value,
    weights: &Weights,
    model: &dyn CausalLm,
) -> Result<Box<dyn CausalLm>> {
    let spec = eagle_spec(config, model)?;
    // A head with hidden states of another size can't share it.
    let fits = spec.decoder.mlp.hidden_size == spec.model_hidden_size;
    let embedding = model.embedding().filter(|_| fits);
    Ok(Box::new(EagleHead::load(&spec, weights, embedding)?))
}

/// What a configuration says of such a head for `model`, as plain data.
fn eagle_spec(config: &Value, model: &dyn CausalLm) -> Result<EagleSpec> {
    let fields = Fields::of(config);
    let decoder = registry::spec(&drafter_config(DrafterKind::Eagle, config)?)?;
    let [layers, hidden, vocab] = [model.num_layers(), model.hidden_size(), model.vocab_size()];
    if decoder.attention.len() != 1 {
        return Err(bad(
            "num_hidden_layers",
            decoder.attention.len(),
            "must be 1 in an EAGLE-3 head",
        ));
    }
    if decoder.vocab_size != vocab {
        return Err(bad("vocab_size", decoder.vocab_size, format!("the model's is {vocab}")));
    }
    let model_hidden_size = fields.size("target_hidden_size")?.unwrap_or(decoder.mlp.hidden_size);
    if model_hidden_size != hidden {
        let bound = format!("the model's hidden states have {hidden} elements");
        return Err(bad("target_hidden_size", model_hidden_size, bound));
    }
    let draft_vocab_size = fields.size("draft_vocab_size")?.unwrap_or(vocab);
    if !(1..=vocab).contains(&draft_vocab_size) {
        return Err(bad("draft_vocab_size", draft_vocab_size, format!("must be 1 to {vocab}")));
    }
    if fields.is("use_aux_hidden_state", true) {
        return Ok(EagleSpec {
            taps: fields.taps(layers)?,
            draft_vocab_size,
            model_hidden_size,
            norm_before_projection: fields.is("norm_before_fc", false),
            norm_of_each: fields.is("fc_norm", false),
            adds_to_normalized: fields.is("norm_before_residual", false),
            goes_on_normalized: fields.is("norm_output", false),
            decoder,
        });
    }
    let bound = "heads that see the model's last hidden state alone are not supported";
    Err(bad("use_aux_hidden_state", false, bound))
}

/// The fields of a head's configuration, some of which may be in a part of it.
struct Fields<'a> {
    outer: &'a Value,
    eagle: Option<&'a Value>,
}

impl<'a> Fields<'a> {
    fn of(outer: &'a Value) -> Self {
        Self { outer, eagle: outer.get("eagle_config") }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let own = self.eagle.and_then(|eagle| eagle.get(name));
        own.or_else(|| self.outer.get(name)).filter(|value| !value.is_null())
    }

    fn is(&self, name: &str, otherwise: bool) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(otherwise)
    }

    fn size(&self, name: &'static str) -> Result<Option<usize>> {
        let size = |value: &Value| {
            let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
            size.ok_or_else(|| bad(name, value, "must be a size"))
        };
        self.get(name).map(size).transpose()
    }

    /// The configuration of the layer: that of a small language model.
    fn of_layer(&self) -> Value {
        let mut fields: Map<String, Value> = self.outer.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(layer)) = fields.remove("transformer_layer_config") {
            fields.extend(layer);
        }
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let classes = self.outer.get("architectures").map(Value::to_string).unwrap_or_default();
        let class = match text("model_type") {
            _ if classes.contains("Eagle3Qwen3ForCausalLM") => "Qwen3ForCausalLM",
            Some("qwen3") if self.outer.get("transformer_layer_config").is_some() => {
                "Qwen3ForCausalLM"
            }
            _ => "LlamaForCausalLM",
        };
        fields.insert("architectures".to_owned(), vec![class].into());
        Value::Object(fields)
    }

    /// The layers of a model of `layers` whose inputs the head sees.
    ///
    /// vLLM counts the inputs of layers, and by default takes those of low, middle and high ones. What
    /// trainers write into `eagle_config` counts outputs.
    fn taps(&self, layers: usize) -> Result<Vec<usize>> {
        const NAME: &str = "eagle_aux_hidden_state_layer_ids";
        let list = |source: Option<&Value>| {
            let ids = source.and_then(|source| source.get(NAME)).and_then(Value::as_array);
            ids.filter(|ids| !ids.is_empty()).cloned()
        };
        let (listed, offset) = match (list(Some(self.outer)), list(self.eagle)) {
            (Some(inputs), _) => (inputs, 0),
            (None, Some(outputs)) => (outputs, 1),
            (None, None) => {
                let high = layers.checked_sub(3).filter(|high| *high > layers / 2);
                let bound = format!("is needed for a model of {layers} layers");
                let high = high.ok_or_else(|| bad(NAME, "absent", bound))?;
                (vec![2.into(), (layers / 2).into(), high.into()], 0)
            }
        };
        let id = |value: &Value| {
            let id = value.as_u64().and_then(|id| usize::try_from(id).ok());
            id.and_then(|id| id.checked_add(offset))
        };
        let mut taps: Vec<usize> = listed.iter().filter_map(id).collect();
        taps.sort_unstable();
        taps.dedup();
        let known = taps.last().is_some_and(|last| *last < layers);
        if taps.len() != listed.len() || taps.len() < 2 || !known {
            let bound = format!("must be two or more of the model's {layers} layers");
            return Err(bad(NAME, Value::Array(listed), bound));
        }
        Ok(taps)
    }
}
