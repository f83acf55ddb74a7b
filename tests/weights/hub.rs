//! Hub ids: what is downloaded, how the cache looks, what happens when things go wrong.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use sconce::cli::download::{DownloadArgs, download};
use sconce::weights::WeightError;
use sconce::weights::hub::error::HubError;
use sconce::weights::hub::watch::Watch;
use sconce::weights::hub::{HubOptions, fetch_blocking};
use sconce::weights::model_ref::{HubRef, ModelRef};
use sconce::weights::source::ModelSource;

use super::checkpoint;
use super::fake_hub::{COMMIT, FakeHub, TOKEN, sha256};
use super::gguf_file::GgufFile;

fn options(hub: &FakeHub, cache: &Path) -> HubOptions {
    HubOptions {
        offline: false,
        progress: false,
        projector: true,
        endpoint: hub.endpoint.clone(),
        cache: cache.to_owned(),
        token: None,
        retries: 1,
        watch: Watch::default(),
    }
}

fn checkpoint_hub() -> FakeHub {
    FakeHub::start(&[
        ("README.md", b"hello".to_vec()),
        ("config.json", br#"{"model_type": "llama"}"#.to_vec()),
        ("tokenizer.json", b"{}".to_vec()),
        ("additional_chat_templates/tool_use.jinja", b"tools".to_vec()),
        ("chat_template.jinja", b"chat".to_vec()),
        ("model.safetensors", checkpoint::safetensors_bytes()),
        ("pytorch_model.bin", b"pickle".to_vec()),
        ("onnx/model.safetensors", b"other".to_vec()),
    ])
}

fn open(text: &str, options: &HubOptions) -> Result<ModelSource, WeightError> {
    ModelSource::open(&ModelRef::parse(text, None).unwrap(), options)
}

fn refused(text: &str, options: &HubOptions) -> String {
    open(text, options).unwrap_err().to_string()
}

fn requests_of<'a>(requests: &'a [String], method: &str) -> Vec<&'a str> {
    requests.iter().filter_map(|request| request.strip_prefix(method)).map(str::trim).collect()
}

#[test]
fn a_checkpoint_is_downloaded_once_into_the_shared_layout() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    let source = open("org/name", &options).unwrap();
    assert_eq!(source.name, "org/name");
    assert_eq!(source.config["model_type"], "llama");
    assert_eq!(source.chat_template.as_deref(), Some("chat"));
    assert_eq!(source.tool_use_template.as_deref(), Some("tools"));
    assert_eq!(source.weight_bytes(), 88);
    let requests = hub.take_requests();
    let unneeded = ["README", "pytorch_model", "onnx"];
    assert!(!requests.iter().any(|r| unneeded.iter().any(|name| r.contains(name))), "{requests:?}");

    let root = cache.path().join("models--org--name");
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    let snapshot = root.join("snapshots").join(COMMIT);
    let link = std::fs::read_link(snapshot.join("model.safetensors")).unwrap();
    let hash = sha256(&checkpoint::safetensors_bytes());
    assert_eq!(link, Path::new("../../blobs").join(&hash));
    let link = std::fs::read_link(snapshot.join("additional_chat_templates/tool_use.jinja"));
    assert!(link.unwrap().starts_with("../../../blobs"));
    assert_eq!(std::fs::metadata(root.join("blobs").join(&hash)).unwrap().len(), {
        checkpoint::safetensors_bytes().len() as u64
    });

    open("org/name", &options).unwrap();
    assert_eq!(hub.take_requests(), ["GET /api/models/org/name/revision/main"]);
    open("org/name", &HubOptions { offline: true, ..options.clone() }).unwrap();
    open(&format!("org/name@{COMMIT}"), &options).unwrap();
    assert_eq!(hub.take_requests(), [""; 0], "a commit that is here is not asked for");
}

