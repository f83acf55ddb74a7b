//! Selective state spaces as the files of several families describe them.

use serde::Deserialize;

use super::base::activation;
use crate::layers::recurrent::{CellSpec, RecurrentSpec, SpaceNorm, StateSpaceSpec};
use crate::models::config::HfConfig;
use crate::models::error::{Result, bad, check_size};

/// The largest size of a state space in any direction; products of four stay far from overflow.
const MAX_SIZE: usize = 1 << 15;
/// The most tokens that a causal convolution sees.
pub(crate) const MAX_TAPS: usize = 64;

/// Names of a family's fields; those of sizes come with their defaults.
pub(crate) struct StateSpaceFields {
    /// Number of heads.
    pub(crate) heads: &'static str,
    /// Elements of a head; a number, or `auto`.
    pub(crate) head_dim: &'static str,
    /// Elements that a state has for each element of a head.
    pub(crate) state_size: (&'static str, usize),
    /// Groups of heads that share B and C.
    pub(crate) groups: (&'static str, usize),
    /// Tokens that the convolution sees.
    pub(crate) taps: &'static str,
    /// Ratio of all heads' elements to those of a hidden state, where files have it.
    pub(crate) expand: Option<&'static str>,
    /// Whether the convolution has a bias.
    pub(crate) conv_bias: &'static str,
    /// Whether the projections have biases.
    pub(crate) bias: &'static str,
    /// Activation of the convolution.
    pub(crate) activation: &'static str,
}

impl StateSpaceFields {
    /// The names in hybrids, which have attention beside state spaces.
    pub(crate) const HYBRID: Self = Self {
        heads: "mamba_n_heads",
        head_dim: "mamba_d_head",
        state_size: ("mamba_d_state", 256),
        groups: ("mamba_n_groups", 1),
        taps: "mamba_d_conv",
        expand: Some("mamba_expand"),
        conv_bias: "mamba_conv_bias",
        bias: "mamba_proj_bias",
        activation: "hidden_act",
    };
}

/// State spaces in the module `name` of these `layers`; `None` if there are no such layers.
pub(crate) fn recurrent(
    config: &HfConfig,
    fields: &StateSpaceFields,
    norm_eps: f32,
    layers: Vec<bool>,
    name: &'static str,
) -> Result<Option<RecurrentSpec>> {
    if !layers.contains(&true) {
        return Ok(None);
    }
    let space = state_space(config, fields, norm_eps)?;
    let (output, output_bias) = ("out_proj", space.bias);
    let cell = CellSpec::StateSpace(space);
    Ok(Some(RecurrentSpec { layers, name, output, output_bias, cell, beside_attention: None }))
}

fn state_space(
    config: &HfConfig,
    fields: &StateSpaceFields,
    norm_eps: f32,
) -> Result<StateSpaceSpec> {
    let size = |(name, default)| config.size_or(name, default, 1..=MAX_SIZE);
    let heads = size((fields.heads, 128))?;
    let inner = match fields.expand {
        Some(name) => Some(size((name, 2))? * config.hidden_size),
        None => None,
    };
    let head_dim = head_dim(config, fields, inner, heads)?;
    let groups = size(fields.groups)?;
    if !heads.is_multiple_of(groups) {
        let bound = format!("must divide `{}` = {heads}", fields.heads);
        return Err(bad(fields.groups.0, groups, bound));
    }
    let name = config.field::<String>(fields.activation)?;
    Ok(StateSpaceSpec {
        heads,
        head_dim,
        state_size: size(fields.state_size)?,
        groups,
        taps: config.size_or(fields.taps, 4, 2..=MAX_TAPS)?,
        conv_bias: config.field_or(fields.conv_bias, true)?,
        bias: config.field_or(fields.bias, false)?,
        activation: activation(name.as_deref().unwrap_or("silu"))?,
        step_limits: step_limits(config)?,
        norm: Some(SpaceNorm { eps: norm_eps, before_gate: false }),
        factors: None,
    })
}

/// Elements of a head: as the file says, else such that `inner` is divided by all heads.
fn head_dim(
    config: &HfConfig,
    fields: &StateSpaceFields,
    inner: Option<usize>,
    heads: usize,
) -> Result<usize> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(usize),
        Word(String),
    }
    let found = match (config.field::<Size>(fields.head_dim)?, inner) {
        (Some(Size::Number(number)), _) => number,
        (Some(Size::Word(word)), _) if word != "auto" => {
            return Err(bad(fields.head_dim, word, "must be a number or auto"));
        }
        (Some(Size::Word(_)), Some(inner)) => inner / heads,
        (None, Some(inner)) if fields.head_dim == StateSpaceFields::HYBRID.head_dim => {
            inner / heads
        }
        _ => 64,
    };
    check_size(fields.head_dim, found, 1..=MAX_SIZE)?;
    match inner.filter(|inner| *inner != found * heads) {
        Some(inner) => {
            let product = format!("times `{}` = {heads} must be {inner}", fields.heads);
            let bound = format!("{product}, what hidden states expand to");
            Err(bad(fields.head_dim, found, bound))
        }
        None => Ok(found),
    }
}

/// Whether each layer has a state space instead of attention, by `layer_types`; all by default.
pub(crate) fn state_space_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let kinds = [
        ("mamba", true),
        ("linear_attention", true),
        ("attention", false),
        ("full_attention", false),
    ];
    let kinds = config.layer_kinds(&kinds, "mamba and attention")?;
    Ok(kinds.unwrap_or_else(|| vec![true; config.num_hidden_layers]))
}

