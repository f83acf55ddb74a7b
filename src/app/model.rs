//! A running model: its engine, and the tokenizer, templates and adapters that belong to it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::ensure;
use candle_core::Device;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::choice::ModelChoice;
use super::draft::DraftChoice;
use super::templates::{ChatTemplates, chat_templates, embedding_prompts};
use super::tokenizer::{eos_token_ids, tokenizer};
use super::{adapters, draft, nodes, progress, ranks, speech};
use crate::config::{EngineConfig, ServerConfig};
use crate::engine::EngineLimits;
use crate::engine::startup::adapters::AdapterLoader;
use crate::engine::startup::{Engine, Loaded, StartupError, class_names, cpu_level};
use crate::http::state::adapter_registry::AdapterParts;
use crate::http::state::speech::SpeechParts;
use crate::http::state::{Answers, GenerationDefaults, ModelFacts, ServerParts};
use crate::metrics::{self, MetricsHandle};
use crate::pictures::processor::Processor;
use crate::sounds;
use crate::speech::is_speech;
use crate::store::Store;
use crate::text::embedding_prompts::EmbeddingPrompts;
use crate::text::tokenizer::Tokenizer;
use crate::weights::source::ModelSource;
use crate::weights::task_adapters::TaskAdapter;

/// The module of sentence-transformers that compares the logits of two words.
const JUDGE: &str = "LogitScore";

/// A running engine and everything about text that belongs to its model.
pub struct RunningModel {
    /// The name that the model is served under.
    pub name: String,
    engine: Engine,
    adapters: AdapterParts,
    text: TextParts,
    metrics: MetricsHandle,
    fingerprint: String,
    facts: ModelFacts,
    image_processor: Option<Arc<Processor>>,
    sound_processor: Option<Arc<sounds::processor::Processor>>,
    speech: Option<SpeechParts>,
}

/// What stands between texts and the engine.
struct TextParts {
    tokenizer: Arc<Tokenizer>,
    templates: ChatTemplates,
    embedding_prompts: EmbeddingPrompts,
    defaults: GenerationDefaults,
    eos_token_ids: Arc<[u32]>,
}

