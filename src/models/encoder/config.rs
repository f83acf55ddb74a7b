//! An encoder's `config.json`: parsed and checked.

use serde::Deserialize;
use serde_json::Value;

use super::disentangled::DistanceSpec;
use crate::kernels::pointwise::Activation;
use crate::layers::full_attention::Heads;
use crate::models::classifier::{
    ClassifiedBy, ClassifierActivation, ClassifierLayer, ClassifierSpec,
};
use crate::models::config::MAX_SIZE;
use crate::models::error::{ModelError, Result, bad, check_size};
use crate::models::top::Top;

/// A family of encoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EncoderKind {
    /// Learned positions from 0, and token types.
    Bert,
    /// BERT without token types, under other tensor names.
    DistilBert,
    /// BERT under other names of its classifier.
    Electra,
    /// BERT with positions that start after the padding token's.
    Roberta,
    /// RoBERTa without token types, with a bias of scores by relative position.
    Mpnet,
    /// BERT whose scores are of distances too, most without learned positions.
    Deberta,
    /// BERT whose layers share weights, under other names.
    Albert,
    /// BERT under another prefix, whose embeddings are projected.
    RemBert,
}

impl EncoderKind {
    /// Whether the first position is the one after the padding token's.
    fn counts_behind_padding(self) -> bool {
        matches!(self, Self::Roberta | Self::Mpnet)
    }

    /// The name of the projection from embeddings to hidden states, where the two may differ in size.
    pub(super) fn projection(self) -> Option<&'static str> {
        match self {
            Self::Electra => Some("embeddings_project"),
            Self::Albert | Self::RemBert => Some("encoder.embedding_hidden_mapping_in"),
            _ => None,
        }
    }

    /// Whether embeddings of the size of hidden states are projected too.
    fn always_projects(self) -> bool {
        matches!(self, Self::Albert | Self::RemBert)
    }
}

/// The class of folders of ColBERT's own library, which don't say what network they have but by their
/// `model_type`.
const COLBERT: &str = "HF_ColBERT";

/// Families of classes in `config.json`'s `architectures`: `Bert` of `BertModel`.
const FAMILIES: [(&str, EncoderKind); 11] = [
    ("Bert", EncoderKind::Bert),
    ("Electra", EncoderKind::Electra),
    ("DistilBert", EncoderKind::DistilBert),
    ("Roberta", EncoderKind::Roberta),
    ("XLMRoberta", EncoderKind::Roberta),
    ("Camembert", EncoderKind::Roberta),
    ("MPNet", EncoderKind::Mpnet),
    ("DebertaV2", EncoderKind::Deberta),
    ("Albert", EncoderKind::Albert),
    ("Ernie", EncoderKind::Bert),
    ("RemBert", EncoderKind::RemBert),
];

/// Ends of the class names of each family.
const CLASSES: [&str; 4] =
    ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"];

/// Class names of all encoders of this kind that are supported.
pub(super) fn architectures() -> impl Iterator<Item = String> {
    let of_family = |family: &'static str| CLASSES.map(|class| format!("{family}{class}"));
    FAMILIES.iter().flat_map(move |(family, _)| of_family(family))
}

/// `model_type` of files without `architectures`.
const MODEL_TYPES: [(&str, EncoderKind); 11] = [
    ("electra", EncoderKind::Electra),
    ("bert", EncoderKind::Bert),
    ("distilbert", EncoderKind::DistilBert),
    ("roberta", EncoderKind::Roberta),
    ("xlm-roberta", EncoderKind::Roberta),
    ("camembert", EncoderKind::Roberta),
    ("mpnet", EncoderKind::Mpnet),
    ("deberta-v2", EncoderKind::Deberta),
    ("albert", EncoderKind::Albert),
    ("ernie", EncoderKind::Bert),
    ("rembert", EncoderKind::RemBert),
];

