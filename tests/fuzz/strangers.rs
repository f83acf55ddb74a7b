//! More that comes from strangers, and what is tried on it: what clients send, what operators write and what
//! lies on disks.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, header};
use clap::CommandFactory;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use sconce::cli::Cli;
use sconce::cli::settings::{Settings, Sources};
use sconce::config::EngineConfig;
use sconce::engine::startup::adapters::AdapterLoader;
use sconce::http::router;
use sconce::http::state::keys::file;
use sconce::kv_disk::inventory;
use sconce::layers::adapter::{Projection, Site};
use sconce::models::adapter::{AdaptableModule, AdapterLayout};
use sconce::store::{Change, Key, Object, Store, StorePlace, UsageCounts, UsageRow};
use sconce::structured::compiler::{CompilerLimits, GrammarCompiler};
use sconce::structured::spec::GrammarSpec;
use sconce::structured::vocabulary::Vocabulary;
use sconce::text::chat_template::{ChatPrompt, ChatTemplate};
use sconce::text::special_tokens::SpecialTokens;
use sconce::weights::hub::HubOptions;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Target;
use super::targets::{MIB, fixture, folder};
use crate::http::fixture::{Setup, say};
use crate::lora_folder::WrittenAdapter;

/// What multipart bodies are cut by.
const BOUNDARY: &str = "XX";

/// A server without a socket, on the thread that asks it.
struct Asked {
    runtime: Runtime,
    router: Router,
}

thread_local! {
    static ASKED: OnceCell<Asked> = const { OnceCell::new() };
    static COMPILER: OnceCell<GrammarCompiler> = const { OnceCell::new() };
}

impl Asked {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (state, _engine) = runtime.block_on(async { Setup::default().state(|_| say("x")) });
        Self { runtime, router: router(state) }
    }

    /// Sends a body to a path; the server must know what to do.
    fn post(&self, path: &str, kind: &str, body: &[u8]) {
        let mut request = Request::new(Body::from(body.to_vec()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.parse().unwrap();
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        let service = TowerToHyperService::new(self.router.clone());
        let status = self.runtime.block_on(async {
            let response = service.call(request).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX);
            let _ = tokio::time::timeout(Duration::from_mins(1), body).await.expect("an end");
            status
        });
        assert!(status.as_u16() != 500, "{path} answered {status}");
    }
}

/// The first byte says which route.
const ROUTES: [&str; 12] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
    "/api/chat",
    "/api/generate",
    "/v1/rerank",
    "/tokenize",
    "/v1/batches",
    "/embed",
    "/v1/decisions",
];

/// A body behind a byte that says where it goes.
fn body(route: usize, body: &Value) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(route).unwrap()];
    bytes.extend(body.to_string().bytes());
    bytes
}

