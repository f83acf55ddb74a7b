//! What every handler shares: the engine's handle, the texts' tools, the configuration, and
//! whether the server is going down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::adapters::{AdapterParts, AdapterRegistry, bytes_of};
use super::admission::{Admission, Permit};
use super::auth::ApiKeys;
use super::error::ApiError;
use super::responses::store::ResponseStore;
use super::tools::Families;
use crate::config::{LoraServing, Parser, ServerConfig};
use crate::engine::adapter::Adapter;
use crate::engine::{EngineHandle, EngineHealth};
use crate::metrics::MetricsHandle;
use crate::sampling::params::Breakers;
use crate::structured::compiler::{CompilerLimits, GrammarCompiler};
use crate::structured::vocabulary::Vocabulary;
use crate::text::chat_template::ChatTemplate;
use crate::text::embedding_prompts::EmbeddingPrompts;
use crate::text::sequence_breakers::sequence_breakers;
use crate::text::tokenizer::Tokenizer;
use crate::text::{reasoning, tool_calls};

/// Without data for this long, a stream sends a comment.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Lists of texts whose tokens are remembered.
const MAX_BREAKERS: usize = 8;

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

/// What [`AppState`] is made of.
#[derive(Debug)]
pub struct ServerParts {
    /// How to listen and whom to serve.
    pub config: ServerConfig,
    /// The engine.
    pub engine: EngineHandle,
    /// Adapters of the model.
    pub adapters: AdapterParts,
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
}

/// Cheap to clone; one per server.
#[derive(Clone, Debug)]
pub struct AppState {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    parts: ServerParts,
    adapters: AdapterRegistry,
    admission: Admission,
    api_keys: ApiKeys,
    /// Made when the first request needs it.
    grammars: OnceLock<GrammarCompiler>,
    /// Of the texts that requests cut repetitions at, the last ones.
    breakers: Mutex<Vec<(Vec<String>, Arc<Breakers>)>>,
    /// Of conversations without and with tools.
    families: [Families; 2],
    created: u64,
    keep_alive: Duration,
    responses: ResponseStore,
    draining: AtomicBool,
    cut: watch::Sender<bool>,
}

impl AppState {
    /// A server that takes requests.
    pub fn new(parts: ServerParts) -> Self {
        Self::with_keep_alive(parts, KEEP_ALIVE)
    }