#[test]
fn shards_are_those_of_the_index() {
    let tensors = checkpoint::tensors();
    let mut files = vec![("config.json".to_owned(), b"{}".to_vec())];
    let mut map = serde_json::Map::new();
    for (number, (name, tensor)) in tensors.iter().enumerate() {
        let file = format!("model-{number:05}-of-00003.safetensors");
        let bytes = safetensors::serialize([(name.clone(), tensor.clone())], None).unwrap();
        files.push((file.clone(), bytes));
        map.insert(name.clone(), file.into());
    }
    let index = serde_json::json!({ "weight_map": map }).to_string();
    files.push(("model.safetensors.index.json".to_owned(), index.into_bytes()));
    files.push(("extra.safetensors".to_owned(), b"not named".to_vec()));
    let files: Vec<_> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let (hub, cache) = (FakeHub::start(&files), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    assert_eq!(open("org/name", &options).unwrap().weight_bytes(), 88);
    assert!(!hub.take_requests().iter().any(|request| request.contains("extra")));

    // A shard that disappears from the cache is missed offline and fetched again online.
    let snapshot = cache.path().join("models--org--name/snapshots").join(COMMIT);
    std::fs::remove_file(snapshot.join("model-00001-of-00003.safetensors")).unwrap();
    let message = refused("org/name", &HubOptions { offline: true, ..options.clone() });
    assert!(message.contains("model-00001-of-00003.safetensors is not in the cache"), "{message}");
    open("org/name", &options).unwrap();
}

#[test]
fn a_gguf_file_is_chosen_by_name_or_quantization() {
    let gguf = GgufFile::new("qwen2", GgmlDType::Q8_0).bytes();
    let hub = FakeHub::start(&[
        ("name-Q4_K_M.gguf", b"another".to_vec()),
        ("sub/name-Q8_0.gguf", gguf),
        ("name-BF16-00001-of-00002.gguf", b"part".to_vec()),
    ]);
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    for text in ["org/name:q8_0", "org/name/sub/name-Q8_0.gguf", "org/name:sub/name-Q8_0.gguf"] {
        assert_eq!(open(text, &options).unwrap().config["model_type"], "qwen2", "{text}");
    }
    let offline = HubOptions { offline: true, ..options.clone() };
    open("org/name:Q8_0", &offline).unwrap();
    assert!(!hub.take_requests().iter().any(|request| request.contains("Q4_K_M")));
    assert!(refused("org/name:Q5_0", &options).contains("`Q5_0`: it has name-BF16"));
    assert!(refused("org/name:BF16", &options).contains("`name-BF16-00002-of-00002.gguf`"));
    assert!(refused("org/name:Q4_K_M", &offline).contains("is not in the cache"));
}

#[test]
fn all_parts_of_a_gguf_model_are_fetched() {
    let mut parts =
        [GgufFile::new("qwen2", GgmlDType::Q8_0), GgufFile::new("qwen2", GgmlDType::Q8_0)];
    parts[0].tensors.retain(|name, _| name.starts_with("blk"));
    parts[1].tensors.retain(|name, _| !name.starts_with("blk"));
    for (number, part) in (0..).zip(&mut parts) {
        part.set("split.no", Value::U16(number));
        part.set("split.count", Value::U16(2));
    }
    let hub = FakeHub::start(&[
        ("name-Q8_0-00001-of-00002.gguf", parts[0].bytes()),
        ("name-Q8_0-00002-of-00002.gguf", parts[1].bytes()),
    ]);
    let cache = tempfile::tempdir().unwrap();
    let options = options(&hub, cache.path());
    for text in ["org/name", "org/name:Q8_0", "org/name/name-Q8_0-00002-of-00002.gguf"] {
        let source = open(text, &options).unwrap();
        let bytes = GgufFile::new("qwen2", GgmlDType::Q8_0).bytes();
        assert!(source.weight_bytes() as usize > bytes.len() / 2, "{text}");
        assert_eq!(source.config["model_type"], "qwen2", "{text}");
    }
    open("org/name", &HubOptions { offline: true, ..options }).unwrap();
}

#[test]
fn a_cut_connection_goes_on_where_it_stopped() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let size = checkpoint::safetensors_bytes().len();
    hub.state().cut_after = Some(100);
    open("org/name", &options(&hub, cache.path())).unwrap();
    let requests = hub.take_requests();
    let gets = requests_of(&requests, "GET /cdn/model.safetensors");
    let starts = (0..).map(|i| i * 100).take_while(|start| *start < size);
    let expected: Vec<_> =
        starts.map(|s| if s == 0 { String::new() } else { format!("from {s}") }).collect();
    assert_eq!(gets, expected);
}

