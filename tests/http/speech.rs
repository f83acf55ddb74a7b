//! Transcripts over HTTP, by a tiny model whose windows are two seconds long.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce::config::SpeechConfig;
use sconce::http::state::speech::SpeechParts;
use sconce::speech::room::SpeechHandle;
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use serde_json::{Value, json};

use super::client::Answer;
use super::contracts::Contract;
use super::fixture::{Server, Setup, chat, say};

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const TRANSLATIONS: &str = "/v1/audio/translations";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/speech")
}

/// What transcribes, by the fixture of this name.
fn parts(name: &str, config: SpeechConfig, is_alone: bool) -> SpeechParts {
    let folder = ModelRef::Folder(fixtures().join(name));
    let source = ModelSource::open(&folder, &HubOptions::offline(Path::new("no-cache"))).unwrap();
    let json = source.tokenizer_json.as_ref().unwrap();
    let tokenizer = Tokenizer::from_json(json, &TokenizerConfig::default()).unwrap();
    let metrics = sconce::metrics::install("whisper");
    let (tokenizer, progress) = (Arc::new(tokenizer), Arc::new(|_: u64, _: u64| {}));
    let handle = SpeechHandle::start(&source, tokenizer, &config, metrics, progress).unwrap();
    SpeechParts { handle, names: vec!["whisper".to_owned()], config, is_alone }
}

async fn server_of(name: &str, config: SpeechConfig) -> Server {
    let setup = Setup { speech: Some(parts(name, config, false)), ..Setup::default() };
    let script = say("hello");
    Server::start(setup, move |_| script.clone()).await
}

async fn server() -> Server {
    server_of("tiny", SpeechConfig { threads: Some(1), ..SpeechConfig::default() }).await
}

/// A form with a file of the fixtures.
async fn ask(server: &Server, path: &str, file: &str, fields: &[(&str, &str)]) -> Answer {
    send(server, path, Some(std::fs::read(fixtures().join(file)).unwrap()), fields).await
}

async fn send(
    server: &Server,
    path: &str,
    file: Option<Vec<u8>>,
    fields: &[(&str, &str)],
) -> Answer {
    let mut body = Vec::new();
    for (name, value) in fields {
        let head =
            format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(head.as_bytes());
    }
    if let Some(file) = file {
        let head = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&file);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--x--\r\n");
    server.client.post_bytes(path, "multipart/form-data; boundary=x", body).await
}