/// The kind of a configuration's class, and what the class has on top.
fn kind(config: &Value) -> Option<(EncoderKind, Top)> {
    let of_class = |class: &str| {
        let (family, top) = Top::split(class).filter(|(_, top)| *top != Top::LanguageModel)?;
        let known = FAMILIES.iter().find(|(known, _)| *known == family);
        known.map(|(_, kind)| (*kind, top))
    };
    match config.get("architectures").and_then(Value::as_array) {
        Some(names) if !names.is_empty() && !names.iter().any(|name| name == COLBERT) => {
            names.iter().filter_map(Value::as_str).find_map(of_class)
        }
        _ => {
            let model_type = config.get("model_type")?;
            let known = MODEL_TYPES.iter().find(|(known, _)| model_type == known);
            known.map(|(_, kind)| (*kind, Top::Nothing))
        }
    }
}

/// Whether a `config.json` describes an encoder of this kind.
pub(super) fn is_encoder(config: &Value) -> bool {
    kind(config).is_some()
}

/// The fields of an encoder's `config.json`, under BERT's names.
#[derive(Deserialize)]
struct Fields {
    vocab_size: usize,
    #[serde(alias = "dim")]
    hidden_size: usize,
    #[serde(alias = "hidden_dim")]
    intermediate_size: usize,
    #[serde(alias = "n_layers")]
    num_hidden_layers: usize,
    #[serde(alias = "n_heads")]
    num_attention_heads: usize,
    max_position_embeddings: usize,
    #[serde(alias = "activation")]
    hidden_act: Option<String>,
    type_vocab_size: Option<usize>,
    layer_norm_eps: Option<f32>,
    pad_token_id: Option<u32>,
    position_embedding_type: Option<String>,
    is_decoder: Option<bool>,
    #[serde(alias = "input_embedding_size")]
    embedding_size: Option<usize>,
    num_hidden_groups: Option<usize>,
    inner_group_num: Option<usize>,
    use_task_id: Option<bool>,
    task_type_vocab_size: Option<usize>,
    relative_attention_num_buckets: Option<usize>,
    tie_word_embeddings: Option<bool>,
    position_biased_input: Option<bool>,
    /// Whether the positions up to that of the padding token were cut off, which our GGUF reader says.
    positions_from_zero: Option<bool>,
}

/// The shape and the variant of an encoder, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSpec {
    pub(super) kind: EncoderKind,
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    /// Elements of an embedding, where it is projected to a hidden state.
    pub(super) projected_from: Option<usize>,
    pub(super) intermediate_size: usize,
    pub(super) num_layers: usize,
    /// How many groups of layers share weights, and the layers of a group, where layers share any.
    pub(super) groups: Option<[usize; 2]>,
    /// Rows of the embedding of tasks, of which all texts have the first.
    pub(super) task_types: Option<usize>,
    num_heads: usize,
    pub(super) max_positions: usize,
    /// Rows of the embedding of token types; 0 where there is none.
    pub(super) type_vocab_size: usize,
    pub(super) norm_eps: f32,
    /// The padding token, whose position those of others follow; `None`: positions start at 0.
    padding: Option<u32>,
    pub(super) activation: Activation,
    /// Biases of each head by relative position; none where positions are only learned.
    pub(super) position_buckets: Option<usize>,
    /// Whether positions have an embedding.
    pub(super) learns_positions: bool,
    /// How scores depend on distances, where tokens and distances are multiplied.
    pub(super) distances: Option<DistanceSpec>,
    /// Whether a head for masked words shares the embedding's matrix.
    pub(super) tied: bool,
    classifier: Option<ClassifierSpec>,
}