/// The bounds of time steps in `time_step_limit`, of which the second may be infinite.
fn step_limits(config: &HfConfig) -> Result<[f32; 2]> {
    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    enum Limit {
        Number(f64),
        /// How transformers writes numbers that JSON can't represent.
        Named {
            #[serde(rename = "__float__")]
            name: String,
        },
    }
    let name = "time_step_limit";
    let Some(limits) = config.field::<Vec<Limit>>(name)? else { return Ok([0.0, f32::INFINITY]) };
    let value = |limit: &Limit| match limit {
        Limit::Number(number) => Some(*number),
        Limit::Named { name } if name == "Infinity" => Some(f64::INFINITY),
        Limit::Named { .. } => None,
    };
    let values: Option<Vec<f64>> = limits.iter().map(value).collect();
    match values.as_deref() {
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Some([least, most]) if 0.0 <= *least && least <= most => Ok([*least as f32, *most as f32]),
        _ => Err(bad(name, limits, "must be two numbers, 0 <= least <= largest")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::models::{ModelError, spec};

    fn config(class: &str, more: &Value) -> Result<HfConfig, ModelError> {
        let mut fields = json!({
            "architectures": [class],
            "vocab_size": 32,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 8,
            "num_heads": 4,
            "head_dim": 8,
            "n_groups": 2,
            "num_key_value_heads": 2,
            "num_local_experts": 0,
        });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        HfConfig::from_value(&fields)
    }

    fn refusal(class: &str, more: &Value) -> String {
        config(class, more).and_then(|config| spec(&config)).unwrap_err().to_string()
    }

    #[test]
    fn time_steps_have_the_bounds_of_the_file() {
        let limits = |more| step_limits(&config("Mamba2ForCausalLM", &more).unwrap());
        let bits = |limits: [f32; 2]| limits.map(f32::to_bits);
        let unbounded = bits([0.0, f32::INFINITY]);
        assert_eq!(bits(limits(json!({})).unwrap()), unbounded);
        let infinite = json!({"time_step_limit": [0.0, {"__float__": "Infinity"}]});
        assert_eq!(bits(limits(infinite).unwrap()), unbounded);
        let given = limits(json!({"time_step_limit": [0.25, 4]})).unwrap();
        assert_eq!(bits(given), bits([0.25, 4.0]));
        for wrong in [json!([1.0]), json!([2.0, 1.0]), json!([-1.0, 1.0]), json!(["a", 1.0])] {
            let error = limits(json!({"time_step_limit": wrong})).unwrap_err().to_string();
            assert!(error.contains("`time_step_limit`"), "{error}");
        }
        let unordered = json!({"time_step_limit": [{"__float__": "NaN"}, 1.0]});
        assert!(limits(unordered).is_err());
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_by_name() {
        let cases = [
            (json!({"head_dim": 4}), "`head_dim` is 4, times `num_heads` = 4 must be 32"),
            (json!({"n_groups": 3}), "`n_groups` is 3, must divide `num_heads` = 4"),
            (json!({"state_size": 0}), "`state_size` is 0, must be 1 to"),
            (json!({"conv_kernel": 1}), "`conv_kernel` is 1, must be 2 to 64"),
            (json!({"hidden_act": "tan"}), "`hidden_act` is \"tan\""),
        ];
        for (more, expected) in cases {
            let error = refusal("Mamba2ForCausalLM", &more);
            assert!(error.contains(expected), "{error}");
        }
        let more = json!({"mamba_d_head": "some"});
        assert!(refusal("BambaForCausalLM", &more).contains("`mamba_d_head` is \"some\""));
        let more = json!({"mamba_n_heads": 4, "mamba_d_head": "auto"});
        assert!(spec(&config("BambaForCausalLM", &more).unwrap()).is_ok());
    }

    #[test]
    fn kinds_of_layers_are_refused_by_name() {
        let cases = [
            ("BambaForCausalLM", json!({"attn_layer_indices": [2]}), "`attn_layer_indices` is 2"),
            (
                "GraniteMoeHybridForCausalLM",
                json!({"layer_types": ["mamba", "x"]}),
                "`layer_types`",
            ),
            (
                "GraniteMoeHybridForCausalLM",
                json!({"position_embedding_type": "alibi"}),
                "`position_embedding_type`",
            ),
            ("NemotronHForCausalLM", json!({}), "`layers_block_type` is \"absent\""),
            ("NemotronHForCausalLM", json!({"hybrid_override_pattern": "MX"}), "is \"X\""),
            (
                "NemotronHForCausalLM",
                json!({"hybrid_override_pattern": "*E", "moe_latent_size": 4}),
                "`moe_latent_size` is 4",
            ),
        ];
        for (class, more, expected) in cases {
            let error = refusal(class, &more);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn letters_say_what_layers_are() {
        let more = json!({
            "hybrid_override_pattern": "M-*", "num_hidden_layers": null, "mamba_num_heads": 4,
        });
        let spec = spec(&config("NemotronHForCausalLM", &more).unwrap()).unwrap();
        assert_eq!(spec.mixers.as_deref(), Some(&[true, false, true][..]));
        assert_eq!(spec.intermediate_sizes.as_deref(), Some(&[0, 8, 0][..]));
        assert_eq!(spec.recurrent.unwrap().layers, [true, false, false]);
    }
}