async fn transcribe(server: &Server, fields: &[(&str, &str)]) -> Answer {
    let answer = ask(server, TRANSCRIPTIONS, "said.flac", fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// The data of all events.
fn events(answer: &Answer) -> Vec<Value> {
    let lines = answer.text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn all_formats_say_the_same_and_keep_to_the_contract() {
    let server = server().await;
    let (openai, own) = (Contract::openai(), Contract::own(&server.client).await);
    let plain = transcribe(&server, &[("model", "whisper")]).await.json();
    openai.check(&plain, "CreateTranscriptionResponseJson");
    own.check(&plain, "Transcript");
    assert_eq!(plain["usage"], json!({"type": "duration", "seconds": 6}));
    let text = plain["text"].as_str().unwrap();
    assert!(!text.is_empty());
    let fields = [("response_format", "json"), ("include[]", "logprobs")];
    let told = transcribe(&server, &fields).await.json();
    openai.check(&told, "CreateTranscriptionResponseJson");
    own.check(&told, "Transcript");
    assert!(!told["logprobs"].as_array().unwrap().is_empty());
    let fields = [
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("timestamp_granularities[]", "segment"),
    ];
    let verbose = transcribe(&server, &fields).await.json();
    // OpenAI's API tells the task, its schema doesn't.
    let mut known = verbose.clone();
    known.as_object_mut().unwrap().remove("task");
    openai.check(&known, "CreateTranscriptionResponseVerboseJson");
    own.check(&verbose, "VerboseTranscript");
    assert_eq!((&verbose["text"], &verbose["task"]), (&plain["text"], &json!("transcribe")));
    assert!((verbose["duration"].as_f64().unwrap() - 5.37).abs() < 1e-3);
    let segments = verbose["segments"].as_array().unwrap();
    assert!(segments.len() > 2 && !verbose["words"].as_array().unwrap().is_empty());
    let joined: String = segments.iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(joined.trim(), text);
    let answer = transcribe(&server, &[("response_format", "text")]).await;
    assert_eq!(answer.text.trim_end_matches('\n'), text);
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    let answer = transcribe(&server, &[("response_format", "srt")]).await;
    assert!(answer.text.starts_with("1\n00:00:0"), "{}", answer.text);
    assert_eq!(answer.text.matches(" --> ").count(), segments.len());
    let answer = transcribe(&server, &[("response_format", "vtt")]).await;
    assert!(answer.text.starts_with("WEBVTT\n\n00:00:0"), "{}", answer.text);
}

#[tokio::test]
async fn granularities_choose_what_gets_times() {
    let server = server().await;
    let with = async |granularities: &[&str]| {
        let mut fields = vec![("response_format", "verbose_json")];
        fields.extend(granularities.iter().map(|one| ("timestamp_granularities[]", *one)));
        let answer = transcribe(&server, &fields).await.json();
        (answer.get("words").is_some(), answer.get("segments").is_some())
    };
    assert_eq!(with(&[]).await, (false, true));
    assert_eq!(with(&["segment"]).await, (false, true));
    assert_eq!(with(&["word"]).await, (true, false));
    assert_eq!(with(&["word", "segment"]).await, (true, true));
}

#[tokio::test]
async fn a_stream_has_the_segments_and_then_the_text() {
    let server = server().await;
    let (openai, own) = (Contract::openai(), Contract::own(&server.client).await);
    let whole = transcribe(&server, &[]).await.json();
    let fields = [("stream", "true"), ("include[]", "logprobs")];
    let answer = transcribe(&server, &fields).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = events(&answer);
    for event in &events {
        openai.check_event(event, "CreateTranscriptionResponseStreamEvent");
        own.check_event(event, "TranscriptEvent");
        assert!(!event["logprobs"].as_array().unwrap().is_empty(), "{event}");
        assert!(answer.text.contains(&format!("event: {}\n", event["type"].as_str().unwrap())));
    }
    let (done, deltas) = events.split_last().unwrap();
    assert_eq!(done["type"], "transcript.text.done");
    let said: String = deltas.iter().map(|one| one["delta"].as_str().unwrap()).collect();
    assert_eq!((done["text"].as_str(), deltas.len() > 2), (Some(said.as_str()), true));
    assert_eq!(said.trim_end(), whole["text"].as_str().unwrap());
}

#[tokio::test]
async fn translations_are_another_task() {
    let server = server().await;
    let answer = ask(&server, TRANSLATIONS, "said.flac", &[("model", "whisper")]).await.json();
    Contract::openai().check(&answer, "CreateTranslationResponseJson");
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    assert_ne!(answer["text"], transcribe(&server, &[]).await.json()["text"]);
    let fields = [("response_format", "verbose_json")];
    let answer = ask(&server, TRANSLATIONS, "said.mp3", &fields).await.json();
    assert_eq!((&answer["language"], &answer["task"]), (&json!("english"), &json!("translate")));
    let server = server_of("english", SpeechConfig::default()).await;
    let answer = ask(&server, TRANSLATIONS, "said.flac", &[]).await;
    assert!(
        answer.error(400, "invalid_request_error", Some("model")).contains("doesn't translate")
    );
}

#[tokio::test]
async fn every_field_is_judged() {
    let server = server().await;
    for (fields, param, reason) in [
        (vec![("model", "nothing")], "model", "does not exist"),
        (vec![("model", "tiny")], "model", "\"whisper\" does"),
        (vec![("language", "klingon")], "language", "ISO 639-1"),
        (vec![("language", "spanish")], "language", "it knows de, en, fr, ja"),
        (vec![("temperature", "1.1")], "temperature", "from 0 to 1, got 1.1"),
        (vec![("temperature", "warm")], "temperature", "warm"),
        (vec![("response_format", "xml")], "response_format", "json, text, srt"),
        (vec![("timestamp_granularities[]", "word")], "timestamp_granularities", "verbose_json"),
        (
            vec![("response_format", "verbose_json"), ("timestamp_granularities[]", "letter")],
            "timestamp_granularities",
            "word, segment",
        ),
        (vec![("include[]", "all")], "include", "logprobs"),
        (vec![("include[]", "logprobs"), ("response_format", "text")], "include", "json only"),
        (vec![("stream", "true"), ("response_format", "srt")], "stream", "json and text"),
        (vec![("stream", "maybe")], "stream", "maybe"),
        (vec![("seed", "-1")], "seed", "-1"),
        (vec![("prompt", "a"), ("prompt", "b")], "prompt", "more than once"),
        (vec![("chunking_strategy[type]", "server_vad")], "chunking_strategy", "not supported"),
        (vec![("known_speaker_names[]", "me")], "known_speaker_names", "not supported"),
        (vec![("top_p", "0.5")], "top_p", "not supported"),
    ] {
        let answer = ask(&server, TRANSCRIPTIONS, "said.mp3", &fields).await;
        let status = if reason == "does not exist" { 404 } else { 400 };
        let message = answer.error(status, "invalid_request_error", Some(param));
        assert!(message.contains(reason), "{fields:?}: {message}");
    }
    let fields = [("user", "me"), ("made_up", "1"), ("top_p", "1"), ("chunking_strategy", "auto")];
    let answer = transcribe(&server, &fields).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("user, made_up, chunking_strategy"));
}

#[tokio::test]
async fn fields_change_the_answer() {
    let server = server().await;
    let text = async |fields: &[(&str, &str)]| {
        transcribe(&server, fields).await.json()["text"].as_str().unwrap().to_owned()
    };
    let plain = text(&[]).await;
    assert_ne!(text(&[("prompt", "the quick fox")]).await, plain);
    assert_ne!(text(&[("language", "ja")]).await, text(&[("language", "de")]).await);
    assert_eq!(text(&[("language", "German")]).await, text(&[("language", "de")]).await);
    // Text of a window that had to be sampled at a high temperature is not followed.
    let warm = [("temperature", "0.3"), ("seed", "1")];
    let alone = [warm[0], warm[1], ("condition_on_previous_text", "false")];
    assert_ne!(text(&alone).await, text(&warm).await);
    let hot = [("temperature", "1"), ("seed", "1")];
    assert_eq!(text(&hot).await, text(&hot).await);
    assert_ne!(text(&hot).await, text(&[("temperature", "1"), ("seed", "2")]).await);
}

#[tokio::test]
async fn files_that_are_none_are_refused_with_the_reason() {
    let config = SpeechConfig { max_seconds: 3, max_file_bytes: 70_000, ..SpeechConfig::default() };
    let server = server_of("tiny", config).await;
    let refused = async |file: Option<Vec<u8>>| {
        let answer = send(&server, TRANSCRIPTIONS, file, &[]).await;
        answer.error(400, "invalid_request_error", Some("file"))
    };
    assert_eq!(refused(None).await, "file is required");
    assert!(refused(Some(Vec::new())).await.contains("the file is empty"));
    assert!(refused(Some(b"no sound".repeat(100))).await.contains("no format that is read here"));
    let answer = ask(&server, TRANSCRIPTIONS, "said.flac", &[]).await;
    let message = answer.error(400, "invalid_request_error", Some("file"));
    assert!(message.contains("at most 3 s are taken"), "{message}");
    let answer = send(&server, TRANSCRIPTIONS, Some(vec![0; 70_001]), &[]).await;
    assert!(answer.error(413, "invalid_request_error", None).contains("70000 bytes"));
    // An error that comes before the first segment is a status of a stream, too.
    let answer = ask(&server, TRANSCRIPTIONS, "said.flac", &[("stream", "true")]).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let answer = server.client.post(TRANSCRIPTIONS, &json!({"model": "whisper"})).await;
    assert!(answer.error(415, "invalid_request_error", None).contains("multipart/form-data"));
    // The room goes on.
    assert_eq!(ask(&server, TRANSCRIPTIONS, "said.mp3", &[]).await.status, 200);
}

#[tokio::test]
async fn more_files_than_may_wait_are_told_when_to_come_back() {
    let config = SpeechConfig { max_queued: 0, threads: Some(1), ..SpeechConfig::default() };
    let server = Arc::new(server_of("tiny", config).await);
    let all = (0..8).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { ask(&server, TRANSCRIPTIONS, "said.flac", &[]).await })
    });
    let mut refused = 0;
    for answer in all.collect::<Vec<_>>() {
        let answer = answer.await.unwrap();
        if answer.status == 200 {
            continue;
        }
        let message = answer.error(429, "rate_limit_error", None);
        assert!(message.contains("1 files are waiting or transcribed, no more than 1 may"));
        assert!(answer.header("retry-after").is_some());
        refused += 1;
    }
    assert!((1..8).contains(&refused), "{refused}");
}

