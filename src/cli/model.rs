//! From what the user typed after `--model` to everything a server needs of a model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;

use super::generation_config::GenerationConfig;
use super::loading;
use super::lora_modules::LoraModule;
use super::rank;
use crate::config::EngineConfig;
use crate::engine::startup::adapters::AdapterLoader;
use crate::engine::startup::encoder::Loaded;
use crate::engine::startup::{Engine, StartupError};
use crate::http::state::GenerationDefaults;
use crate::http::state::adapter_registry::{AdapterParts, ServedAdapter};
use crate::metrics::{self, MetricsHandle};
use crate::text::chat_template::ChatTemplate;
use crate::text::embedding_prompts::EmbeddingPrompts;
use crate::text::special_tokens::SpecialTokens;
use crate::text::tokenizer::Tokenizer;
use crate::text::tokenizer_config::TokenizerConfig;
use crate::text::vocabulary::{Vocabulary, sentencepiece, tekken, tiktoken};
use crate::weights::gguf::vocabulary::GgufVocabulary;
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

/// The name that the embedded model answers to.
pub(super) const DEMO_NAME: &str = "sconce-demo";

/// Which model, and how to find it.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelChoice {
    /// As typed; `None` is the embedded demo model.
    pub(super) model: Option<String>,
    /// Branch, tag or commit on the hub.
    pub(super) revision: Option<String>,
    /// Take what the cache has and ask nobody.
    pub(super) offline: bool,
    /// The name to serve under, instead of the model's own.
    pub(super) name: Option<String>,
    /// A template that replaces the model's own.
    pub(super) chat_template: Option<String>,
    /// Whose sampling is suggested.
    pub(super) generation_config: GenerationConfig,
    /// Adapters to load beside the model.
    pub(super) adapters: Vec<LoraModule>,
}

/// A running engine and the texts' tools that belong to its model.
pub(super) struct RunningModel {
    pub(super) name: String,
    pub(super) engine: Engine,
    pub(super) adapters: AdapterParts,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat_template: Option<Arc<ChatTemplate>>,
    pub(super) tool_chat_template: Option<Arc<ChatTemplate>>,
    pub(super) defaults: GenerationDefaults,
    pub(super) embedding_prompts: EmbeddingPrompts,
    pub(super) eos_token_ids: Arc<[u32]>,
    pub(super) metrics: MetricsHandle,
}