#[test]
fn an_interrupted_command_is_taken_up_by_the_next() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    let bytes = checkpoint::safetensors_bytes();
    let blobs = cache.path().join("models--org--name/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let incomplete = blobs.join(format!("{}.incomplete", sha256(&bytes)));
    std::fs::write(&incomplete, &bytes[..150]).unwrap();
    hub.state().cut_after = Some(0);
    let message = refused("org/name", &options);
    assert!(message.contains("model.safetensors from `org/name`"), "{message}");
    assert!(message.contains(&format!("150 of {} bytes are kept", bytes.len())), "{message}");
    hub.state().cut_after = None;
    hub.take_requests();
    open("org/name", &options).unwrap();
    let requests = hub.take_requests();
    assert_eq!(requests_of(&requests, "GET /cdn/model.safetensors"), ["from 150"]);
    assert!(!incomplete.exists());
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let bytes = checkpoint::safetensors_bytes();
    let blobs = cache.path().join("models--org--name/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let incomplete = blobs.join(format!("{}.incomplete", sha256(&bytes)));
    std::fs::write(incomplete, &bytes[..150]).unwrap();
    hub.state().ignore_ranges = true;
    assert_eq!(open("org/name", &options(&hub, cache.path())).unwrap().weight_bytes(), 88);
}

#[test]
fn wrong_bytes_never_become_a_model() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    let blobs = cache.path().join("models--org--name/blobs");
    hub.state().wrong_hash = true;
    let message = refused("org/name", &options);
    assert!(message.contains("the bytes have SHA-256"), "{message}");
    let left = |ending: &str| {
        let names = std::fs::read_dir(&blobs).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().ends_with(ending)).count()
    };
    assert_eq!(left(".incomplete"), 0, "wrong bytes are no start to go on from");
    hub.state().wrong_hash = false;
    hub.state().failures = 2;
    let message = refused("org/name", &options);
    assert!(message.contains("HTTP 500"), "{message}");
    hub.state().failures = 1;
    assert_eq!(open("org/name", &options).unwrap().weight_bytes(), 88);
}

#[test]
fn a_busy_hub_is_asked_again() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    hub.state().busy = 1;
    open("org/name", &options(&hub, cache.path())).unwrap();
    hub.state().busy = 2;
    let message = refused("org/name", &options(&hub, tempfile::tempdir().unwrap().path()));
    assert!(message.contains("HTTP 503"), "{message}");
    hub.take_requests();
    hub.state().rate_limited = 3;
    open("org/name", &options(&hub, cache.path())).unwrap();
    assert_eq!(hub.take_requests().len(), 4, "asked again after the wait that the hub asks for");
    hub.state().rate_limited = 100;
    let message = refused("org/name", &options(&hub, tempfile::tempdir().unwrap().path()));
    assert!(message.contains("HTTP 429 Too Many Requests: slowly"), "{message}");
}

