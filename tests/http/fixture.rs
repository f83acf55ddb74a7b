//! A server on a free port: a byte-level tokenizer, a ChatML template and a scripted engine.

use candle_core::Device;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sconce::config::{EngineConfig, Pooling, ServerConfig};
use sconce::engine::request::EngineRequest;
use sconce::engine::startup::adapters::AdapterLoader;
use sconce::engine::{EngineLimits, Outputs};
use sconce::http::state::adapter_registry::AdapterParts;
use sconce::http::state::speech::SpeechParts;
use sconce::http::state::{AppState, GenerationDefaults, ModelFacts, ServerParts};
use sconce::http::{DrainReport, serve};
use sconce::metrics;
use sconce::models::adapter::AdapterLayout;
use sconce::store::{Store, StorePlace};
use sconce::text::chat_template::ChatTemplate;
use sconce::text::embedding_prompts::EmbeddingPrompts;
use sconce::text::special_tokens::SpecialTokens;
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;
use sconce::weights::hub::HubOptions;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::Client;
use super::fake_engine::{FakeEngine, Script};

/// Longer tokens, which only the model says.
pub const HELLO: u32 = 256;
pub const WORLD: u32 = 257;
pub const EOS: u32 = 258;
pub const IM_START: u32 = 259;
pub const IM_END: u32 = 260;
pub const VOCAB: usize = 261;
pub const CONTEXT: usize = 512;

pub const TEMPLATE: &str = "{% if tools %}<|im_start|>system\n# Tools\nReply with <tool_call>\
{\"name\": ..., \"arguments\": ...}</tool_call>.\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools><|im_end|>\n{% endif %}\
{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endif %}\
<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined %}<think>{{ enable_thinking }}{% endif %}{% endif %}";

/// Bytes 0 to 255 are tokens 0 to 255.
pub fn tokenizer() -> Tokenizer {
    tokenizer_with(SpecialTokens::default())
}

/// The same, with names for some of its special tokens.
fn tokenizer_with(special_tokens: SpecialTokens) -> Tokenizer {
    let mut vocab = Map::new();
    for byte in 0..=255u8 {
        vocab.insert(byte_char(byte).to_string(), json!(byte));
    }
    for (text, id) in [("hello", HELLO), (" world", WORLD)] {
        let spelled: String = text.bytes().map(byte_char).collect();
        vocab.insert(spelled, json!(id));
    }
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [special(EOS, "<|endoftext|>"), special(IM_START, "<|im_start|>"),
            special(IM_END, "<|im_end|>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
            "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []},
    });
    let json = serde_json::to_vec(&json).unwrap();
    let config = TokenizerConfig { special_tokens, ..TokenizerConfig::default() };
    Tokenizer::from_json(&json, &config).unwrap()
}

/// GPT-2's printable stand-in for a byte.
fn byte_char(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|byte| !printable(*byte)).count();
    char::from_u32(256 + u32::try_from(rank).unwrap()).unwrap()
}

/// The tokens of a text, byte by byte.
pub fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Says `text` and ends.
pub fn say(text: &str) -> Script {
    Script { tokens: bytes(text), ..Script::default() }
}

/// Repeats `text` until it is stopped.
pub fn endless(text: &str) -> Script {
    let delay = Duration::from_millis(2);
    Script { tokens: bytes(text), endless: true, delay, ..Script::default() }
}

/// How a test's server differs from the usual one.
pub struct Setup {
    pub config: ServerConfig,
    pub limits: EngineLimits,
    pub defaults: GenerationDefaults,
    pub embedding_prompts: EmbeddingPrompts,
    pub template: Option<&'static str>,
    pub special_tokens: SpecialTokens,
    pub keep_alive: Duration,
    pub layout: Option<AdapterLayout>,
    /// One of its own, unless it is named.
    pub store: Option<Store>,
    /// Whether the model's author made it for embeddings.
    pub embeds: bool,
    pub labels: Vec<String>,
    /// What transcribes.
    pub speech: Option<SpeechParts>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: ServerConfig {
                served_model_names: vec!["tiny".to_owned(), "org/alias".to_owned()],
                ..ServerConfig::default()
            },
            limits: EngineLimits {
                max_model_len: CONTEXT,
                max_text_len: CONTEXT,
                vocab_size: VOCAB,
                max_batch_tokens: 64,
                max_num_seqs: 8,
                block_size: 32,
                num_blocks: 64,
                embedding_size: 4,
                hidden_size: 4,
                outputs: Outputs::Embedding,
                further: Vec::new(),
                pooling: Pooling::Last,
                normalizes: true,
                generates: true,
                prefix_lm: false,
                sees: false,
                hears: false,
            },
            defaults: GenerationDefaults::default(),
            embedding_prompts: EmbeddingPrompts::default(),
            template: Some(TEMPLATE),
            special_tokens: SpecialTokens::default(),
            keep_alive: Duration::from_secs(15),
            layout: None,
            store: None,
            embeds: false,
            labels: Vec::new(),
            speech: None,
        }
    }
}

