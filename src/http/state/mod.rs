//! What every handler shares: the engine's handle, the texts' tools, the configuration, and
//! whether the server is going down.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::config::{LoraServing, ServerConfig};
use crate::engine::adapter::Adapter;
use crate::engine::{EngineHandle, EngineHealth};
use crate::http::error::ApiError;
use crate::metrics::MetricsHandle;
use crate::pictures::processor::Processor;
use crate::sounds;
use crate::store::Store;
use crate::structured::compiler::{CompilerLimits, GrammarCompiler};
use crate::structured::vocabulary::Vocabulary;
use crate::text::chat_template::ChatTemplate;
use crate::text::embedding_prompts::EmbeddingPrompts;
use crate::text::tokenizer::Tokenizer;
use adapter_registry::AdapterRegistry;
use admission::{Admission, Permit};
use breakers::BreakerCache;
use caller::Caller;
use clock::unix_seconds;
use families::Families;
use keys::{Key, Keys};
use live::LiveResponses;
use prompt_memory::PromptMemory;
use response_store::ResponseStore;
use speech::{SpeechParts, SpeechService};

pub mod adapter_registry;
pub(crate) mod admission;
pub(crate) mod batches;
pub(crate) mod breakers;
pub(crate) mod caller;
pub(crate) mod clock;
pub(crate) mod families;
pub(crate) mod files;
pub mod keys;
pub(crate) mod live;
pub(crate) mod packing;
pub(crate) mod prompt_memory;
pub(crate) mod response_store;
pub mod speech;

/// Without data for this long, a stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A step that runs longer than this means that the server should get no more requests for now.
const SLOW_STEP: Duration = Duration::from_mins(1);

/// What the model's author suggests (`generation_config.json`); a request overrules it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// 0 to 2; 0 is greedy.
    pub temperature: Option<f64>,
    /// Above 0, at most 1.
    pub top_p: Option<f64>,
    /// At least -1; 0 and -1 are off.
    pub top_k: Option<i64>,
    /// 0 to 1.
    pub min_p: Option<f64>,
    /// Above 0.
    pub repetition_penalty: Option<f64>,
}

impl GenerationDefaults {
    /// The suggestion for a scalar parameter of this name.
    pub(crate) fn scalar(&self, name: &str) -> Option<f64> {
        match name {
            "temperature" => self.temperature,
            "top_p" => self.top_p,
            "min_p" => self.min_p,
            "repetition_penalty" => self.repetition_penalty,
            _ => None,
        }
    }
}

/// What is told of the model to programs that ask, and changes no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// What `config.json` calls the kind of network, such as `qwen3`.
    pub architecture: String,
    /// `gguf` or `safetensors`.
    pub format: &'static str,
    /// What weight matrices are rounded to or stored as, such as `Q8_0`; empty if no one kind.
    pub stored_as: String,
    /// Bytes of all tensors as stored.
    pub bytes: u64,
    /// Whether a GPU computes.
    pub on_gpu: bool,
    /// Whether its author made it for embeddings, whatever else it can do.
    pub embeds: bool,
    /// The words by which it says whether a document is what a query looks for, if its author chose
    /// them.
    pub answers: Option<Answers>,
    /// Names of the classes that it sorts texts into, in the order of their scores.
    pub labels: Vec<String>,
}

/// The words by which a model judges documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The tokens of yes and no.
    pub tokens: [u32; 2],
    /// Whether scores are the difference of their logits, not the share of yes.
    pub raw: bool,
}

/// What [`AppState`] is made of.
#[derive(Debug)]
pub struct ServerParts {
    /// How to listen and whom to serve.
    pub config: ServerConfig,
    /// The engine.
    pub engine: EngineHandle,
    /// Adapters of the model.
    pub adapters: adapter_registry::AdapterParts,
    /// The model's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's chat template; without one, chat routes answer 400.
    pub chat_template: Option<Arc<ChatTemplate>>,
    /// For conversations with tools, where the model has an own template for those.
    pub tool_chat_template: Option<Arc<ChatTemplate>>,
    /// For requests that leave a field out.
    pub defaults: GenerationDefaults,
    /// What may be put before texts to embed.
    pub embedding_prompts: EmbeddingPrompts,
    /// The ids that end an answer.
    pub eos_token_ids: Arc<[u32]>,
    /// Shared with the engine.
    pub metrics: MetricsHandle,
    /// What the binary was built with, for `/version`.
    pub build_features: Vec<String>,
    /// Names what answers depend on beside the request: equal names, equal answers to equal seeds.
    pub fingerprint: String,
    /// What is told of the model.
    pub model: ModelFacts,
    /// What requests ask to keep.
    pub store: Store,
    /// How pictures are prepared; without it, or an engine that sees, they are refused.
    pub image_processor: Option<Arc<Processor>>,
    /// How sounds are prepared; without it, or an engine that hears, they are refused.
    pub sound_processor: Option<Arc<sounds::processor::Processor>>,
    /// What transcribes, if anything does.
    pub speech: Option<SpeechParts>,
}