impl EncoderSpec {
    /// Checks the content of a `config.json`.
    ///
    /// # Errors
    ///
    /// An architecture that is no encoder, an absent size, a size of zero, sizes that don't
    /// divide, a variant that is not implemented.
    pub fn from_config(config: &Value) -> Result<Self> {
        let (kind, top) = kind(config).ok_or_else(|| ModelError::Unsupported {
            what: "an encoder of this architecture".to_owned(),
            supported: format!("supported are {}", architectures().collect::<Vec<_>>().join(", ")),
        })?;
        let fields = Fields::deserialize(config)?;
        fields.check(kind)?;
        let padding = (kind.counts_behind_padding() && fields.positions_from_zero != Some(true))
            .then(|| fields.pad_token_id.unwrap_or(1));
        let buckets = fields.relative_attention_num_buckets.unwrap_or(32);
        let is_deberta = kind == EncoderKind::Deberta;
        let default_eps = if is_deberta { 1e-7 } else { 1e-12 };
        let spec = Self {
            kind,
            vocab_size: fields.vocab_size,
            hidden_size: fields.hidden_size,
            projected_from: fields
                .embedding_size
                .filter(|size| *size != fields.hidden_size || kind.always_projects()),
            intermediate_size: fields.intermediate_size,
            num_layers: fields.num_hidden_layers,
            groups: (kind == EncoderKind::Albert).then(|| {
                [fields.num_hidden_groups.unwrap_or(1), fields.inner_group_num.unwrap_or(1)]
            }),
            task_types: (fields.use_task_id == Some(true))
                .then(|| fields.task_type_vocab_size.unwrap_or(3)),
            num_heads: fields.num_attention_heads,
            max_positions: fields.max_position_embeddings,
            type_vocab_size: match kind {
                EncoderKind::DistilBert | EncoderKind::Mpnet => 0,
                EncoderKind::Deberta => fields.type_vocab_size.unwrap_or(0),
                _ => fields.type_vocab_size.unwrap_or(2),
            },
            norm_eps: fields.layer_norm_eps.unwrap_or(default_eps),
            padding,
            activation: activation(fields.hidden_act.as_deref(), kind)?,
            position_buckets: (kind == EncoderKind::Mpnet).then_some(buckets),
            learns_positions: !is_deberta || fields.position_biased_input.unwrap_or(true),
            distances: is_deberta.then(|| DistanceSpec::from_config(config)).transpose()?,
            tied: fields.tie_word_embeddings.unwrap_or(true),
            classifier: classifier(config, top, kind)?,
        };
        if spec.max_tokens() == 0 {
            let bound = format!("must be more than pad_token_id {} and 1", padding.unwrap_or(0));
            return Err(bad("max_position_embeddings", spec.max_positions, bound));
        }
        Ok(spec)
    }

    /// The most tokens of a text.
    pub(super) fn max_tokens(&self) -> usize {
        // The first position is the one after the padding token's.
        let unused = self.padding.map_or(0, |padding| padding as usize + 1);
        self.max_positions.saturating_sub(unused)
    }

    /// Elements of a hidden state.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// What makes classes of hidden states, if anything does.
    pub fn classifier(&self) -> Option<&ClassifierSpec> {
        self.classifier.as_ref()
    }

    pub(super) fn heads(&self) -> Heads {
        Heads { count: self.num_heads, dim: self.hidden_size / self.num_heads }
    }

    /// Elements of an embedding.
    pub(super) fn embedding_size(&self) -> usize {
        self.projected_from.unwrap_or(self.hidden_size)
    }

    /// The layers with weights of their own, as groups and layers of a group where layers share some;
    /// and in which order they are computed.
    pub(super) fn layers(&self) -> (Vec<[usize; 2]>, Vec<usize>) {
        let Some([groups, inner]) = self.groups else {
            let all = 0..self.num_layers;
            return (all.clone().map(|layer| [0, layer]).collect(), all.collect());
        };
        let own = (0..groups).flat_map(|group| (0..inner).map(move |layer| [group, layer]));
        let of_layer = |layer: usize| layer * groups / self.num_layers;
        let order = (0..self.num_layers).flat_map(|layer| {
            let first = of_layer(layer) * inner;
            first..first + inner
        });
        (own.collect(), order.collect())
    }

    /// The positions of a text's tokens, to look up in their embedding.
    pub(super) fn positions(&self, text: &[u32]) -> Vec<u32> {
        let Some(pad) = self.padding else { return (0..).take(text.len()).collect() };
        // Padding in a text has its own position, and other tokens count on without it.
        let mut last = pad;
        let next = |id: &u32| {
            last += u32::from(*id != pad);
            if *id == pad { pad } else { last }
        };
        text.iter().map(next).collect()
    }
}

