//! A tiny model that hears, by the real program: what is sent in which form doesn't matter, a sound that was heard
//! is in the cache, and refusals say why.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::server::Server;
use crate::parity::sounds::wav;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");

fn server(model: &str, flags: &[&str]) -> Server {
    let model = format!("{FIXTURES}/{model}");
    let memory = ["--kv-cache-memory", "16MiB", "--limit-mm-per-prompt", "audio=2"];
    let model = ["--model", &model, "--served-model-name", "tiny"];
    Server::start(&[&model[..], &memory, flags].concat())
}

fn sound(file: &[u8]) -> Value {
    json!({"type": "input_audio", "input_audio": {"data": STANDARD.encode(file), "format": "wav"}})
}

fn text() -> Value {
    json!({"type": "text", "text": "What is it?"})
}

fn chat(parts: &[Value]) -> Value {
    json!({"model": "tiny", "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "user", "content": parts}]})
}

async fn said(server: &Server, parts: &[Value]) -> Value {
    server.post("/v1/chat/completions", &chat(parts)).await
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn sounds_are_heard_in_every_form_and_once() {
    let server = server("sounds/qwen3_asr", &[]);
    let file = wav(80_000);
    let first = said(&server, &[sound(&file), text()]).await;
    assert_ne!(content(&first), content(&said(&server, &[sound(&wav(70_000)), text()]).await));
    assert_ne!(content(&first), content(&said(&server, &[text(), sound(&file)]).await));
    let url = format!("data:audio/wav;base64,{}", STANDARD.encode(&file));
    let url = json!({"type": "audio_url", "audio_url": {"url": url}});
    let again = said(&server, &[url, text()]).await;
    assert_eq!(content(&again), content(&first));
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() >= 64, "{again}");
}

#[tokio::test]
async fn a_template_that_knows_no_sounds_gets_them_in_its_texts() {
    let asked = [text(), sound(&wav(20_000))];
    for model in ["sounds/voxtral", "sounds/qwen2_audio"] {
        let usual = said(&server(model, &[]), &asked).await;
        let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content + '<|im_end|>' }}\n\
                        {% endfor %}<|im_start|>assistant\n{{ '' }}";
        let plain = said(&server(model, &["--chat-template", template]), &asked).await;
        assert_eq!(content(&plain), content(&usual), "{model}");
        assert_eq!(plain["usage"]["prompt_tokens"], usual["usage"]["prompt_tokens"]);
    }
}

#[tokio::test]
async fn sounds_that_can_not_be_heard_are_refused_by_name() {
    let server =
        server("sounds/qwen2_audio", &["--max-audio-seconds", "6", "--max-audio-size", "2MiB"]);
    let before = server.peak_memory();
    let refused = async |part: Value, reason: &str| {
        let answer = said(&server, &[part, text()]).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(reason), "{answer}");
        assert!(message.starts_with("messages[0].content[0]"), "{message}");
    };
    let part = |data: &str, format: &str| json!({"type": "input_audio", "input_audio": {"data": data, "format": format}});
    refused(part("!", "wav"), "no base64").await;
    refused(part("", "wav"), "the file is empty").await;
    refused(part("AAAA", "midi"), "must be one of wav, mp3").await;
    refused(part(&STANDARD.encode([7; 5000]), "mp3"), "no format that is read here").await;
    refused(json!({"type": "input_audio", "input_audio": {"data": "AAAA"}}), "format").await;
    refused(
        json!({"type": "audio_url", "audio_url": {"url": "https://a.example/b.wav"}}),
        "data URLs",
    )
    .await;
    refused(sound(&wav(96_001)), "at most 6 s").await;
    refused(sound(&wav(1000)), "at least 0.1 s").await;
    refused(sound(&wav(1 << 20)), "at most 2097152 are taken").await;
    // Ten hours of silence in a file of a few kilobytes.
    refused(sound(&hours_of_silence()), "at most 6 s").await;
    let three = vec![sound(&wav(16_000)); 3];
    let answer = said(&server, &three).await;
    assert_eq!(answer["error"]["code"], "too_many_sounds", "{answer}");
    if let (Some(before), Some(after)) = (before, server.peak_memory()) {
        assert!(after < before + (64 << 20), "{before} {after}");
    }
    let small = self::server("sounds/voxtral", &["--max-model-len", "64"]);
    let answer = said(&small, &[sound(&wav(100_000)), text()]).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("more than 64 tokens"), "{answer}");
}

#[tokio::test]
async fn a_model_without_ears_says_so_and_what_transcribes() {
    let server = Server::start(&["--served-model-name", "tiny"]);
    let answer = said(&server, &[sound(&wav(16_000))]).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    for part in ["\"tiny\" doesn't hear", "/v1/audio/transcriptions", "input_audio"] {
        assert!(message.contains(part), "{answer}");
    }
}

/// A FLAC file of 550 constant frames, each of which stands for 65 535 samples of silence, 1000 a second.
fn hours_of_silence() -> Vec<u8> {
    let mut file = b"fLaC\x80\0\0\x22\xff\xff\xff\xff\0\0\0\0\0\0".to_vec();
    // 1000 samples a second, one channel of 16 bits.
    file.extend([0x00, 0x3e, 0x80, 0xf0, 0, 0, 0, 0]);
    file.extend([0; 16]);
    for number in 0..550u16 {
        let [high, low] = [number >> 6, number & 0x3f].map(|bits| u8::try_from(bits).unwrap());
        let mut frame = vec![0xff, 0xf8, 0x70, 0x08];
        frame.extend(if high < 2 {
            vec![low | (high << 6)]
        } else {
            vec![0xc0 | high, 0x80 | low]
        });
        frame.extend([0xff, 0xfe]);
        frame.push(crc(&frame, 8, 0x07).to_be_bytes()[1]);
        // A constant subframe: zero.
        frame.extend([0, 0, 0]);
        frame.extend(crc(&frame, 16, 0x8005).to_be_bytes());
        file.extend(frame);
    }
    file
}

/// A checksum of 8 or 16 bits.
fn crc(bytes: &[u8], bits: u32, polynomial: u32) -> u16 {
    let mut state = 0u32;
    for byte in bytes {
        state ^= u32::from(*byte) << (bits - 8);
        for _ in 0..8 {
            state <<= 1;
            if (state >> bits) & 1 == 1 {
                state ^= (1 << bits) | polynomial;
            }
        }
    }
    u16::try_from(state).unwrap()
}