/// Cheap to clone; one per server.
#[derive(Clone, Debug)]
pub struct AppState(Arc<ServerState>);

/// What there is one of in a server.
#[derive(Debug)]
pub struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) engine: EngineHandle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) defaults: GenerationDefaults,
    pub(crate) embedding_prompts: EmbeddingPrompts,
    pub(crate) eos_token_ids: Arc<[u32]>,
    pub(crate) metrics: MetricsHandle,
    pub(crate) build_features: Vec<String>,
    pub(crate) fingerprint: String,
    pub(crate) model: ModelFacts,
    /// How pictures are prepared, if the model sees.
    pub(crate) image_processor: Option<Arc<Processor>>,
    /// How sounds are prepared, if the model hears.
    pub(crate) sound_processor: Option<Arc<sounds::processor::Processor>>,
    /// The adapters that requests can name beside the model.
    pub(crate) adapters: AdapterRegistry,
    pub(crate) admission: Admission,
    /// Who may call, and what they used.
    pub(crate) keys: Arc<Keys>,
    /// What transcribes, if anything does.
    pub(crate) speech: Option<SpeechService>,
    pub(crate) breakers: BreakerCache,
    /// The prompts of earlier requests, for those that ask why they were not found in the cache.
    pub(crate) prompts: PromptMemory,
    /// What outlives the process.
    pub(crate) store: Store,
    /// The responses in it.
    pub(crate) responses: ResponseStore,
    /// The events of responses that run in the background here.
    pub(crate) live: LiveResponses,
    /// Wakes what runs stored requests.
    pub(crate) work: Notify,
    /// When the server started, as `created` of the model.
    pub(crate) created: u64,
    pub(crate) keep_alive: Duration,
    /// For conversations without and with tools.
    chat_templates: [Option<Arc<ChatTemplate>>; 2],
    /// The same.
    families: [Families; 2],
    /// Made when the first request needs it.
    grammars: OnceLock<GrammarCompiler>,
    leaving: AtomicBool,
    draining: AtomicBool,
    cut: watch::Sender<bool>,
}

impl Deref for AppState {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.0
    }
}

impl AppState {
    /// A server that takes requests.
    pub fn new(parts: ServerParts) -> Self {
        Self::with_keep_alive(parts, KEEP_ALIVE)
    }

    /// As [`new`](Self::new), with another time between the comments of a silent stream.
    pub fn with_keep_alive(parts: ServerParts, keep_alive: Duration) -> Self {
        let ServerParts { config, engine, metrics, .. } = parts;
        let capacity = config.max_queued_requests + engine.limits().max_num_seqs;
        let LoraServing { max_loras, at_run_time } = config.lora;
        if at_run_time || !parts.adapters.served.is_empty() {
            metrics.start_lora(max_loras);
            metrics.set_lora_bytes(parts.adapters.served_bytes());
        }
        let with_tools = parts.tool_chat_template.or_else(|| parts.chat_template.clone());
        let chat_templates = [parts.chat_template, with_tools];
        let families = chat_templates.each_ref().map(|template| {
            Families::new(&config, template.as_ref().map(|template| template.source()))
        });
        Self(Arc::new(ServerState {
            adapters: AdapterRegistry::new(parts.adapters, max_loras),
            admission: Admission::new(capacity, config.max_queued_tokens),
            keys: Arc::new(Keys::new(&config)),
            speech: parts.speech.map(SpeechService::new),
            tokenizer: parts.tokenizer,
            defaults: parts.defaults,
            embedding_prompts: parts.embedding_prompts,
            eos_token_ids: parts.eos_token_ids,
            build_features: parts.build_features,
            fingerprint: parts.fingerprint,
            model: parts.model,
            image_processor: parts.image_processor.filter(|_| engine.limits().sees),
            sound_processor: parts.sound_processor.filter(|_| engine.limits().hears),
            breakers: BreakerCache::default(),
            prompts: PromptMemory::default(),
            responses: ResponseStore::new(parts.store.clone(), config.store.age),
            store: parts.store,
            live: LiveResponses::default(),
            work: Notify::new(),
            created: unix_seconds(),
            chat_templates,
            families,
            grammars: OnceLock::new(),
            leaving: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            cut: watch::Sender::new(false),
            config,
            engine,
            metrics,
            keep_alive,
        }))
    }
}