impl RunningModel {
    /// Opens, loads and starts a model. Blocks; downloads where the cache lacks it.
    ///
    /// # Errors
    /// When the model, its tokenizer, a template or an adapter can't be used, or memory is short.
    pub fn start(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<Self> {
        let began = Instant::now();
        ranks::check(choice, config)?;
        let mut source = choice.open()?;
        if is_speech(&source.config) {
            return Self::start_speech(&source, choice, config);
        }
        let mut draft = draft::open(choice, &mut source, config)?;
        let spoken = speech::open(choice)?;
        let several = config.ranks() > 1;
        let leader = several.then(|| nodes::leader(&source, config)).transpose()?;
        let name = choice.name.clone().unwrap_or_else(|| source.name.clone());
        let vocabulary = source.gguf_vocabulary.take();
        let format = if vocabulary.is_some() { "gguf" } else { "safetensors" };
        let source = Arc::new(source);
        let opened = Instant::now();
        // Its clock is calibrated for some milliseconds at the first call.
        let metrics = in_background("metrics", {
            let name = name.clone();
            move || metrics::install(&name)
        })?;
        let progress = progress::show(&name);
        let weights = in_background("weights", {
            let (source, config) = (source.clone(), config.clone());
            move || {
                let loaded = Loaded::load(&source, &config, progress, leader)?;
                source.release_pages();
                Ok::<_, StartupError>((loaded, Instant::now()))
            }
        })?;
        // A bad tokenizer or template ends the start here, before the weights are all in memory.
        let tokenizer = tokenizer(&source, vocabulary)?;
        if let DraftChoice::Model(draft) = &mut draft {
            draft::check_tokens(draft, &tokenizer)?;
        }
        let mut text = TextParts::new(choice, &source, tokenizer)?;
        let text_ready = Instant::now();
        let (loaded, weights_ready) = join(weights)?;
        let loaded = with_draft(loaded, &draft, config, &text.tokenizer)?;
        let metrics = join(metrics);
        // Its memory is not there any more when the rest is shared out.
        let speech = spoken.map(|source| speech::beside(&source, &choice.speech, &metrics));
        let speech = speech.transpose()?;
        let joined = Instant::now();
        let from_hub = loaded.adapter_loader(config, choice.hub_options());
        let tasks = adapters::of_tasks(&source.task_adapters, &from_hub)?;
        let always_one = source.task_adapters.iter().any(TaskAdapter::is_always_one);
        let others = adapters::load(&choice.adapters, from_hub)?;
        let adapters = AdapterParts { tasks, always_one, ..others };
        let facts = ModelFacts { on_gpu: loaded.is_on_gpu(), ..facts(&source, format, config) };
        let engine =
            loaded.with_adapters(adapters.size_in_bytes()).start(config, metrics.clone())?;
        let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
        tracing::info!(
            "files {:.3} s; tokenizer {:.3} s beside weights {:.3} s; KV cache and engine {:.3} s",
            seconds(began, opened),
            seconds(opened, text_ready),
            seconds(opened, weights_ready),
            seconds(joined, Instant::now()),
        );
        if let Some(plan) = &engine.plan {
            tracing::info!(model = name, "{plan}");
        }
        // Nobody chats with a model that is there to embed.
        let embeds = facts.embeds || !engine.handle.limits().generates;
        if !embeds {
            text.templates = text.templates.or_chatml(&text.tokenizer)?;
        }
        let fingerprint = fingerprint(&source.name, config);
        let (image_processor, sound_processor) = processors(&source, engine.handle.limits())?;
        Ok(Self {
            name,
            engine,
            adapters,
            text,
            metrics,
            fingerprint,
            facts,
            image_processor,
            sound_processor,
            speech,
        })
    }

    /// The same for a model that only transcribes: its engine refuses everything.
    fn start_speech(
        source: &ModelSource,
        choice: &ModelChoice,
        config: &EngineConfig,
    ) -> anyhow::Result<Self> {
        speech::check_alone(choice, config)?;
        let name = choice.name.clone().unwrap_or_else(|| source.name.clone());
        let metrics = metrics::install(&name);
        let tokenizer = Arc::new(tokenizer(source, None)?);
        let speech = speech::alone(source, Arc::clone(&tokenizer), &choice.speech, &metrics)?;
        let context = speech.handle.transcriber().context();
        let engine = Engine::absent(context, tokenizer.vocab_size(), speech::ONLY)?;
        let layout = AdapterLoader::new(None, &Device::Cpu, config, choice.hub_options());
        Ok(Self {
            name,
            engine,
            adapters: AdapterParts {
                loader: layout,
                served: Vec::new(),
                tasks: Vec::new(),
                always_one: false,
            },
            text: TextParts {
                templates: ChatTemplates::default(),
                embedding_prompts: embedding_prompts(source, &tokenizer)?,
                defaults: choice.generation_config.defaults(None)?,
                eos_token_ids: eos_token_ids(source, &tokenizer),
                tokenizer,
            },
            metrics,
            fingerprint: fingerprint(&source.name, config),
            facts: facts(source, "safetensors", config),
            image_processor: None,
            sound_processor: None,
            speech: Some(speech),
        })
    }

    /// What `http` needs of the model, to be served as `config` says, and the engine's thread, which
    /// ends when nobody has any of it.
    pub fn into_server_parts(
        self,
        config: ServerConfig,
        store: Store,
    ) -> (ServerParts, JoinHandle<()>) {
        let TextParts { tokenizer, templates, embedding_prompts, defaults, eos_token_ids } =
            self.text;
        let speech = self.speech.map(|speech| {
            // Alone it has the names of the server's only model.
            let alone = speech.is_alone.then(|| config.served_model_names.clone());
            SpeechParts { names: alone.unwrap_or(speech.names), ..speech }
        });
        let parts = ServerParts {
            config,
            engine: self.engine.handle,
            adapters: self.adapters,
            tokenizer,
            chat_template: templates.plain,
            tool_chat_template: templates.with_tools,
            defaults,
            embedding_prompts,
            eos_token_ids,
            metrics: self.metrics,
            build_features: build_features(),
            fingerprint: self.fingerprint,
            model: self.facts,
            store,
            image_processor: self.image_processor,
            sound_processor: self.sound_processor,
            speech,
        };
        (parts, self.engine.thread)
    }
}

impl TextParts {
    fn new(
        choice: &ModelChoice,
        source: &ModelSource,
        tokenizer: Tokenizer,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            templates: chat_templates(choice.chat_template.as_deref(), source, &tokenizer)?,
            embedding_prompts: embedding_prompts(source, &tokenizer)?,
            defaults: choice.generation_config.defaults(source.generation_config.as_ref())?,
            eos_token_ids: eos_token_ids(source, &tokenizer),
            tokenizer: Arc::new(tokenizer),
        })
    }
}

