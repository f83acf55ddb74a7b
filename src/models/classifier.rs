//! Classifiers: the layers between hidden states and the logits of classes, as plain data.
//!
//! They are small, and computed beside the network for one vector at a time.

use serde_json::Value;

use super::top::Top;

/// What is done from hidden states to logits of classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifierSpec {
    /// The hidden state that a text is classified by, where not every token is.
    pub from: ClassifiedBy,
    /// Layers in their order; the last one gives the logits.
    pub layers: Vec<ClassifierLayer>,
    /// Names of the classes, in the order of their logits.
    pub labels: Vec<String>,
    /// Whether a text may belong to several classes at once, as `problem_type` says.
    pub independent: bool,
    /// Whether every token is classified.
    pub each_token: bool,
}

/// The hidden state that a text is classified by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifiedBy {
    /// That of the first token.
    First,
    /// That of the last token.
    Last,
    /// The mean of all.
    Mean,
}

/// A layer, by the name of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierLayer {
    /// A linear layer as wide as hidden states, and its activation. It has a bias if that is stored.
    Hidden(&'static str, ClassifierActivation),
    /// A layer norm. It has a bias if that is stored.
    Norm(&'static str),
    /// A linear layer to the logits of classes. It has a bias if that is stored.
    Classes(&'static str),
}

/// The activation of a hidden layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierActivation {
    /// Hyperbolic tangent.
    Tanh,
    /// Zero below zero.
    Relu,
    /// `x` times the normal distribution up to `x`.
    Gelu,
}

/// Prefixes of names of layers that checkpoints have within their network.
pub const PREFIXES: [&str; 10] = [
    "",
    "bert.",
    "electra.",
    "gte.",
    "nomic_bert.",
    "new.",
    "deberta.",
    "albert.",
    "ernie.",
    "rembert.",
];

/// Most classes of a model.
const MOST_CLASSES: usize = 1 << 16;

impl ClassifierSpec {
    /// The classifier on top of a decoder; `None` if the class has none.
    pub fn of_decoder(config: &Value, top: Top) -> Option<Self> {
        Self::new(config, top, ClassifiedBy::Last, vec![ClassifierLayer::Classes("score")])
    }

    /// These layers, if a class has a classifier on top.
    pub(super) fn new(
        config: &Value,
        top: Top,
        from: ClassifiedBy,
        layers: Vec<ClassifierLayer>,
    ) -> Option<Self> {
        let has_one = matches!(top, Top::Classifier | Top::TokenClassifier);
        let independent = config.get("problem_type").and_then(Value::as_str)
            == Some("multi_label_classification");
        let each_token = top == Top::TokenClassifier;
        has_one.then(|| Self { from, layers, labels: labels(config), independent, each_token })
    }
}

/// Names of a configuration's classes: those of `id2label`, else as transformers names as many as
/// `num_labels` says, or two.
pub fn labels(config: &Value) -> Vec<String> {
    let named = config.get("id2label").and_then(Value::as_object);
    let stated = config.get("num_labels").and_then(Value::as_u64);
    let stated = stated.and_then(|count| usize::try_from(count).ok());
    let count = named.map(serde_json::Map::len).or(stated).unwrap_or(2).min(MOST_CLASSES);
    let name = |at: usize| {
        let name = named.and_then(|named| named.get(&at.to_string())?.as_str());
        name.map_or_else(|| format!("LABEL_{at}"), str::to_owned)
    };
    (0..count).map(name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_are_named_as_the_configuration_names_them() {
        let config = json!({"id2label": {"1": "b", "0": "a"}});
        assert_eq!(labels(&config), ["a", "b"]);
        assert_eq!(labels(&json!({"num_labels": 1})), ["LABEL_0"]);
        assert_eq!(labels(&json!({})), ["LABEL_0", "LABEL_1"]);
    }

    #[test]
    fn only_classes_that_classify_have_a_classifier() {
        let of = |top| ClassifierSpec::of_decoder(&json!({}), top);
        assert_eq!((of(Top::Nothing), of(Top::LanguageModel)), (None, None));
        assert_eq!(of(Top::Classifier).unwrap().from, ClassifiedBy::Last);
        assert!(of(Top::TokenClassifier).is_some());
    }
}
