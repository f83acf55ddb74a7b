//! Decoders whose tokens see all of a text: encoders of newer design, and decoders that were trained on
//! as encoders.
//!
//! A text is one step with a cache of its own, which one layer after the other uses.

use std::sync::Arc;

use candle_core::{Device, Result as TensorResult, Tensor, bail};
use serde_json::Value;

use super::adapter::AdapterLayout;
use super::architectures::{self, ENCODERS};
use super::causal_lm::CausalLm;
use super::classifier::ClassifierSpec;
use super::common::EncoderArchitecture;
use super::config::HfConfig;
use super::decoder::spec::Head;
use super::decoder::{Decoder, DecoderSpec};
use super::encoder::{Text, TextEncoder, lengths};
use super::error::{ModelError, Result};
use super::registry;
use super::top::Top;
use crate::layers::forward::{
    AdaptedRows, ForwardBatch, ForwardContext, KvFormat, KvHeads, KvLayer, NO_SLOT,
};
use crate::layers::full_attention::whole_texts;
use crate::layers::group::Alone;
use crate::weights::Weights;

/// Ends of the class names of each family.
const CLASSES: [&str; 4] =
    ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"];

/// The shape of such an encoder, checked.
#[derive(Clone, Debug)]
pub struct BidirectionalSpec {
    decoder: DecoderSpec,
    classifier: Option<ClassifierSpec>,
}

/// Such an encoder, loaded.
struct Bidirectional(Decoder);

fn find(config: &Value) -> Option<(&'static EncoderArchitecture, Top)> {
    let names = config.get("architectures")?.as_array()?;
    let of_jina = runs_jinas_code(config);
    names.iter().filter_map(Value::as_str).find_map(|class| {
        // Folders of ColBERT's own library don't name their network.
        let split = if of_jina && class == "HF_ColBERT" {
            Some((JINA, Top::Nothing))
        } else {
            Top::split(class)
        };
        let (family, top) = split.filter(|(_, top)| *top != Top::LanguageModel)?;
        let family = if of_jina && family == "XLMRoberta" { JINA } else { family };
        let mut rows = ENCODERS.iter().copied().flatten();
        let row = rows.find(|row| row.family == family)?;
        let has_classifier = (row.classifier)(config, top).is_some();
        let classifies = matches!(top, Top::Classifier | Top::TokenClassifier);
        (has_classifier == classifies).then_some((row, top))
    })
}

/// The family of networks of Jina's own code.
const JINA: &str = "JinaEmbeddingsV3";

/// Whether a `config.json` asks for Jina's own code, which has a network of its own under XLM-RoBERTa's name.
pub fn runs_jinas_code(config: &Value) -> bool {
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
    text("/auto_map/AutoConfig").is_some_and(|class| class.ends_with(".XLMRobertaFlashConfig"))
        || text("/position_embedding_type") == Some("rotary")
}

/// Whether the file of a decoder says that its tokens see all of a text.
fn reads_whole_texts(config: &Value) -> bool {
    let flag = |name: &str| config.get(name).and_then(Value::as_bool);
    flag("use_bidirectional_attention") == Some(true)
        || flag("is_causal") == Some(false)
        || architectures::reads_whole_texts(config)
}

/// Class names of all encoders of this kind that are supported.
pub fn architectures() -> impl Iterator<Item = String> {
    let families = ENCODERS.iter().copied().flatten();
    families.flat_map(|row| {
        let classes = CLASSES.iter().filter(|class| {
            let top = Top::split(&format!("{}{class}", row.family)).map(|(_, top)| top);
            let classifies = matches!(top, Some(Top::Classifier | Top::TokenClassifier));
            !classifies || top.is_some_and(|top| (row.classifier)(&Value::Null, top).is_some())
        });
        classes.map(move |class| format!("{}{class}", row.family))
    })
}

/// Whether a `config.json` describes such an encoder.
pub fn is_bidirectional(config: &Value) -> bool {
    find(config).is_some() || reads_whole_texts(config)
}

impl BidirectionalSpec {
    /// Checks the content of a `config.json`.
    ///
    /// # Errors
    ///
    /// As [`registry::spec`]; a recurrence, which sees what is before it alone.
    pub fn from_config(config: &Value) -> Result<Self> {
        let (mut decoder, classifier) = if let Some((row, top)) = find(config) {
            let read = HfConfig::read(config, |_| row.complete)?;
            ((row.spec)(&read)?, (row.classifier)(config, top))
        } else {
            let read = HfConfig::from_value(config)?;
            let top = registry::top(&read).unwrap_or(Top::LanguageModel);
            (registry::spec(&read)?, ClassifierSpec::of_decoder(config, top))
        };
        if decoder.recurrent.is_some() {
            return Err(ModelError::Unsupported {
                what: "a recurrence that reads whole texts".to_owned(),
                supported: "only attention sees what is behind a token".to_owned(),
            });
        }
        decoder.head = Head::Absent;
        for layer in &mut decoder.attention {
            // A window's size counts both sides.
            let side = layer.params.window.map(|window| window / 2);
            layer.params.window = side.map(|side| side + 1);
            layer.params.ahead = side.unwrap_or(usize::MAX);
        }
        Ok(Self { decoder, classifier })
    }