/// The model with its draft model, if there is one.
fn with_draft(
    loaded: Loaded,
    draft: &DraftChoice,
    config: &EngineConfig,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Loaded> {
    let draft = match draft {
        DraftChoice::None => return Ok(loaded),
        DraftChoice::Head(name) => {
            let drafts = loaded.draft_vocab_size().is_some();
            ensure!(drafts, "--draft-model {name}: the model can't draft with it on this device");
            return Ok(loaded);
        }
        DraftChoice::Model(draft) => draft,
    };
    let loaded = loaded.with_draft(draft, config, progress::show(&draft.name))?;
    draft.release_pages();
    if let Some(size) = loaded.draft_vocab_size() {
        draft::check_size(&draft.name, size, tokenizer)?;
    }
    Ok(loaded)
}

fn in_background<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// The result of a thread; its panic goes on in this one.
fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What prepares pictures and sounds.
type Processors = (Option<Arc<Processor>>, Option<Arc<sounds::processor::Processor>>);

/// How pictures and sounds are prepared for a model that sees or hears.
fn processors(source: &ModelSource, limits: &EngineLimits) -> anyhow::Result<Processors> {
    let (config, own) = (&source.config, source.processor_config.as_ref());
    let seen = if limits.sees { Processor::from_json(config, own)? } else { None };
    let heard =
        if limits.hears { sounds::processor::Processor::from_json(config, own)? } else { None };
    Ok((seen.map(Arc::new), heard.map(Arc::new)))
}

/// Names what answers depend on beside the request: the program, the model, and how it is computed.
fn fingerprint(model: &str, config: &EngineConfig) -> String {
    let EngineConfig { device, tensor_parallel, kv_cache_dtype, weight_kind, .. } = config;
    let level = cpu_level();
    let facts = format!(
        "{}\0{model}\0{device:?}\0{tensor_parallel}\0{kv_cache_dtype:?}\0{weight_kind:?}\0{level}",
        env!("CARGO_PKG_VERSION")
    );
    let hash = Sha256::digest(facts.as_bytes());
    hash[..6].iter().fold("fp_".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// What the files say of the model.
fn facts(source: &ModelSource, format: &'static str, config: &EngineConfig) -> ModelFacts {
    let text = |name: &str| source.config.get(name).and_then(Value::as_str);
    let stored = match text("dtype").or(text("torch_dtype")) {
        Some("bfloat16") => "BF16",
        Some("float16") => "F16",
        Some("float32") => "F32",
        _ => "",
    };
    let modules = source.sentence_modules.as_ref();
    let judges = modules.is_some_and(|modules| modules.module(JUDGE).is_some());
    let rounded = config.weight_kind.map(|kind| kind.name().to_uppercase());
    ModelFacts {
        architecture: text("model_type").unwrap_or_default().to_owned(),
        format,
        stored_as: rounded.unwrap_or_else(|| stored.to_owned()),
        bytes: source.weight_bytes(),
        on_gpu: false,
        embeds: source.sentence_modules.is_some() && !judges,
        answers: answers(source),
        labels: class_names(&source.config),
    }
}

/// The words that the author of a reranker chose.
fn answers(source: &ModelSource) -> Option<Answers> {
    let modules = source.sentence_modules.as_ref()?;
    let judge = &modules.module(JUDGE)?.config;
    let token = |name: &str| judge.size(name).and_then(|id| u32::try_from(id).ok());
    let activation = modules.config.text("activation_fn");
    Some(Answers {
        tokens: [token("true_token_id")?, token("false_token_id")?],
        raw: activation.is_some_and(|name| name.ends_with(".Identity")),
    })
}

/// Names of the cargo features that this program was built with.
fn build_features() -> Vec<String> {
    let features = [
        ("hub", cfg!(feature = "hub")),
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
    ];
    features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
}