pub(super) fn bodies() -> Target {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters":
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}});
    let parts = json!([{"type": "text", "text": "Hi"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]);
    let user = json!({"role": "user", "content": "Hi"});
    let called = json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]});
    let inputs = vec![
        body(
            0,
            &json!({"model": "tiny", "messages": [user, called, {"role": "tool",
            "tool_call_id": "c", "content": parts}], "tools": [tool], "tool_choice": "auto",
            "temperature": 0.5, "top_p": 0.9, "n": 2, "stream": true, "seed": 3, "logit_bias": {"5": -1.5},
            "logprobs": true, "top_logprobs": 2, "stop": ["x"], "max_completion_tokens": 3}),
        ),
        body(
            0,
            &json!({"messages": [user], "max_tokens": 4, "response_format": {"type": "json_schema",
            "json_schema": {"name": "n", "schema": {"type": "array", "maxItems": 2, "items":
            {"enum": [1, "a", null]}}}}}),
        ),
        body(
            1,
            &json!({"prompt": ["a", "b"], "max_tokens": 2, "echo": true, "logprobs": 1,
            "best_of": 2, "suffix": null}),
        ),
        body(1, &json!({"prompt": [[1, 2], [3]], "max_tokens": 2, "regex": "[ab]+c?"})),
        body(
            2,
            &json!({"max_tokens": 3, "system": [{"type": "text", "text": "s"}],
            "messages": [user], "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ),
        body(
            3,
            &json!({"input": [{"type": "message", "role": "user", "content":
            [{"type": "input_text", "text": "x"}]}], "max_output_tokens": 16, "text":
            {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}}),
        ),
        body(4, &json!({"input": ["a", "b"], "dimensions": 2, "encoding_format": "base64"})),
        body(
            5,
            &json!({"messages": [user], "options": {"num_predict": 3, "temperature": 1},
            "format": "json", "stream": false}),
        ),
        body(6, &json!({"prompt": "x", "system": "y", "raw": false, "keep_alive": "5m"})),
        body(7, &json!({"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1})),
        body(8, &json!({"messages": [user], "add_generation_prompt": true})),
        body(
            9,
            &json!({"input_file_id": "file-x", "endpoint": "/v1/completions",
            "completion_window": "24h", "metadata": {"a": "b"}}),
        ),
        body(10, &json!({"inputs": ["a"], "truncate": true, "normalize": false})),
        body(11, &json!({"question": "q", "options": ["a", "b"], "input": "x"})),
    ];
    Target {
        name: "bodies",
        inputs,
        read: |bytes| {
            let Some((route, body)) = bytes.split_first() else { return };
            let path = ROUTES[usize::from(*route) % ROUTES.len()];
            ASKED.with(|asked| {
                asked.get_or_init(Asked::new).post(path, "application/json", body);
            });
        },
        // Of JSON in trees, and of what one request may ask for.
        held: (512, 64 * MIB),
        single: (256, 16 * MIB),
    }
}

pub(super) fn multipart() -> Target {
    let form = |name: &str, purpose: &str, file: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n\
             --{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n{file}\r\n--{BOUNDARY}--\r\n"
        )
        .into_bytes()
    };
    let line = json!({"custom_id": "1", "method": "POST", "url": "/v1/completions",
        "body": {"model": "tiny", "prompt": "x"}});
    Target {
        name: "multipart",
        inputs: vec![
            form("lines.jsonl", "batch", &format!("{line}\n{line}\n")),
            form("a.txt", "user_data", "text"),
        ],
        read: |bytes| {
            let kind = format!("multipart/form-data; boundary={BOUNDARY}");
            ASKED.with(|asked| asked.get_or_init(Asked::new).post("/v1/files", &kind, bytes));
        },
        held: (64, 16 * MIB),
        single: (16, 4 * MIB),
    }
}

pub(super) fn templates() -> Target {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates/data");
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
    files.sort();
    let texts = files.iter().map(|path| std::fs::read(path).unwrap());
    Target {
        name: "templates",
        inputs: texts.filter(|text| text.len() < 20_000).take(40).collect(),
        read: |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let Ok(template) = ChatTemplate::new(text, SpecialTokens::default()) else { return };
            let messages = json!([{"role": "system", "content": "s"}, {"role": "user", "content":
                [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": "x"}]);
            let prompt = ChatPrompt::new(messages).unwrap();
            let prompt = prompt.with_tools(json!([{"type": "function", "function":
                {"name": "f", "parameters": {"type": "object"}}}]));
            let _ = template.render(&prompt.unwrap());
        },
        held: (2048, 256 * MIB),
        single: (1024, 64 * MIB),
    }
}

/// Every byte is a token, as is every pair of small letters.
fn compiler() -> GrammarCompiler {
    let letters = b'a'..=b'z';
    let pairs = letters.clone().flat_map(|one| letters.clone().map(move |two| vec![one, two]));
    let tokens: Vec<Vec<u8>> =
        (0..=255).map(|byte| vec![byte]).chain(pairs).chain([vec![]]).collect();
    let end = u32::try_from(tokens.len() - 1).unwrap();
    let tokenize = |text: &str| text.bytes().map(u32::from).collect();
    let special = [(end, "<|end|>".to_owned())];
    let vocabulary = Vocabulary::new(tokens, special, vec![end], Box::new(tokenize));
    let limits = CompilerLimits { time: Duration::from_millis(200), ..CompilerLimits::default() };
    GrammarCompiler::new(Arc::new(vocabulary), limits)
}

pub(super) fn schemas() -> Target {
    let lines = fixture("schemas/schemas.jsonl");
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let schemas = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let schemas = schemas.map(|line| line["schema"].to_string().into_bytes());
    let others = [
        "r[a-z]{2,5}(foo|ba?r)*",
        "groot ::= \"a\" item+ \"z\"\nitem ::= [b-y] | (\"-\" root)?",
        "lstart: \"a\" WORD+ (\",\" WORD)*\nWORD: /[a-z]{1,4}/",
    ];
    Target {
        name: "schemas",
        inputs: schemas.chain(others.map(|text| text.as_bytes().to_vec())).collect(),
        read: |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let spec = match text.split_at_checked(1) {
                Some(("r", rest)) => GrammarSpec::Regex(rest.to_owned()),
                Some(("g", rest)) => GrammarSpec::Gbnf(rest.to_owned()),
                Some(("l", rest)) => GrammarSpec::Lark(rest.to_owned()),
                _ => match serde_json::from_str(text) {
                    Ok(schema) => GrammarSpec::JsonSchema(schema),
                    Err(_) => return,
                },
            };
            COMPILER.with(|made| {
                let _ = made.get_or_init(compiler).compile(&spec);
            });
        },
        held: (512, 64 * MIB),
        single: (64, 16 * MIB),
    }
}

pub(super) fn pictures() -> Target {
    let mut inputs: Vec<Vec<u8>> =
        (0..3).map(|number| fixture(&format!("pictures/{number}.png"))).collect();
    let small = image::load_from_memory(&inputs[0]).unwrap().thumbnail(24, 24).into_rgb8();
    for format in [
        image::ImageFormat::Jpeg,
        image::ImageFormat::Gif,
        image::ImageFormat::WebP,
        image::ImageFormat::Png,
    ] {
        let mut file = std::io::Cursor::new(Vec::new());
        small.write_to(&mut file, format).unwrap();
        inputs.push(file.into_inner());
    }
    Target {
        name: "pictures",
        inputs,
        read: |bytes| drop(sconce::pictures::decode::decode(bytes)),
        // A small file may have as many pixels as any: 2^25 of four 16-bit numbers, and their RGB.
        held: (16, 448 * MIB),
        single: (16, 320 * MIB),
    }
}

pub(super) fn adapters() -> Target {
    let written = WrittenAdapter::new(&[("model.layers.0.self_attn.q_proj", 4, 6)], 1);
    let read = |name: &str| std::fs::read(written.file(name)).unwrap();
    let both = [read("adapter_config.json"), read("adapter_model.safetensors")].join(SEPARATOR);
    Target {
        name: "adapters",
        inputs: vec![both],
        read: |bytes| {
            let at = bytes.windows(SEPARATOR.len()).position(|part| part == SEPARATOR);
            let Some(at) = at else { return };
            let folder = folder("adapters");
            std::fs::write(folder.join("adapter_config.json"), &bytes[..at]).unwrap();
            let tensors = &bytes[at + SEPARATOR.len()..];
            std::fs::write(folder.join("adapter_model.safetensors"), tensors).unwrap();
            let query = Site::Layer(0, Projection::Query);
            let name = "layers.0.self_attn.q_proj".to_owned();
            let module = AdaptableModule::whole(name, 4, 6, query);
            let layout =
                AdapterLayout { roots: &["model."], modules: vec![module], embeddings: Vec::new() };
            let hub = HubOptions::offline(Path::new("no-cache"));
            let config = EngineConfig::default();
            let loader = AdapterLoader::new(Some(layout), &candle_core::Device::Cpu, &config, hub);
            let _ = loader.load("a", folder.to_str().unwrap());
        },
        held: (64, 4 * MIB),
        single: (16, MIB),
    }
}

/// Between the two files of an adapter.
const SEPARATOR: &[u8] = b"\n---\n";

/// A store's file with something of everything.
fn stored() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&StorePlace::File(path.clone()), 16 << 20).unwrap();
        let object = |id: &str| {
            let key = Key::new("response", "me", id);
            Change::Add(Object::new(key, None, vec![b'{'; 300]))
        };
        store.change(vec![object("a"), object("b")]).await.unwrap();
        store.put_chunk("file-1", 0, vec![1; 2000]).await.unwrap();
        let counts = UsageCounts { requests: 1, input: 2, cached: 0, output: 3 };
        let row = UsageRow { hour: 5, key: "k".to_owned(), model: "m".to_owned(), counts };
        store.add_usage(vec![row]).await.unwrap();
    });
    // The thread that has the file open closes it, and everything is in one file then.
    while folder.path().join("store.db-wal").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::read(path).unwrap()
}

pub(super) fn stores() -> Target {
    Target {
        name: "stores",
        inputs: vec![stored()],
        read: |bytes| {
            let path = folder("stores").join("store.db");
            for ending in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
            }
            std::fs::write(&path, bytes).unwrap();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let Ok(store) = Store::open(&StorePlace::File(path), 16 << 20) else { return };
                let _ = store.find("response", "me", "a").await;
                let _ = store.all("response", 10).await;
                let _ = store.chunk("file-1", 0).await;
                let _ = store.usage(0, 100, None, 24, 10).await;
                let _ = store.remove_expired().await;
            });
        },
        held: (4, MIB),
        single: (2, MIB / 2),
    }
}