impl ServerState {
    /// The template for conversations with or without tools.
    pub(crate) fn chat_template(&self, with_tools: bool) -> Option<&Arc<ChatTemplate>> {
        self.chat_templates[usize::from(with_tools)].as_ref()
    }

    /// Whose markup answers in conversations with or without tools have.
    pub(crate) fn families(&self, with_tools: bool) -> Families {
        self.families[usize::from(with_tools)]
    }

    /// Makes grammars for the model's vocabulary. The first call takes a while.
    pub(crate) fn grammars(&self) -> &GrammarCompiler {
        self.grammars.get_or_init(|| {
            let vocabulary = Arc::new(vocabulary(&self.tokenizer, &self.eos_token_ids));
            GrammarCompiler::new(vocabulary, CompilerLimits::default())
        })
    }

    /// The name under which servers of the same model take each other's stored requests.
    pub(crate) fn own_name(&self, model: &str) -> String {
        if self.config.served_model_names.iter().any(|name| name == model) {
            return self.model_name().to_owned();
        }
        model.to_owned()
    }

    /// Whether the model sees pictures.
    pub(crate) fn sees(&self) -> bool {
        self.image_processor.is_some()
    }

    /// Whether the model hears sounds.
    pub(crate) fn hears(&self) -> bool {
        self.sound_processor.is_some()
    }

    /// Most bytes of a request's body.
    pub(crate) fn max_body_bytes(&self) -> usize {
        let default = if self.sees() || self.hears() { 64 << 20 } else { 8 << 20 };
        self.config.max_body_bytes.unwrap_or(default)
    }

    /// The name that answers carry.
    pub(crate) fn model_name(&self) -> &str {
        self.config.served_model_names.first().map_or("", String::as_str)
    }

    /// Most tokens of a text that becomes an embedding, in one piece or in several.
    pub(crate) fn longest_text(&self) -> usize {
        let limits = self.engine.limits();
        let most = self.config.max_embed_len.filter(|_| !limits.outputs.is_of_classes());
        most.unwrap_or_default().max(limits.max_text_len)
    }