#[test]
fn an_answer_that_no_hub_gives_is_called_so() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    for (answer, expected) in [
        ("<html>a login page</html>", "not an answer of a hub: expected value"),
        (r#"{"id": "org/name"}"#, "`` is no commit hash"),
        (r#"{"id": "org/name", "sha": "../../x"}"#, "`../../x` is no commit hash"),
    ] {
        hub.state().strange_info = Some(answer);
        let message = refused("org/name", &options);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn the_token_opens_a_gated_model_and_stays_with_the_hub() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let mut options = options(&hub, cache.path());
    hub.state().locked = Some("GatedRepo");
    let message = refused("org/name", &options);
    assert!(message.contains("HTTP 401") && message.contains("set HF_TOKEN"), "{message}");
    assert!(message.contains("gated"), "{message}");
    options.token = Some("hf_wrong".to_owned());
    let message = refused("org/name", &options);
    assert!(message.contains("HTTP 403") && message.contains("has not been granted"), "{message}");
    assert!(!message.contains("hf_wrong"), "{message}");
    hub.state().locked = Some("");
    let message = refused("org/name", &options);
    assert!(message.contains("HF_TOKEN") && message.contains("not valid"), "{message}");
    // The place that large files come from answers 400 to a token.
    options.token = Some(TOKEN.to_owned());
    open("org/name", &options).unwrap();
}

#[test]
fn what_is_not_there_is_named() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    assert!(refused("org/other", &options).contains("no model `org/other` on http://127"));
    assert!(refused("org/name@v9", &options).contains("no revision `v9`"));
    assert!(refused("org/name:x.gguf", &options).contains("no file `x.gguf`"));
    assert!(open("org/name@refs/pr/1", &options).is_ok());
    assert!(cache.path().join("models--org--name/refs/refs/pr/1").is_file());
    hub.state().files.remove("model.safetensors");
    hub.state().files.remove("onnx/model.safetensors");
    let message = refused("org/name", &options);
    assert!(message.contains("only pickle weights (pytorch_model.bin)"), "{message}");
}

#[test]
fn hostile_file_names_are_refused() {
    let (hub, cache) = (FakeHub::start(&[]), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    for name in ["../../../evil.gguf", "/etc/evil.gguf", "a//b.gguf", "c:\\evil.gguf"] {
        hub.state().files = [(name.to_owned(), b"evil".to_vec())].into();
        let message = refused("org/name", &options);
        assert!(message.contains("is no file name"), "{name}: {message}");
    }
}

#[test]
fn without_a_network_the_cache_is_used_or_the_reason_given() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let online = options(&hub, cache.path());
    let unreachable = HubOptions { endpoint: "http://127.0.0.1:9".to_owned(), ..online.clone() };
    let reference = HubRef::parse("org/name", None).unwrap();
    let error = fetch_blocking(&reference, &unreachable).unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1:9 can't be reached"), "{error}");
    let offline = HubOptions { offline: true, ..unreachable.clone() };
    let message = refused("org/name", &offline);
    assert!(message.contains("revision `main` is not in the cache"), "{message}");
    open("org/name", &online).unwrap();
    open("org/name", &unreachable).unwrap();
    open("org/name", &offline).unwrap();
    let odd = HubOptions { endpoint: "not an address".to_owned(), ..online };
    assert!(refused("org/name", &odd).contains("HF_ENDPOINT is `not an address`"));
}

#[test]
fn the_command_gives_the_folder_or_the_file() {
    let (hub, cache) = (checkpoint_hub(), tempfile::tempdir().unwrap());
    let options = options(&hub, cache.path());
    let mut args = DownloadArgs {
        model: "org/name".to_owned(),
        revision: Some("main".to_owned()),
        file: None,
        offline: false,
    };
    let folder = download(args.clone(), options.clone()).unwrap();
    assert!(folder.join("config.json").is_file() && folder.join("model.safetensors").is_file());
    hub.state().files.insert("tiny.gguf".to_owned(), b"any bytes".to_vec());
    args.file = Some("tiny.gguf".to_owned());
    let file = download(args.clone(), options.clone()).unwrap();
    assert_eq!(std::fs::read(file).unwrap(), b"any bytes");
    args.model = "./folder".to_owned();
    assert!(download(args, options).is_err());
}