/// The name of a block's file, and of its folder.
const BLOCK: [&str; 2] =
    ["000102030405060708090a0b0c0d0e0f", "101112131415161718191a1b1c1d1e1f.block"];

pub(super) fn blocks() -> Target {
    let payload = [7; 400];
    let mut file = b"SCONCEKV".to_vec();
    file.extend(1_u32.to_le_bytes());
    let mut checked: Vec<u8> = (0..32).collect();
    checked.extend(1_u64.to_le_bytes());
    checked.extend((payload.len() as u64).to_le_bytes());
    checked.extend(payload);
    file.extend(crc32fast::hash(&checked).to_le_bytes());
    file.extend(checked);
    Target {
        name: "blocks",
        inputs: vec![file],
        read: |bytes| {
            let root = folder("blocks");
            let space = root.join(BLOCK[0]);
            std::fs::create_dir_all(&space).unwrap();
            std::fs::write(space.join(BLOCK[1]), bytes).unwrap();
            std::fs::write(space.join("about.json"), bytes).unwrap();
            let verified = inventory::verify(&root).unwrap();
            assert_eq!(verified.good + verified.bad.len(), 1);
            let _ = inventory::list(&root);
        },
        held: (4, MIB / 4),
        single: (2, MIB / 8),
    }
}

