//! `adapter_config.json` as PEFT writes it: which modules an adapter changes, with which rank and
//! which factor.
//!
//! A field that changes what the adapter computes and is not supported is refused, and so is one
//! that nobody here knows: nothing is passed over in silence. Formats and rules are those of PEFT
//! (<https://huggingface.co/docs/peft/package_reference/lora>).

use fancy_regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Fields without effect on what an adapter computes once it is trained.
const IDLE: [&str; 18] = [
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "fan_in_fan_out",
    "inference_mode",
    "loftq_config",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
    "velora_config",
];
/// Change what an adapter computes.
const UNSUPPORTED: [(&str, &str); 12] = [
    ("alora_invocation_tokens", "adapters that start at a token (aLoRA) are"),
    ("arrow_config", "routing between adapters (Arrow) is"),
    ("kasa_config", "KaSA is"),
    ("layer_replication", "layers that are used more than once are"),
    ("lora_bias", "biases of lora_B are"),
    ("modules_to_save", "whole modules in an adapter are"),
    ("monteclora_config", "MonteCLoRA is"),
    ("target_parameters", "adapters of bare parameters (fused experts) are"),
    ("trainable_token_indices", "trained tokens are"),
    ("use_bdlora", "block-diagonal adapters are"),
    ("use_dora", "DoRA is"),
    ("use_qalora", "QA-LoRA is"),
];
/// Ways to start the training that leave the base model as it is; others change it.
const PLAIN_INITS: [&str; 5] = ["gaussian", "eva", "orthogonal", "mica", "lora_ga"];

/// What an adapter says of itself, checked.
#[derive(Debug)]
pub struct LoraConfig {
    rank: usize,
    alpha: f64,
    rank_stabilized: bool,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
    targets: Targets,
    exclude: Option<Modules>,
}

/// The modules that have an adapter.
#[derive(Debug)]
enum Targets {
    /// Every linear layer but the output head.
    AllLinear,
    Some(Modules, Option<Layers>),
}

/// Modules by their paths.
#[derive(Debug)]
enum Modules {
    /// Whole paths that match.
    Matching(Regex),
    /// The modules whose paths end in one of these names.
    Ending(Vec<String>),
}

/// Layers by their numbers.
#[derive(Debug)]
struct Layers {
    numbers: Vec<usize>,
    /// Finds the number in a path.
    places: Vec<Regex>,
}

#[derive(Deserialize)]
struct Fields {
    peft_type: Option<String>,
    r: Option<usize>,
    lora_alpha: Option<f64>,
    #[serde(default)]
    use_rslora: Option<bool>,
    rank_pattern: Option<Map<String, Value>>,
    alpha_pattern: Option<Map<String, Value>>,
    target_modules: Option<OneOrMore<String>>,
    exclude_modules: Option<OneOrMore<String>>,
    layers_to_transform: Option<OneOrMore<usize>>,
    layers_pattern: Option<OneOrMore<String>>,
    bias: Option<String>,
    init_lora_weights: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

impl LoraConfig {
    /// Reads the file's content; the error says what is wrong with which field.
    pub(super) fn from_json(json: Value) -> Result<Self, String> {
        let fields: Fields = serde_json::from_value(json).map_err(|error| error.to_string())?;
        check_kind(&fields)?;
        check_others(&fields.others)?;
        let rank = fields.r.unwrap_or(8);
        let ranks = patterns("rank_pattern", fields.rank_pattern, |value| {
            value.as_u64().and_then(|rank| usize::try_from(rank).ok())
        })?;
        if let Some(bad) = ranks.iter().map(|(_, rank)| *rank).chain([rank]).find(|r| *r == 0) {
            return Err(format!("`r` is {bad}, it must be at least 1"));
        }
        let alphas = patterns("alpha_pattern", fields.alpha_pattern, Value::as_f64)?;
        let layers = layers(fields.layers_to_transform, fields.layers_pattern)?;
        Ok(Self {
            rank,
            alpha: fields.lora_alpha.unwrap_or(8.0),
            rank_stabilized: fields.use_rslora.unwrap_or(false),
            ranks,
            alphas,
            targets: targets(fields.target_modules, layers)?,
            exclude: fields.exclude_modules.map(|m| modules("exclude_modules", m)).transpose()?,
        })
    }

    /// An adapter of every layer but the output head, of one rank.
    pub(super) fn plain(rank: usize, alpha: f64) -> Self {
        Self {
            rank,
            alpha,
            rank_stabilized: false,
            ranks: Vec::new(),
            alphas: Vec::new(),
            targets: Targets::AllLinear,
            exclude: None,
        }
    }

    /// The rank of the adapter of `module`, a path in the base model.
    pub fn rank(&self, module: &str) -> usize {
        first_match(&self.ranks, module).unwrap_or(self.rank)
    }

    /// The largest rank of any module.
    pub fn max_rank(&self) -> usize {
        self.ranks.iter().map(|(_, rank)| *rank).fold(self.rank, usize::max)
    }