impl Fields {
    fn check(&self, kind: EncoderKind) -> Result<()> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (field, value) in sizes {
            check_size(field, value, 1..=MAX_SIZE)?;
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let bound = format!("must be a multiple of {} heads", self.num_attention_heads);
            return Err(bad("hidden_size", self.hidden_size, bound));
        }
        if let Some(count) = self.relative_attention_num_buckets {
            check_size("relative_attention_num_buckets", count, 4..=MAX_SIZE)?;
            if !count.is_multiple_of(4) {
                let bound = "must be a multiple of 4";
                return Err(bad("relative_attention_num_buckets", count, bound));
            }
        }
        if let Some(eps) = self.layer_norm_eps.filter(|eps| !(0.0..1.0).contains(eps)) {
            return Err(bad("layer_norm_eps", eps, "must be at least 0 and less than 1"));
        }
        let positions = self.position_embedding_type.as_deref().unwrap_or("absolute");
        if positions != "absolute" {
            return Err(bad("position_embedding_type", positions, "must be absolute"));
        }
        match self.embedding_size {
            None if kind.always_projects() => {
                return Err(bad("embedding_size", "null", "must be a size"));
            }
            Some(size) if kind.projection().is_some() => {
                check_size("embedding_size", size, 1..=MAX_SIZE)?;
            }
            Some(size) if size != self.hidden_size => {
                let bound = format!("must be `hidden_size` = {}", self.hidden_size);
                return Err(bad("embedding_size", size, bound));
            }
            _ => {}
        }
        let layers = self.num_hidden_layers;
        check_size("num_hidden_groups", self.num_hidden_groups.unwrap_or(1), 1..=layers)?;
        check_size("inner_group_num", self.inner_group_num.unwrap_or(1), 1..=layers)?;
        check_size("task_type_vocab_size", self.task_type_vocab_size.unwrap_or(3), 1..=MAX_SIZE)?;
        if self.is_decoder == Some(true) {
            return Err(bad("is_decoder", true, "must be false: every token sees every other"));
        }
        Ok(())
    }
}

/// The classifier on top of an encoder, if the class has one.
fn classifier(config: &Value, top: Top, kind: EncoderKind) -> Result<Option<ClassifierSpec>> {
    use ClassifierActivation::{Gelu, Relu, Tanh};
    use ClassifierLayer::{Classes, Hidden};
    let layers = match (kind, top) {
        (_, Top::TokenClassifier) => vec![Classes("classifier")],
        (EncoderKind::Bert | EncoderKind::RemBert, _) => {
            vec![Hidden("pooler.dense", Tanh), Classes("classifier")]
        }
        (EncoderKind::Albert, _) => vec![Hidden("pooler", Tanh), Classes("classifier")],
        (EncoderKind::DistilBert, _) => vec![Hidden("pre_classifier", Relu), Classes("classifier")],
        (EncoderKind::Electra, _) => {
            vec![Hidden("classifier.dense", Gelu), Classes("classifier.out_proj")]
        }
        (EncoderKind::Roberta | EncoderKind::Mpnet, _) => {
            vec![Hidden("classifier.dense", Tanh), Classes("classifier.out_proj")]
        }
        (EncoderKind::Deberta, _) => {
            let name = config.get("pooler_hidden_act").and_then(Value::as_str).unwrap_or("gelu");
            let known = [("gelu", Gelu), ("tanh", Tanh), ("relu", Relu)];
            let found = known.into_iter().find(|(known, _)| *known == name);
            let bound = "must be gelu, tanh or relu";
            let (_, activation) = found.ok_or_else(|| bad("pooler_hidden_act", name, bound))?;
            vec![Hidden("pooler.dense", activation), Classes("classifier")]
        }
    };
    Ok(ClassifierSpec::new(config, top, ClassifiedBy::First, layers))
}