#[tokio::test]
async fn each_model_says_what_it_is_for() {
    let server = server().await;
    let list = server.client.get("/v1/models").await.json();
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["tiny", "org/alias", "whisper"]);
    let one = server.client.get("/v1/models/whisper").await.json();
    assert_eq!((&one["id"], &one["max_model_len"]), (&json!("whisper"), &json!(64)));
    let answer = server.client.chat(&chat(json!({"model": "whisper"}))).await;
    let message = answer.error(400, "invalid_request_error", Some("model"));
    assert!(message.contains("transcribes speech: ask /v1/audio/transcriptions"), "{message}");
    assert_eq!(server.client.chat(&chat(json!({}))).await.status, 200);
    // Without a model for speech the route says so.
    let without = Server::saying("hello").await;
    let answer = ask(&without, TRANSCRIPTIONS, "said.mp3", &[]).await;
    assert!(answer.error(400, "invalid_request_error", None).contains("--speech-model"));
}

#[tokio::test]
async fn a_server_that_only_transcribes_refuses_everything_else() {
    let parts = parts("tiny", SpeechConfig::default(), true);
    let mut setup = Setup { speech: Some(parts), ..Setup::default() };
    setup.config.served_model_names = vec!["whisper".to_owned()];
    setup.limits.generates = false;
    let script = say("hello");
    let server = Server::start(setup, move |_| script.clone()).await;
    let list = server.client.get("/v1/models").await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"] {
        let body = json!({"model": "whisper", "input": "x", "prompt": "x", "messages": []});
        let message =
            server.client.post(path, &body).await.error(400, "invalid_request_error", None);
        assert!(message.contains("only transcribes speech"), "{path}: {message}");
    }
    assert_eq!(ask(&server, TRANSCRIPTIONS, "said.mp3", &[]).await.status, 200);
}