    /// Checks that a model is served, and to whoever asks, that a request names: the adapter that it
    /// stands for, or none.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        let found = self.find_model(model);
        let named = model.unwrap_or(self.model_name());
        if found.is_ok() && !may_name(named) {
            return Err(ApiError::ModelForbidden(named.to_owned()));
        }
        found
    }

    fn find_model(&self, model: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        let Some(model) = model else { return Ok(None) };
        if self.config.served_model_names.iter().any(|name| name == model) {
            return Ok(None);
        }
        if let Some(served) = self.adapters.find(model) {
            return Ok(Some(served.adapter));
        }
        if self.speech.as_ref().is_some_and(|speech| speech.has_name(model)) {
            let message = format!("the model {model:?} transcribes speech: ask {}", speech::ROUTE);
            return Err(ApiError::field("model", message));
        }
        Err(ApiError::ModelNotFound(model.to_owned()))
    }

    /// Waits until nothing runs that a drain waits for.
    pub(crate) async fn idle(&self) {
        self.admission.idle().await;
        if let Some(speech) = &self.speech {
            speech.admission.idle().await;
        }
    }

    /// Sequences and files that wait or run.
    pub(crate) fn in_use(&self) -> usize {
        let files = self.speech.as_ref().map_or(0, |speech| speech.admission.in_use());
        self.admission.in_use() + files
    }

    /// Why the server should get no requests now, if so.
    pub(crate) fn check_ready(&self) -> Result<(), ApiError> {
        if self.is_leaving() || self.is_draining() {
            return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
        }
        if self.speech.as_ref().is_some_and(|speech| !speech.handle.is_running()) {
            return Err(ApiError::Unavailable("the thread for speech has ended".to_owned()));
        }
        let bound = self.config.step_timeout.map_or(SLOW_STEP, |timeout| timeout.min(SLOW_STEP));
        match self.engine.health(bound) {
            EngineHealth::Restarting => {
                Err(ApiError::Unavailable("the engine has failed and is started again".to_owned()))
            }
            health => check_health(health),
        }
    }

    /// Why the process should be started again, if so.
    pub(crate) fn check_live(&self) -> Result<(), ApiError> {
        match self.engine.health(self.config.step_timeout.unwrap_or(Duration::MAX)) {
            EngineHealth::Restarting => Ok(()),
            health => check_health(health),
        }
    }

    /// Admits a request of `sequences`.
    pub(crate) fn admit(&self, sequences: usize) -> Result<Permit, ApiError> {
        if self.is_draining() {
            return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
        }
        let permit = self.admission.admit(sequences);
        if permit.is_err() {
            self.metrics.admission_rejected();
        }
        let permit = permit?;
        let place = Caller::current().and_then(|caller| caller.admitted());
        Ok(permit.with_place(place))
    }

    /// Takes room for the prompts of a request that was admitted.
    pub(crate) fn queue_tokens(&self, permit: &Permit, tokens: usize) -> Result<(), ApiError> {
        let queued = permit.queue_tokens(tokens);
        if queued.is_err() {
            self.metrics.admission_rejected();
        }
        queued?;
        let taken = Caller::current().map_or(Ok(()), |caller| caller.take_prompt(tokens));
        if taken.is_err() {
            permit.leave_queue();
        }
        taken
    }

    /// The bearer of a key.
    pub(crate) fn caller(&self, key: Key) -> Caller {
        Caller::new(key, true, &self.as_called())
    }

    /// Whoever stored a request that runs now.
    pub(crate) fn caller_of_stored(&self, owner: &str) -> Caller {
        Caller::new(self.keys.of_owner(owner), false, &self.as_called())
    }

    fn as_called(&self) -> caller::Server<'_> {
        caller::Server {
            keys: &self.keys,
            metrics: &self.metrics,
            model: self.model_name(),
            slower_than: self.config.log.slower_than,
        }
    }

    /// Reads the file of --api-key-file; whether it said anything new.
    ///
    /// # Errors
    /// Why it can't be used. What it said before holds then.
    pub fn read_key_file(&self) -> Result<bool, String> {
        self.keys.read_file()
    }

    /// Whether the server has been told to stop, and only `/health/ready` says so yet.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// From now on readiness is red; requests are still taken.
    pub(crate) fn start_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From now on readiness is red and new requests are refused.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Ends what is still running.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Turns true when running requests must end at once.
    pub(crate) fn cut_signal(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }
}

/// Whether whoever asks may name a model.
pub(crate) fn may_name(model: &str) -> bool {
    Caller::current().is_none_or(|caller| caller.may_name(model))
}

/// Why an engine with this health answers nothing, if so.
fn check_health(health: EngineHealth) -> Result<(), ApiError> {
    match health {
        EngineHealth::Healthy | EngineHealth::Restarting => Ok(()),
        EngineHealth::Dead => Err(ApiError::Unavailable("the engine is not running".to_owned())),
        EngineHealth::Stuck(since) => Err(ApiError::Unavailable(format!(
            "the engine's step has been running for {} s",
            since.as_secs()
        ))),
    }
}

/// The tokens as grammars see them.
fn vocabulary(tokenizer: &Arc<Tokenizer>, eos_token_ids: &[u32]) -> Vocabulary {
    let size = u32::try_from(tokenizer.vocab_size()).expect("token ids are below 2^32");
    let tokens = (0..size).map(|id| tokenizer.token_bytes(id)).collect();
    let special = tokenizer.special_ids().into_iter();
    let special = special.filter_map(|id| Some((id, tokenizer.token(id)?)));
    let plain = Arc::clone(tokenizer);
    let tokenize = move |text: &str| plain.encode_plain(text).unwrap_or_default();
    Vocabulary::new(tokens, special, eos_token_ids.to_vec(), Box::new(tokenize))
}