fn activation(name: Option<&str>, kind: EncoderKind) -> Result<Activation> {
    let default = if kind == EncoderKind::Albert { "gelu_new" } else { "gelu" };
    match name.unwrap_or(default) {
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        other => Err(bad("hidden_act", other, "must be gelu, gelu_new, gelu_pytorch_tanh or relu")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(fields: &Value) -> Value {
        let mut config = json!({
            "architectures": ["RobertaModel"], "vocab_size": 10, "hidden_size": 8,
            "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
            "max_position_embeddings": 20, "pad_token_id": 1,
        });
        let more = fields.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(more);
        config
    }

    #[test]
    fn positions_of_roberta_start_behind_padding() {
        assert_eq!(EncoderSpec::from_config(&config(&json!({}))).unwrap().max_tokens(), 18);
        let bert = config(&json!({"architectures": ["BertModel"]}));
        let bert = EncoderSpec::from_config(&bert).unwrap();
        assert_eq!((bert.max_tokens(), bert.positions(&[5, 1, 6])), (20, vec![0, 1, 2]));
        let roberta = EncoderSpec::from_config(&config(&json!({}))).unwrap();
        assert_eq!(roberta.positions(&[0, 5, 1, 6]), [2, 3, 1, 4]);
    }

    #[test]
    fn layers_share_weights_in_groups() {
        let albert = |fields: Value| {
            let mut all = json!({"architectures": ["AlbertModel"], "embedding_size": 4});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            EncoderSpec::from_config(&config(&all)).unwrap()
        };
        let one = albert(json!({"num_hidden_layers": 3}));
        assert_eq!((one.layers(), one.embedding_size()), ((vec![[0, 0]], vec![0, 0, 0]), 4));
        let two = albert(json!({
            "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2,
        }));
        let own = vec![[0, 0], [0, 1], [1, 0], [1, 1]];
        assert_eq!(two.layers(), (own, vec![0, 1, 0, 1, 2, 3, 2, 3]));
        let same = albert(json!({"embedding_size": 8}));
        assert_eq!(same.projected_from, Some(8));
        let bert = json!({"architectures": ["ElectraModel"], "embedding_size": 8});
        assert_eq!(EncoderSpec::from_config(&config(&bert)).unwrap().projected_from, None);
    }

    #[test]
    fn a_folder_of_colbert_is_of_the_network_that_its_type_names() {
        let of = |model_type: &str| {
            let named = json!({"architectures": ["HF_ColBERT"], "model_type": model_type});
            EncoderSpec::from_config(&config(&named)).map(|spec| spec.kind)
        };
        assert_eq!(of("bert").unwrap(), EncoderKind::Bert);
        assert_eq!(of("xlm-roberta").unwrap(), EncoderKind::Roberta);
        assert!(of("llama").is_err());
    }

    #[test]
    fn what_no_encoder_can_have_is_named() {
        for (fields, expected) in [
            (json!({"hidden_size": 9}), "`hidden_size` is 9, must be a multiple of 2"),
            (json!({"num_hidden_layers": 0}), "`num_hidden_layers` is 0"),
            (json!({"hidden_act": "silu"}), "`hidden_act` is \"silu\""),
            (json!({"position_embedding_type": "relative_key"}), "must be absolute"),
            (json!({"is_decoder": true}), "`is_decoder` is true"),
            (json!({"pad_token_id": 19}), "`max_position_embeddings` is 20"),
            (json!({"vocab_size": "x"}), "config.json"),
            (json!({"embedding_size": 4}), "`embedding_size` is 4, must be `hidden_size` = 8"),
            (json!({"num_hidden_groups": 2}), "`num_hidden_groups` is 2"),
        ] {
            let error = EncoderSpec::from_config(&config(&fields)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(!is_encoder(&json!({"architectures": ["LlamaForCausalLM"]})));
        assert!(!is_encoder(&json!({})));
        assert!(is_encoder(&json!({"model_type": "bert"})));
        let other = json!({"architectures": ["BertForQuestionAnswering"], "model_type": "bert"});
        assert!(!is_encoder(&other));
    }
}