pub(super) fn settings() -> Target {
    let text = "# flags\nmax-num-seqs = 32\nserved-model-name = [\"a\", \"b\"]\nstrict = true\n\
                max-body-size = \"8MiB\"\ngpu-memory-utilization = 0.5\n\
                kv-events-config = {enable_kv_cache_events = true, endpoint = \"tcp://*:1\"}\n\
                limit-mm-per-prompt = \"image=4\"\nchat-template-kwargs = {enable_thinking = false}\n";
    Target {
        name: "settings",
        inputs: vec![text.as_bytes().to_vec()],
        read: |bytes| {
            let path = folder("settings").join("sconce.toml");
            std::fs::write(&path, bytes).unwrap();
            let arguments = ["sconce", "serve", "--config", path.to_str().unwrap()];
            let sources = Sources {
                arguments: arguments.map(Into::into).to_vec(),
                variable: &|_| None,
                files: Vec::new(),
            };
            let command = Cli::command();
            let Ok(settings) = Settings::read(&command, sources) else { return };
            let _ = command.try_get_matches_from(settings.arguments());
        },
        // Of the flags themselves.
        held: (256, 16 * MIB),
        single: (64, MIB),
    }
}

pub(super) fn key_files() -> Target {
    let digest = "0123456789abcdef".repeat(4);
    let toml = format!(
        "[[keys]]\nname = \"a\"\nsha256 = \"{digest}\"\nscopes = [\"infer\", \"admin\"]\n\
         requests_per_minute = 60\ntokens_per_minute = 100000\nmax_concurrent = 4\n\
         models = [\"m\"]\nexpires = 2030-01-01T00:00:00Z\n"
    );
    let json = json!({"keys": [{"name": "b", "sha256": [digest], "expires": "2030-01-01"}]});
    Target {
        name: "key files",
        inputs: vec![toml.into_bytes(), json.to_string().into_bytes()],
        read: |bytes| {
            if let Ok(text) = std::str::from_utf8(bytes) {
                let _ = file::parse(text);
            }
        },
        held: (256, MIB),
        single: (64, MIB / 2),
    }
}
