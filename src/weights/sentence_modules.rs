//! What a sentence-transformers folder has beside a checkpoint: `modules.json`, and a folder with a
//! configuration and few weights for each module.
//!
//! Knows where files lie; never what a module does.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::WeightError;
use super::folder::ModelFolder;
use super::safetensors::SafetensorsSource;
use super::tensors::{MemoryTensors, TensorSource, Weights};

const MODULES: &str = "modules.json";
const CONFIG: &str = "config_sentence_transformers.json";
/// The first of these that exists says how texts become tokens; old folders have the later ones.
pub(crate) const TEXT_CONFIGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// The modules in their order, the network itself included.
#[derive(Debug)]
pub struct SentenceModules {
    /// The modules in their order, at least one.
    pub modules: Vec<SentenceModule>,
    /// `sentence_bert_config.json`, or that of another family: how texts become tokens.
    pub text_config: Settings,
    /// `config_sentence_transformers.json`: prompts, and how vectors are compared.
    pub config: Settings,
}

/// A JSON file with settings, which a folder may lack; then it says nothing.
#[derive(Clone, Debug, Default)]
pub struct Settings(Option<Value>);

/// One module of `modules.json`.
pub struct SentenceModule {
    /// The Python class, such as `sentence_transformers.models.Pooling`.
    pub kind: String,
    /// Its folder below the model's, empty for the model's own.
    pub path: String,
    /// The module's `config.json`.
    pub config: Settings,
    tensors: Option<Arc<dyn TensorSource>>,
}

impl Settings {
    /// The whole object, if there is a file.
    pub fn json(&self) -> Option<&Value> {
        self.0.as_ref()
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.json()?.get(name).filter(|value| !value.is_null())
    }

    /// What is written there, as JSON; for messages.
    pub fn written(&self, name: &str) -> Option<String> {
        self.get(name).map(Value::to_string)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// A text, several in a list, or the values of an object.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        match self.get(name) {
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
            Some(Value::Object(texts)) => texts.values().filter_map(Value::as_str).collect(),
            other => other.and_then(Value::as_str).into_iter().collect(),
        }
    }

    /// True or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// A number of things.
    pub fn size(&self, name: &str) -> Option<usize> {
        self.get(name)?.as_u64().and_then(|size| usize::try_from(size).ok())
    }
}

impl SentenceModule {
    /// The last part of the class's name, if the class is the library's own or PyLate's. Versions of
    /// the library have it in different places.
    pub fn class(&self) -> Option<&str> {
        let packages = ["sentence_transformers.", "pylate."];
        let path = packages.iter().find_map(|package| self.kind.strip_prefix(package))?;
        path.rsplit('.').next()
    }

    /// The module's own weights, if it has safetensors.
    pub fn weights(&self) -> Option<Weights> {
        self.tensors.clone().map(|tensors| Weights::new(tensors, Device::Cpu))
    }
}

impl std::fmt::Debug for SentenceModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {:?}", self.kind, self.path)
    }
}

/// An entry of `modules.json`.
#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

impl SentenceModules {
    /// Whether every token has a vector, and texts are compared by these: PyLate's folders, and those of
    /// the library's own class for it.
    pub fn are_of_tokens(&self) -> bool {
        let own = self.config.text("model_type") == Some("MultiVectorEncoder");
        own || self.are_of_pylate() || self.module("MultiVectorMask").is_some()
    }

    /// Whether PyLate wrote the folder.
    pub fn are_of_pylate(&self) -> bool {
        let named = self.config.text("model_type") == Some("ColBERT");
        named || self.modules.iter().any(|module| module.kind.starts_with("pylate."))
    }

    /// The first module of a class of the library's own.
    pub fn module(&self, class: &str) -> Option<&SentenceModule> {
        self.modules.iter().find(|module| module.class() == Some(class))
    }