    /// As [`new`](Self::new), with another time between the comments of a silent stream.
    pub fn with_keep_alive(mut parts: ServerParts, keep_alive: Duration) -> Self {
        let adapters = served_adapters(&mut parts);
        let capacity = parts.config.max_queued_requests + parts.engine.limits().max_num_seqs;
        let families = [false, true].map(|with_tools| families(&parts, with_tools));
        let shared = Shared {
            adapters,
            families,
            grammars: OnceLock::new(),
            breakers: Mutex::default(),
            admission: Admission::new(capacity),
            api_keys: ApiKeys::new(&parts.config.api_keys, &parts.config.admin_api_keys),
            created: unix_seconds(),
            keep_alive,
            responses: ResponseStore::default(),
            draining: AtomicBool::new(false),
            cut: watch::Sender::new(false),
            parts,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.shared.parts.config
    }

    pub(crate) fn engine(&self) -> &EngineHandle {
        &self.shared.parts.engine
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.shared.parts.tokenizer
    }

    pub(crate) fn embedding_prompts(&self) -> &EmbeddingPrompts {
        &self.shared.parts.embedding_prompts
    }

    /// The template for conversations with or without tools.
    pub(crate) fn chat_template(&self, with_tools: bool) -> Option<&Arc<ChatTemplate>> {
        template(&self.shared.parts, with_tools)
    }

    /// Makes grammars for the model's vocabulary. The first call takes a while.
    pub(crate) fn grammars(&self) -> &GrammarCompiler {
        self.shared.grammars.get_or_init(|| {
            let vocabulary = Arc::new(vocabulary(self.tokenizer(), self.eos_token_ids()));
            GrammarCompiler::new(vocabulary, CompilerLimits::default())
        })
    }

    /// The tokens at which these texts cut repetitions. Walks the whole vocabulary unless one of the
    /// last requests had the same texts.
    pub(crate) fn breakers(&self, texts: &[String]) -> Arc<Breakers> {
        let kept = || self.shared.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, breakers)) = kept().iter().find(|(known, _)| known == texts) {
            return Arc::clone(breakers);
        }
        let breakers = Arc::new(sequence_breakers(self.tokenizer(), texts));
        let mut kept = kept();
        kept.push((texts.to_vec(), Arc::clone(&breakers)));
        if kept.len() > MAX_BREAKERS {
            kept.remove(0);
        }
        breakers
    }

    /// Whose markup answers in conversations with or without tools have.
    pub(crate) fn families(&self, with_tools: bool) -> Families {
        self.shared.families[usize::from(with_tools)]
    }

    pub(crate) fn defaults(&self) -> &GenerationDefaults {
        &self.shared.parts.defaults
    }

    pub(crate) fn eos_token_ids(&self) -> &Arc<[u32]> {
        &self.shared.parts.eos_token_ids
    }

    pub(crate) fn metrics(&self) -> &MetricsHandle {
        &self.shared.parts.metrics
    }

    pub(crate) fn build_features(&self) -> &[String] {
        &self.shared.parts.build_features
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.shared.admission
    }

    pub(crate) fn api_keys(&self) -> &ApiKeys {
        &self.shared.api_keys
    }

    pub(crate) fn keep_alive(&self) -> Duration {
        self.shared.keep_alive
    }

    /// The responses that requests asked to keep.
    pub(crate) fn responses(&self) -> &ResponseStore {
        &self.shared.responses
    }

    /// When the server started, as `created` of the model.
    pub(crate) fn created(&self) -> u64 {
        self.shared.created
    }

    /// The name that answers carry.
    pub(crate) fn model_name(&self) -> &str {
        self.config().served_model_names.first().map_or("", String::as_str)
    }

    /// The adapters that requests can name beside the model.
    pub(crate) fn adapters(&self) -> &AdapterRegistry {
        &self.shared.adapters
    }

    /// Checks that a request names a model that is served: the adapter that it stands for, or none.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        let model = model.ok_or_else(|| ApiError::field("model", "model is required"))?;
        if self.config().served_model_names.iter().any(|name| name == model) {
            return Ok(None);
        }
        match self.adapters().find(model) {
            Some(served) => Ok(Some(served.adapter)),
            None => Err(ApiError::ModelNotFound(model.to_owned())),
        }
    }

    /// Why the server should get no requests now, if so.
    pub(crate) fn check_ready(&self) -> Result<(), ApiError> {
        if self.is_draining() {
            return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
        }
        match self.engine().health() {
            EngineHealth::Healthy => Ok(()),
            EngineHealth::Dead => {
                Err(ApiError::Unavailable("the engine is not running".to_owned()))
            }
            EngineHealth::Stuck(since) => Err(ApiError::Unavailable(format!(
                "the engine's step has been running for {} s",
                since.as_secs()
            ))),
        }
    }

    /// Takes room for a request of `sequences`.
    pub(crate) fn admit(&self, sequences: usize) -> Result<Permit, ApiError> {
        if self.is_draining() {
            return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
        }
        let permit = self.admission().admit(sequences);
        if permit.is_err() {
            self.metrics().admission_rejected();
        }
        permit
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Acquire)
    }

    /// From now on readiness is red and new requests are refused.
    pub(crate) fn start_draining(&self) {
        self.shared.draining.store(true, Ordering::Release);
    }

    /// Ends what is still running.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_replace(true);
    }

    /// Turns true when running requests must end at once.
    pub(crate) fn cut_signal(&self) -> watch::Receiver<bool> {
        self.shared.cut.subscribe()
    }
}

/// Takes the adapters out of the parts, where they would outlive their names.
fn served_adapters(parts: &mut ServerParts) -> AdapterRegistry {
    let served = std::mem::take(&mut parts.adapters.served);
    let LoraServing { max_loras, at_run_time } = parts.config.lora;
    if at_run_time || !served.is_empty() {
        parts.metrics.start_lora(max_loras);
        parts.metrics.set_lora_bytes(bytes_of(&served));
    }
    AdapterRegistry::new(parts.adapters.loader.clone(), served, max_loras)
}

fn template(parts: &ServerParts, with_tools: bool) -> Option<&Arc<ChatTemplate>> {
    let own = parts.tool_chat_template.as_ref().filter(|_| with_tools);
    own.or(parts.chat_template.as_ref())
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

/// As configured, else as the template shows.
fn families(parts: &ServerParts, with_tools: bool) -> Families {
    let source = template(parts, with_tools).map(|template| template.source());
    Families {
        tools: match parts.config.tool_call_parser {
            Parser::Detected => source.and_then(tool_calls::detect),
            Parser::Named(name) => Some(name),
            Parser::Off => None,
        },
        reasoning: match parts.config.reasoning_parser {
            Parser::Detected => source.and_then(reasoning::detect),
            Parser::Named(name) => Some(name),
            Parser::Off => None,
        },
    }
}

/// Seconds since 1970, for `created`.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