/// A running server.
pub struct Server {
    pub client: Client,
    pub engine: FakeEngine,
    shutdown: Option<oneshot::Sender<()>>,
    running: JoinHandle<DrainReport>,
}

impl Server {
    /// Answers everything with `text`.
    pub async fn saying(text: &str) -> Self {
        let script = say(text);
        Self::start(Setup::default(), move |_| script.clone()).await
    }

    pub async fn start(
        setup: Setup,
        choose: impl Fn(&EngineRequest) -> Script + Send + 'static,
    ) -> Self {
        Self::start_on(None, setup, choose).await
    }

    /// The same, on an address that is bound already.
    pub async fn start_on(
        listener: Option<std::net::TcpListener>,
        setup: Setup,
        choose: impl Fn(&EngineRequest) -> Script + Send + 'static,
    ) -> Self {
        let (state, engine) = setup.state(choose);
        let listener = match listener {
            Some(listener) => TcpListener::from_std(listener).unwrap(),
            None => TcpListener::bind("127.0.0.1:0").await.unwrap(),
        };
        let address = listener.local_addr().unwrap();
        let (shutdown, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            serve(listener, state, async move { drop(stopped.await) }).await.unwrap()
        });
        Self { client: Client::new(address), engine, shutdown: Some(shutdown), running }
    }

    /// Tells the server to stop, as SIGTERM would.
    pub fn stop(&mut self) {
        drop(self.shutdown.take());
    }

    /// Waits until it has.
    pub async fn stopped(self) -> DrainReport {
        self.running.await.unwrap()
    }
}

impl Setup {
    /// What a server of this kind shares, and its engine.
    pub fn state(
        self,
        choose: impl Fn(&EngineRequest) -> Script + Send + 'static,
    ) -> (AppState, FakeEngine) {
        let setup = self;
        let engine = FakeEngine::start(setup.limits, choose);
        let template = setup.template.map(|source| {
            Arc::new(ChatTemplate::new(source, setup.special_tokens.clone()).unwrap())
        });
        let parts = ServerParts {
            config: setup.config,
            engine: engine.handle.clone(),
            adapters: AdapterParts {
                loader: AdapterLoader::new(
                    setup.layout,
                    &Device::Cpu,
                    &EngineConfig::default(),
                    HubOptions::offline(Path::new("no-cache")),
                ),
                served: Vec::new(),
                tasks: Vec::new(),
                always_one: false,
            },
            tokenizer: Arc::new(tokenizer_with(setup.special_tokens)),
            chat_template: template,
            tool_chat_template: None,
            defaults: setup.defaults,
            embedding_prompts: setup.embedding_prompts,
            eos_token_ids: Arc::from([EOS, IM_END]),
            metrics: metrics::install("tiny"),
            build_features: vec!["cpu".to_owned()],
            fingerprint: "fp_test".to_owned(),
            image_processor: None,
            sound_processor: None,
            speech: setup.speech,
            model: ModelFacts {
                architecture: "tiny".to_owned(),
                format: "safetensors",
                stored_as: "F32".to_owned(),
                bytes: 1 << 20,
                on_gpu: false,
                embeds: setup.embeds,
                answers: None,
                labels: setup.labels,
            },
            store: setup
                .store
                .unwrap_or_else(|| Store::open(&StorePlace::Memory, 64 << 20).unwrap()),
        };
        let state = AppState::with_keep_alive(parts, setup.keep_alive);
        state.read_key_file().unwrap();
        (state, engine)
    }
}

/// A chat request of one message, with more fields.
pub fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// A completion request, with more fields.
pub fn completion(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "prompt": "Hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}