    /// The network, pooling of this `mode`, linear layers with their configurations and tensors, and a
    /// scale to length 1: what a GGUF file can say.
    pub(crate) fn pooled(mode: &str, dense: Vec<(Value, HashMap<String, Tensor>)>) -> Self {
        let module =
            |class: &str, config: Option<Value>, tensors: Option<HashMap<_, _>>| SentenceModule {
                kind: format!("sentence_transformers.models.{class}"),
                path: String::new(),
                config: Settings(config),
                tensors: tensors
                    .map(|all| -> Arc<dyn TensorSource> { Arc::new(MemoryTensors::new(all)) }),
            };
        let mut modules = vec![
            module("Transformer", None, None),
            module("Pooling", Some(json!({"pooling_mode": mode})), None),
        ];
        let dense = dense.into_iter();
        modules.extend(dense.map(|(config, all)| module("Dense", Some(config), Some(all))));
        modules.push(module("Normalize", None, None));
        Self { modules, text_config: Settings::default(), config: Settings::default() }
    }

    /// Reads the modules of a folder, if it has any.
    pub(crate) fn read(folder: &ModelFolder) -> Result<Option<Self>, WeightError> {
        let Some(list) = folder.json(MODULES)? else { return Ok(None) };
        let corrupt = |reason: String| WeightError::corrupt(&folder.path(MODULES), reason);
        let entries = Vec::<Entry>::deserialize(list).map_err(|e| corrupt(e.to_string()))?;
        if entries.is_empty() {
            return Err(corrupt("there are no modules; expected at least one".to_owned()));
        }
        if let Some(entry) = entries.iter().find(|entry| !is_plain(&entry.path)) {
            let path = &entry.path;
            return Err(corrupt(format!("the path {path:?} is not one of a folder beside it")));
        }
        let modules = entries.into_iter().map(|entry| read_module(folder, entry));
        let text_configs = TEXT_CONFIGS.iter().map(|name| folder.json_object(name));
        Ok(Some(Self {
            modules: modules.collect::<Result<_, _>>()?,
            text_config: Settings(
                text_configs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next(),
            ),
            config: Settings(folder.json_object(CONFIG)?),
        }))
    }
}

/// Whether a path names the folder itself or one right below it.
fn is_plain(path: &str) -> bool {
    !path.contains(['/', '\\']) && path != ".."
}

fn read_module(folder: &ModelFolder, entry: Entry) -> Result<SentenceModule, WeightError> {
    let Entry { path, kind } = entry;
    if path.is_empty() {
        return Ok(SentenceModule { kind, path, config: Settings::default(), tensors: None });
    }
    let has_tensors = folder.open(&format!("{path}/model.safetensors"))?.is_some();
    let tensors: Option<Arc<dyn TensorSource>> = match folder {
        ModelFolder::Disk(root) if has_tensors => {
            Some(Arc::new(SafetensorsSource::open(&root.join(&path))?))
        }
        _ => None,
    };
    let config = Settings(folder.json_object(&format!("{path}/config.json"))?);
    Ok(SentenceModule { kind, path, config, tensors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_type_and_say_nothing_where_there_are_none() {
        let json = json!({"a": "x", "b": ["x", 1, "y"], "c": {"k": "v"}, "d": 3, "e": null});
        let settings = Settings(Some(json));
        assert_eq!((settings.text("a"), settings.text("d")), (Some("x"), None));
        assert_eq!(settings.texts("a"), ["x"]);
        assert_eq!(settings.texts("b"), ["x", "y"]);
        assert_eq!(settings.texts("c"), ["v"]);
        assert_eq!(
            (settings.size("d"), settings.size("a"), settings.flag("d")),
            (Some(3), None, None)
        );
        assert_eq!((settings.written("e"), settings.written("d")), (None, Some("3".to_owned())));
        let none = Settings::default();
        assert!(none.texts("a").is_empty() && none.flag("a").is_none() && none.json().is_none());
    }
}