/// Opens, loads and starts a model. Blocks; downloads where the cache lacks it.
pub(super) fn start(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<RunningModel> {
    let began = Instant::now();
    rank::check(choice, config.tensor_parallel)?;
    let mut source = open(choice)?;
    let several = config.tensor_parallel > 1;
    let leader = several.then(|| rank::start_others(config.tensor_parallel)).transpose()?;
    let name = choice.name.clone().unwrap_or_else(|| source.name.clone());
    let vocabulary = source.gguf_vocabulary.take();
    let source = Arc::new(source);
    let opened = Instant::now();
    // Its clock is calibrated for some milliseconds at the first call.
    let metrics = in_background("metrics", {
        let name = name.clone();
        move || metrics::install(&name)
    })?;
    let progress = loading::show(&name);
    let weights = in_background("weights", {
        let (source, config) = (source.clone(), config.clone());
        move || {
            let loaded = Loaded::load(&source, &config, progress, leader)?;
            source.release_pages();
            Ok::<_, StartupError>((loaded, Instant::now()))
        }
    })?;
    // A bad tokenizer or template ends the start here, before the weights are all there.
    let tokenizer = Arc::new(tokenizer(&source, vocabulary)?);
    let (chat_template, tool_chat_template) = templates(choice, &source, &tokenizer)?;
    let embedding_prompts = embedding_prompts(&source)?;
    let defaults = choice.generation_config.defaults(source.generation_config.as_ref())?;
    let text_ready = Instant::now();
    let (loaded, weights_ready) = join(weights)?;
    let metrics = join(metrics);
    let joined = Instant::now();
    let adapters = load_adapters(choice, loaded.adapter_loader(config, hub_options(choice)))?;
    let loaded = loaded.with_adapters(adapters.size_in_bytes());
    let engine = loaded.start(config, metrics.clone())?;
    let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
    tracing::info!(
        "files {:.3} s; tokenizer {:.3} s beside weights {:.3} s; KV cache and engine {:.3} s",
        seconds(began, opened),
        seconds(opened, text_ready),
        seconds(opened, weights_ready),
        seconds(joined, Instant::now()),
    );
    Ok(RunningModel {
        eos_token_ids: eos_token_ids(&source, &tokenizer),
        defaults,
        embedding_prompts,
        name,
        engine,
        adapters,
        tokenizer,
        chat_template,
        tool_chat_template,
        metrics,
    })
}

fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// What a thread made; its panic goes on here.
fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(super) fn open(choice: &ModelChoice) -> anyhow::Result<ModelSource> {
    let Some(model) = &choice.model else {
        return Ok(ModelSource::embedded(DEMO_NAME, crate::demo::files())?);
    };
    let model = ModelRef::parse(model, choice.revision.as_deref())?;
    Ok(ModelSource::open(&model, &hub_options(choice))?)
}

fn hub_options(choice: &ModelChoice) -> HubOptions {
    let options = HubOptions::from_env();
    HubOptions { offline: options.offline || choice.offline, ..options }
}

/// The adapters that were asked for, each under a name of its own.
fn load_adapters(choice: &ModelChoice, loader: AdapterLoader) -> anyhow::Result<AdapterParts> {
    let mut served: Vec<ServedAdapter> = Vec::with_capacity(choice.adapters.len());
    for LoraModule { name, path, base_model_name } in choice.adapters.clone() {
        anyhow::ensure!(
            served.iter().all(|served| served.adapter.name() != name),
            "--lora-modules: the name {name} is given twice"
        );
        let adapter = loader.load(&name, &path);
        let adapter = adapter.with_context(|| format!("--lora-modules: {name}"))?;
        tracing::info!(name, path, bytes = adapter.size_in_bytes(), "a LoRA adapter was loaded");
        served.push(ServedAdapter::new(adapter, path, base_model_name));
    }
    Ok(AdapterParts { loader, served })
}

fn tokenizer(
    source: &ModelSource,
    vocabulary: Option<GgufVocabulary>,
) -> anyhow::Result<Tokenizer> {
    let config = tokenizer_config(source);
    if let Some(json) = &source.tokenizer_json {
        let tokenizer = Tokenizer::from_json(json, &config)?;
        return Ok(if lowers(source) { tokenizer.lowercased()? } else { tokenizer });
    }
    if let Some(vocabulary) = vocabulary {
        return Ok(vocabulary_of(vocabulary).tokenizer()?);
    }
    let class = source.tokenizer_config.as_ref();
    let class = class.and_then(|config| config.get("tokenizer_class")?.as_str());
    let vocabulary = if let Some(file) = &source.tokenizer_model {
        // Some releases call a tiktoken file so.
        if tiktoken::is_one(file) {
            tiktoken::vocabulary(file, class)?
        } else {
            sentencepiece::vocabulary(file)?
        }
    } else if let Some(file) = &source.tekken_json {
        tekken::vocabulary(file)?
    } else if let Some(file) = &source.tiktoken_file {
        tiktoken::vocabulary(file, class)?
    } else {
        anyhow::bail!(
            "{} has no tokenizer.json, tokenizer.model, tekken.json or tiktoken file, one of which \
             is needed for text",
            source.name
        );
    };
    Ok(with_added_tokens(vocabulary, source)?.tokenizer_with(&config)?)
}

/// The tokens that `added_tokens_decoder` and `added_tokens.json` give ids to, in their order.
fn with_added_tokens(
    mut vocabulary: Vocabulary,
    source: &ModelSource,
) -> anyhow::Result<Vocabulary> {
    let mut added: BTreeMap<usize, (&str, bool)> = BTreeMap::new();
    let file = source.added_tokens.as_ref().and_then(Value::as_object);
    for (text, id) in file.into_iter().flatten() {
        if let Some(id) = id.as_u64().and_then(|id| usize::try_from(id).ok()) {
            added.insert(id, (text, true));
        }
    }
    let config = source.tokenizer_config.as_ref();
    let decoder = config.and_then(|config| config.get("added_tokens_decoder")?.as_object());
    for (id, token) in decoder.into_iter().flatten() {
        let text = token.get("content").and_then(Value::as_str);
        if let (Ok(id), Some(text)) = (id.parse(), text) {
            let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
            added.insert(id, (text, special));
        }
    }
    for (id, (text, special)) in added {
        vocabulary.add(id, text, special)?;
    }
    Ok(vocabulary)
}

fn embedding_prompts(source: &ModelSource) -> anyhow::Result<EmbeddingPrompts> {
    let config = source.sentence_modules.as_ref().and_then(|modules| modules.config.json());
    let read = config.map(EmbeddingPrompts::from_json).transpose();
    Ok(read.context("config_sentence_transformers.json: default_prompt_name")?.unwrap_or_default())
}

/// Whether sentence-transformers makes all letters small, whatever the tokenizer does.
fn lowers(source: &ModelSource) -> bool {
    let modules = source.sentence_modules.as_ref();
    modules.is_some_and(|modules| modules.text_config.flag("do_lower_case") == Some(true))
}

fn tokenizer_config(source: &ModelSource) -> TokenizerConfig {
    let config = source.tokenizer_config.as_ref();
    let mut config = config.map(TokenizerConfig::from_json).unwrap_or_default();
    if let Some(map) = &source.special_tokens_map {
        config.special_tokens.fill_from(&SpecialTokens::from_json(map));
    }
    config
}

/// What a GGUF file says of its vocabulary, in the words of `text`.
fn vocabulary_of(vocabulary: GgufVocabulary) -> Vocabulary {
    // Word pieces begin and end with tokens of other names.
    let word_pieces = vocabulary.model == "bert";
    let cls = vocabulary.classifier_token_id.filter(|_| word_pieces);
    let sep = vocabulary.separator_token_id.filter(|_| word_pieces);
    Vocabulary {
        kind: vocabulary.model,
        whole_words: false,
        split: None,
        pre: vocabulary.pre_tokenizer,
        tokens: vocabulary.tokens,
        scores: vocabulary.scores,
        token_types: vocabulary.token_types,
        merges: vocabulary.merges,
        bos_id: vocabulary.bos_token_id.or(cls),
        eos_id: vocabulary.eos_token_id.or(sep),
        unk_id: vocabulary.unknown_token_id,
        sep_id: vocabulary.separator_token_id,
        pad_id: vocabulary.padding_token_id,
        add_bos: vocabulary.add_bos_token,
        add_eos: vocabulary.add_eos_token,
        add_space_prefix: vocabulary.add_space_prefix,
        remove_extra_whitespaces: vocabulary.remove_extra_whitespaces,
        sentence_pieces: false,
        precompiled_charsmap: vocabulary.precompiled_charsmap,
        lowercase: vocabulary.lowercase,
    }
}

type Templates = (Option<Arc<ChatTemplate>>, Option<Arc<ChatTemplate>>);

/// The template for all conversations, and the one for those with tools where it differs.
fn templates(
    choice: &ModelChoice,
    source: &ModelSource,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Templates> {
    let build = |text: &str, of: &str| -> anyhow::Result<Arc<ChatTemplate>> {
        let template = ChatTemplate::new(text, tokenizer.special_tokens().clone());
        Ok(Arc::new(template.with_context(|| format!("the chat template of {of}"))?))
    };
    if let Some(given) = &choice.chat_template {
        let text = match Path::new(given).exists() {
            true => std::fs::read_to_string(given).with_context(|| given.clone())?,
            false if given.contains("{{") || given.contains("{%") => given.clone(),
            false => anyhow::bail!("--chat-template: no file {given}, and it is no template"),
        };
        return Ok((Some(build(&text, "--chat-template")?), None));
    }
    let build =
        |text: &Option<String>| text.as_deref().map(|text| build(text, &source.name)).transpose();
    Ok((build(&source.chat_template)?, build(&source.tool_use_template)?))
}

/// All ids that any of the model's files calls end-of-sequence.
fn eos_token_ids(source: &ModelSource, tokenizer: &Tokenizer) -> Arc<[u32]> {
    let listed = |config: &Value| -> Vec<u32> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match config.get("eos_token_id") {
            Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
            Some(value) => id(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let from_generation = source.generation_config.as_ref().map(listed).unwrap_or_default();
    let mut ids = if from_generation.is_empty() { listed(&source.config) } else { from_generation };
    ids.extend(tokenizer.eos_id());
    ids.sort_unstable();
    ids.dedup();
    ids.into()
}