#[tokio::test]
async fn metrics_count_requests_and_sound() {
    let config = SpeechConfig { threads: Some(1), ..SpeechConfig::default() };
    let server = server_of("tiny", config).await;
    transcribe(&server, &[]).await;
    ask(&server, TRANSLATIONS, "said.mp3", &[("language", "x")]).await;
    let text = server.client.get("/metrics").await.text;
    for labels in
        [["task=\"transcribe\"", "outcome=\"ok\""], ["task=\"translate\"", "outcome=\"refused\""]]
    {
        let found = text.lines().any(|line| {
            line.starts_with("sconce:speech_requests_total{")
                && labels.iter().all(|label| line.contains(label))
                && line.ends_with(" 1")
        });
        assert!(found, "{labels:?}: {text}");
    }
    assert!(text.contains("sconce:speech_files"), "{text}");
}

#[tokio::test]
async fn a_drain_waits_for_transcripts() {
    let mut server = server().await;
    let client = super::client::Client::new(server.client.address);
    let file = std::fs::read(fixtures().join("said.flac")).unwrap();
    let head = "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
    let body = [head.as_bytes(), &file, b"\r\n--x--\r\n"].concat();
    let asked = tokio::spawn(async move {
        client.post_bytes(TRANSCRIPTIONS, "multipart/form-data; boundary=x", body).await
    });
    while !server
        .client
        .get("/metrics")
        .await
        .text
        .lines()
        .any(|line| line.starts_with("sconce:speech_files") && line.ends_with(" 1"))
    {
        if asked.is_finished() {
            break;
        }
        tokio::task::yield_now().await;
    }
    server.stop();
    let report = server.stopped().await;
    assert_eq!(report.cut, 0);
    assert_eq!(asked.await.unwrap().status, 200);
}