    /// Elements of a hidden state.
    pub fn hidden_size(&self) -> usize {
        self.decoder.mlp.hidden_size
    }

    /// What makes classes of hidden states, if anything does.
    pub fn classifier(&self) -> Option<&ClassifierSpec> {
        self.classifier.as_ref()
    }

    /// Loads the weights.
    ///
    /// # Errors
    ///
    /// A tensor that is absent or has another shape.
    pub fn load(&self, weights: &Weights) -> Result<Box<dyn TextEncoder>> {
        let decoder = Decoder::load(&self.decoder, weights, Arc::new(Alone))?;
        Ok(Box::new(Bidirectional(decoder)))
    }
}

impl TextEncoder for Bidirectional {
    fn forward(
        &self,
        texts: &[Text<'_>],
        device: &Device,
        go_on: &mut dyn FnMut() -> bool,
    ) -> TensorResult<Option<Tensor>> {
        let Self(decoder) = self;
        let lengths = lengths(texts)?;
        if let Some(long) = lengths.iter().find(|length| **length > self.max_tokens()) {
            bail!("a text has {long} tokens, the most is {}", self.max_tokens());
        }
        if !go_on() {
            return Ok(None);
        }
        let (mut step, blocks) = whole_texts(&lengths)?;
        for (context, text) in step.context_lens.iter_mut().zip(texts) {
            // What stands behind that is written to the cache, and never read.
            *context = u32::try_from(text.seen()).map_err(candle_core::Error::wrap)?;
        }
        // There are no states.
        step.state_slots = vec![NO_SLOT; lengths.len()];
        step.input_ids = texts.iter().flat_map(|text| text.token_ids).copied().collect();
        let rows = u32::try_from(step.input_ids.len()).map_err(candle_core::Error::wrap)?;
        let kv = caches(&decoder.kv_shape().layers, blocks, device)?;
        let context = ForwardContext { device, kv: &kv, states: &[], interruption: None };
        let hidden_rows = (0..rows).collect();
        let adapters = adapted_rows(texts)?;
        let batch = ForwardBatch { step, hidden_rows, adapters, ..ForwardBatch::default() };
        Ok(decoder.forward(&context, &batch)?.hidden)
    }

    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }

    fn hidden_size(&self) -> usize {
        self.0.hidden_size()
    }

    fn max_tokens(&self) -> usize {
        self.0.max_position_embeddings()
    }

    fn adapter_layout(&self) -> Option<AdapterLayout> {
        self.0.adapter_layout()
    }
}

/// The rows of each adapter, in the order in which texts have them first.
fn adapted_rows(texts: &[Text<'_>]) -> TensorResult<Vec<AdaptedRows>> {
    let mut all: Vec<AdaptedRows> = Vec::new();
    let mut first = 0;
    for text in texts {
        let count = u32::try_from(text.token_ids.len()).map_err(candle_core::Error::wrap)?;
        let rows = first..first + count;
        first += count;
        let Some(adapter) = text.adapter else { continue };
        if let Some(known) = all.iter_mut().find(|known| Arc::ptr_eq(&known.adapter, adapter)) {
            known.rows.extend(rows);
        } else {
            all.push(AdaptedRows { adapter: Arc::clone(adapter), rows: rows.collect() });
        }
    }
    Ok(all)
}

/// A cache for each layer; those with the same heads use the same one after the other.
fn caches(layers: &[KvHeads], blocks: usize, device: &Device) -> TensorResult<Vec<KvLayer>> {
    let format = KvFormat::F32;
    let mut made: Vec<(KvHeads, KvLayer)> = Vec::new();
    let each = layers.iter().map(|heads| {
        if let Some((_, layer)) = made.iter().find(|(known, _)| known == heads) {
            return Ok(layer.clone());
        }
        let layer = heads.layer(blocks, format, |dims| format.zeros(dims, device))?;
        made.push((*heads, layer.clone()));
        Ok(layer)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoders_that_read_whole_texts_are_told_from_others() {
        let of = |class: &str| json!({"architectures": [class]});
        assert!(is_bidirectional(&of("ModernBertModel")) && is_bidirectional(&of("NewModel")));
        assert!(!is_bidirectional(&of("NomicBertForSequenceClassification")));
        assert!(!is_bidirectional(&of("Gemma3TextModel")));
        let mut gemma = of("Gemma3TextModel");
        gemma["use_bidirectional_attention"] = json!(true);
        assert!(is_bidirectional(&gemma));
    }
}