    /// The factor of what the adapter of `module` adds.
    #[expect(clippy::cast_possible_truncation, reason = "products are f32")]
    #[expect(clippy::cast_precision_loss, reason = "ranks are far below 2^52")]
    pub fn scale(&self, module: &str) -> f32 {
        let alpha = first_match(&self.alphas, module).unwrap_or(self.alpha);
        let rank = self.rank(module) as f64;
        (alpha / if self.rank_stabilized { rank.sqrt() } else { rank }) as f32
    }

    /// Whether the adapter says that it changes `module`; the output head is not meant by "all".
    pub fn targets(&self, module: &str, is_head: bool) -> bool {
        let excluded = self.exclude.as_ref().is_some_and(|exclude| exclude.contain(module));
        !excluded
            && match &self.targets {
                Targets::AllLinear => !is_head,
                Targets::Some(modules, layers) => {
                    modules.contain(module)
                        && layers.as_ref().is_none_or(|layers| layers.contain(module))
                }
            }
    }
}

impl Modules {
    fn contain(&self, module: &str) -> bool {
        match self {
            Self::Matching(regex) => regex.is_match(module).unwrap_or(false),
            Self::Ending(names) => names.iter().any(|name| {
                let before = module.strip_suffix(name.as_str());
                before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
            }),
        }
    }
}

impl Layers {
    fn contain(&self, module: &str) -> bool {
        let number = self.places.iter().find_map(|place| {
            let found = place.captures(module).ok()??;
            found.get(1)?.as_str().parse().ok()
        });
        number.is_some_and(|number: usize| self.numbers.contains(&number))
    }
}

fn check_kind(fields: &Fields) -> Result<(), String> {
    if let Some(kind) = fields.peft_type.as_deref().filter(|kind| *kind != "LORA") {
        return Err(format!("`peft_type` is {kind}; only LORA is supported"));
    }
    if let Some(bias) = fields.bias.as_deref().filter(|bias| *bias != "none") {
        return Err(format!("`bias` is {bias}; trained biases are not supported, only none"));
    }
    let init = fields.init_lora_weights.as_ref().and_then(Value::as_str);
    match init.filter(|init| !PLAIN_INITS.contains(&init.to_ascii_lowercase().as_str())) {
        None => Ok(()),
        Some(init) => Err(format!(
            "`init_lora_weights` is {init}, which changes the base model's weights; convert the \
             adapter with PEFT's path_initial_model_for_weight_conversion"
        )),
    }
}

/// Refuses fields that say something which is not understood.
fn check_others(others: &Map<String, Value>) -> Result<(), String> {
    let says_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    for (name, value) in others.iter().filter(|(_, value)| !says_nothing(value)) {
        if IDLE.contains(&name.as_str()) {
            continue;
        }
        let known = UNSUPPORTED.iter().find(|(known, _)| known == name);
        let what = known.map_or("fields that are not known here are", |(_, what)| what);
        return Err(format!("`{name}` is {value}; {what} not supported"));
    }
    Ok(())
}

fn targets(modules_: Option<OneOrMore<String>>, layers: Option<Layers>) -> Result<Targets, String> {
    match modules_ {
        None => Err("`target_modules` is missing".to_owned()),
        Some(OneOrMore::One(word)) if word.eq_ignore_ascii_case("all-linear") => {
            Ok(Targets::AllLinear)
        }
        // A pattern has the layers' numbers in it, and PEFT looks at nothing else then.
        Some(pattern @ OneOrMore::One(_)) => {
            Ok(Targets::Some(modules("target_modules", pattern)?, None))
        }
        Some(list) => Ok(Targets::Some(modules("target_modules", list)?, layers)),
    }
}

fn modules(field: &str, modules: OneOrMore<String>) -> Result<Modules, String> {
    Ok(match modules {
        OneOrMore::One(pattern) => Modules::Matching(regex(field, &format!("^(?:{pattern})$"))?),
        OneOrMore::More(names) => Modules::Ending(names),
    })
}

fn layers(
    numbers: Option<OneOrMore<usize>>,
    patterns: Option<OneOrMore<String>>,
) -> Result<Option<Layers>, String> {
    let numbers = numbers.map(OneOrMore::into_vec).unwrap_or_default();
    if numbers.is_empty() {
        return Ok(None);
    }
    let patterns = patterns.map(OneOrMore::into_vec).unwrap_or_default();
    let patterns: Vec<String> =
        patterns.into_iter().filter(|pattern| !pattern.is_empty()).collect();
    let places = if patterns.is_empty() {
        vec![regex("layers_pattern", r"^.*?\.[^.]*\.(\d+)\.")?]
    } else {
        let place = |pattern: &String| {
            regex("layers_pattern", &format!(r"^(?:|.*?\.)(?:{pattern})\.(\d+)\."))
        };
        patterns.iter().map(place).collect::<Result<_, _>>()?
    };
    Ok(Some(Layers { numbers, places }))
}

/// The values of a pattern field, in its order: the first that matches counts.
fn patterns<T>(
    field: &str,
    patterns: Option<Map<String, Value>>,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(Regex, T)>, String> {
    let one = |(pattern, value): (String, Value)| {
        let read = read(&value);
        let read = read.ok_or_else(|| format!("`{field}` has {value} for `{pattern}`"))?;
        Ok((regex(field, &format!(r"^(?:.*\.)?(?:{pattern})$"))?, read))
    };
    patterns.unwrap_or_default().into_iter().map(one).collect()
}

fn first_match<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    let found = patterns.iter().find(|(pattern, _)| pattern.is_match(module).unwrap_or(false));
    found.map(|(_, value)| *value)
}

fn regex(field: &str, pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| format!("`{field}`: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: &Value) -> Result<LoraConfig, String> {
        let mut json = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
            "target_modules": ["q_proj", "mlp.up_proj"]});
        json.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        LoraConfig::from_json(json)
    }

    const QUERY: &str = "model.layers.1.self_attn.q_proj";

    #[test]
    fn names_are_ends_of_paths_and_texts_are_patterns_of_whole_ones() {
        let config = read(&json!({})).unwrap();
        assert!(config.targets(QUERY, false));
        assert!(config.targets("model.layers.0.mlp.up_proj", false));
        assert!(!config.targets("model.layers.0.self_attn.up_proj", false));
        assert!(!config.targets("model.layers.1.self_attn.xq_proj", false));
        let config = read(&json!({"target_modules": r".*\.1\.(?!mlp).*proj"})).unwrap();
        assert!(config.targets(QUERY, false));
        assert!(!config.targets("model.layers.0.self_attn.q_proj", false));
        assert!(!config.targets("model.layers.1.mlp.up_proj", false));
        assert!(!config.targets("model.layers.1.self_attn.q_proj.weight", false));
        let config = read(&json!({"target_modules": "all-linear", "exclude_modules": ["up_proj"]}));
        let config = config.unwrap();
        assert!(config.targets(QUERY, false) && !config.targets("lm_head", true));
        assert!(!config.targets("model.layers.0.mlp.up_proj", false));
    }

    #[test]
    fn layers_are_found_by_their_numbers() {
        let config = read(&json!({"layers_to_transform": [1]})).unwrap();
        assert!(config.targets(QUERY, false));
        assert!(!config.targets("model.layers.0.self_attn.q_proj", false));
        let fields = json!({"layers_to_transform": 1, "layers_pattern": "layers"});
        assert!(read(&fields).unwrap().targets(QUERY, false));
        let fields = json!({"layers_to_transform": 1, "layers_pattern": "blocks"});
        assert!(!read(&fields).unwrap().targets(QUERY, false));
    }

    #[test]
    fn ranks_and_factors_may_differ_by_module() {
        let config = read(&json!({
            "rank_pattern": {"layers.1.self_attn.q_proj": 16},
            "alpha_pattern": {"^model.layers.0.mlp.up_proj": 2},
        }))
        .unwrap();
        let scale = |module| config.scale(module).to_bits();
        assert_eq!((config.rank(QUERY), config.max_rank()), (16, 16));
        assert_eq!(scale(QUERY), 0.5f32.to_bits());
        assert_eq!(scale("model.layers.0.mlp.up_proj"), 0.5f32.to_bits());
        assert_eq!(scale("model.layers.1.mlp.up_proj"), 2f32.to_bits());
        let config = read(&json!({"use_rslora": true})).unwrap();
        assert_eq!(config.scale(QUERY).to_bits(), 4f32.to_bits());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let refused = |fields: Value| read(&fields).unwrap_err();
        for (fields, expected) in [
            (json!({"use_dora": true}), "`use_dora` is true; DoRA is not supported"),
            (json!({"bias": "lora_only"}), "`bias` is lora_only"),
            (json!({"modules_to_save": ["lm_head"]}), "`modules_to_save` is [\"lm_head\"]"),
            (json!({"peft_type": "IA3"}), "`peft_type` is IA3; only LORA is supported"),
            (json!({"init_lora_weights": "pissa_niter_4"}), "changes the base model's weights"),
            (json!({"target_modules": "(q_proj"}), "`target_modules`: "),
            (json!({"r": 0}), "`r` is 0, it must be at least 1"),
            (json!({"rank_pattern": {"x": 1.5}}), "`rank_pattern` has 1.5 for `x`"),
            (json!({"new_trick": 3}), "`new_trick` is 3; fields that are not known here"),
            (json!({"target_modules": null}), "`target_modules` is missing"),
        ] {
            let message = refused(fields);
            assert!(message.contains(expected), "{message}");
        }
        let idle = json!({"lora_dropout": 0.1, "task_type": "CAUSAL_LM", "use_dora": false,
            "modules_to_save": null, "new_trick": {}, "init_lora_weights": true});
        assert!(read(&idle).is_ok());
    }
}
