//! What a checkpoint's class has on top of its network.

/// What a class has on top of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// An output head: logits of tokens.
    LanguageModel,
    /// Nothing: hidden states become embeddings.
    Nothing,
    /// Logits of a text's classes.
    Classifier,
    /// Logits of every token's classes.
    TokenClassifier,
}

/// How names of classes end, for whatever family of models. A longer end comes first.
const SUFFIXES: [(&str, Top); 8] = [
    ("ForCausalLM", Top::LanguageModel),
    ("LMHeadModel", Top::LanguageModel),
    // With `Text` the language model of a multimodal one alone.
    ("TextForSequenceClassification", Top::Classifier),
    ("ForSequenceClassification", Top::Classifier),
    ("ForTokenClassification", Top::TokenClassifier),
    // A head for masked words is not loaded.
    ("ForMaskedLM", Top::Nothing),
    ("TextModel", Top::Nothing),
    ("Model", Top::Nothing),
];

impl Top {
    /// The family of a class, and what the class has on top: `Llama` and a language model's head of
    /// `LlamaForCausalLM`.
    pub fn split(class: &str) -> Option<(&str, Self)> {
        let split = |(suffix, top): &(&str, Self)| Some((class.strip_suffix(suffix)?, *top));
        SUFFIXES.iter().find_map(split).filter(|(family, _)| !family.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_after_what_they_have_on_top() {
        for (class, family, top) in [
            ("Qwen3Model", "Qwen3", Top::Nothing),
            ("Gemma3TextModel", "Gemma3", Top::Nothing),
            ("GPT2LMHeadModel", "GPT2", Top::LanguageModel),
            ("LlamaForSequenceClassification", "Llama", Top::Classifier),
            ("Gemma3TextForSequenceClassification", "Gemma3", Top::Classifier),
            ("BertForTokenClassification", "Bert", Top::TokenClassifier),
        ] {
            assert_eq!(Top::split(class), Some((family, top)));
        }
        assert_eq!(Top::split("Model"), None);
        assert_eq!(Top::split("BertForQuestionAnswering"), None);
    }
}
