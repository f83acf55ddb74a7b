//! From the configuration of an EAGLE-3 head to the head.

use serde_json::Value;

use super::fields::{Fields, taps};
use crate::models::causal_lm::CausalLm;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::eagle::{EagleHead, EagleSpec};
use crate::models::error::{Result, bad};
use crate::weights::Weights;

/// The part of a configuration that trainers write.
const PART: &str = "eagle_config";

/// Builds the head that `config` describes, whose layer is that of `decoder`.
pub(super) fn load(
    config: &Value,
    decoder: DecoderSpec,
    weights: &Weights,
    model: &dyn CausalLm,
) -> Result<Box<dyn CausalLm>> {
    let spec = spec(config, decoder, model)?;
    // A head with hidden states of another size can't share it.
    let fits = spec.decoder.mlp.hidden_size == spec.model_hidden_size;
    let embedding = model.embedding().filter(|_| fits);
    Ok(Box::new(EagleHead::load(&spec, weights, embedding)?))
}

/// What a configuration says of such a head for `model`, as plain data.
fn spec(config: &Value, decoder: DecoderSpec, model: &dyn CausalLm) -> Result<EagleSpec> {
    let fields = Fields::of(config, PART);
    if decoder.attention.len() != 1 {
        return Err(bad(
            "num_hidden_layers",
            decoder.attention.len(),
            "must be 1 in an EAGLE-3 head",
        ));
    }
    let sizes = [decoder.vocab_size, decoder.mlp.hidden_size];
    let [model_hidden_size, draft_vocab_size] = fields.fit(sizes, model)?;
    if fields.is("use_aux_hidden_state", true) {
        return Ok(EagleSpec {
            taps: tapped(&fields, model.num_layers())?,
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

/// The configuration of the layer.
pub(super) fn of_layer(config: &Value) -> Value {
    let mut fields = Fields::of(config, PART).of_layers();
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let classes = config.get("architectures").map(Value::to_string).unwrap_or_default();
    let class = match text("model_type") {
        _ if classes.contains("Eagle3Qwen3ForCausalLM") => "Qwen3ForCausalLM",
        Some("qwen3") if config.get("transformer_layer_config").is_some() => "Qwen3ForCausalLM",
        _ => "LlamaForCausalLM",
    };
    fields.insert("architectures".to_owned(), vec![class].into());
    Value::Object(fields)
}

/// The layers of a model of `layers` whose inputs the head sees.
///
/// vLLM counts the inputs of layers, and by default takes those of low, middle and high ones. What
/// trainers write into `eagle_config` counts outputs.
fn tapped(fields: &Fields<'_>, layers: usize) -> Result<Vec<usize>> {
    const NAME: &str = "eagle_aux_hidden_state_layer_ids";
    let (listed, offset) = match (fields.list(NAME, false), fields.list(NAME, true)) {
        (Some(inputs), _) => (inputs, 0),
        (None, Some(outputs)) => (outputs, 1),
        (None, None) => {
            let high = layers.checked_sub(3).filter(|high| *high > layers / 2);
            let bound = format!("is needed for a model of {layers} layers");
            let high = high.ok_or_else(|| bad(NAME, "absent", bound))?;
            (vec![2.into(), (layers / 2).into(), high.into()], 0)
        }
    };
    taps(NAME, listed, offset, layers, 2)
}
