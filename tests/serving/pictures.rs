//! A tiny model that sees, by the real program: the same answers by every protocol, and refusals that
//! say why.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::server::Server;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/pictures");
const QUESTION: &str = "What is it?";

fn server() -> Server {
    let model = format!("{FIXTURES}/qwen3_vl");
    let memory = ["--kv-cache-memory", "16MiB", "--limit-mm-per-prompt", "image=2"];
    Server::start(&[&["--model", &model, "--served-model-name", "tiny"], &memory[..]].concat())
}

fn picture(index: usize) -> String {
    STANDARD.encode(std::fs::read(format!("{FIXTURES}/{index}.png")).unwrap())
}

fn image(index: usize) -> Value {
    let url = format!("data:image/png;base64,{}", picture(index));
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn chat(parts: &[Value]) -> Value {
    json!({"model": "tiny", "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "user", "content": parts}]})
}

#[tokio::test]
async fn every_protocol_sees_the_same() {
    let server = server();
    let text = json!({"type": "text", "text": QUESTION});
    let said = |parts: Vec<Value>| {
        let server = &server;
        async move {
            let answer = server.post("/v1/chat/completions", &chat(&parts)).await;
            answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
        }
    };
    let expected = said(vec![image(0), text.clone()]).await;
    assert_ne!(expected, said(vec![image(1), text.clone()]).await);
    assert_ne!(expected, said(vec![text.clone(), image(0)]).await);

    let source = json!({"type": "base64", "media_type": "image/png", "data": picture(0)});
    let block = json!({"type": "image", "source": source});
    let message = server.post("/v1/messages", &chat(&[block, text])).await;
    assert_eq!(message["content"][0]["text"], expected);

    let url = format!("data:image/png;base64,{}", picture(0));
    let parts = json!([{"type": "input_image", "image_url": url, "detail": "high"},
        {"type": "input_text", "text": QUESTION}]);
    let asked = json!({"model": "tiny", "temperature": 0, "max_output_tokens": 12,
        "input": [{"role": "user", "content": parts}]});
    let response = server.post("/v1/responses", &asked).await;
    let output = response["output"].as_array().unwrap().last().unwrap();
    assert_eq!(output["content"][0]["text"], expected);

    let asked = json!({"model": "tiny", "stream": false,
        "options": {"temperature": 0, "num_predict": 12},
        "messages": [{"role": "user", "content": QUESTION, "images": [picture(0)]}]});
    let answer = server.post("/api/chat", &asked).await;
    assert_eq!(answer["message"]["content"], expected);
}

#[tokio::test]
async fn a_model_in_gguf_sees_with_the_projector_beside_it() {
    let files = tempfile::tempdir().unwrap();
    assert!(crate::parity::pictures_gguf::write("qwen3_vl", files.path()));
    let checkpoint = format!("{FIXTURES}/qwen3_vl");
    let start_at = |model: &str, flags: &[&str]| {
        // Parts of the projector are stored in f16 and f32, those of the checkpoint in bf16.
        let bits = ["--dtype", "f32", "--kv-cache-dtype", "f32", "--kv-cache-memory", "16MiB"];
        let model = ["--model", model, "--served-model-name", "tiny"];
        Server::start(&[&model[..], &bits, flags].concat())
    };
    let start = |flags: &[&str]| start_at(files.path().to_str().unwrap(), flags);
    let asked = chat(&[image(0), json!({"type": "text", "text": QUESTION})]);
    let expected = start_at(&checkpoint, &[]).post("/v1/chat/completions", &asked).await;
    let answer = start(&[]).post("/v1/chat/completions", &asked).await;
    assert_eq!(answer["choices"][0]["message"], expected["choices"][0]["message"], "{answer}");
    assert_eq!(answer["usage"]["prompt_tokens"], expected["usage"]["prompt_tokens"]);
    let blind = start(&["--no-mmproj"]).post("/v1/chat/completions", &asked).await;
    let message = blind["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("not supported, only text"), "{blind}");
    // A template that knows no parts.
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content + '<|im_end|>' }}\n\
                    {% endfor %}<|im_start|>assistant\n{{ '' }}";
    let plain = start(&["--chat-template", template]).post("/v1/chat/completions", &asked).await;
    assert_eq!(plain["choices"][0]["message"], expected["choices"][0]["message"], "{plain}");
}

/// DeepStack's features are added in several layers; Gemma 3's pictures are seen both ways.
#[tokio::test]
async fn several_ranks_see_what_one_process_sees() {
    for model in ["qwen3_vl", "gemma3"] {
        let checkpoint = format!("{FIXTURES}/{model}");
        let start = |flags: &[&str]| {
            let bits = ["--dtype", "f32", "--kv-cache-dtype", "f32", "--kv-cache-memory", "16MiB"];
            let model = ["--model", &checkpoint, "--served-model-name", "tiny"];
            Server::start(&[&model[..], &bits, flags].concat())
        };
        let (one, two) = (start(&[]), start(&["--tensor-parallel", "2"]));
        let text = || json!({"type": "text", "text": QUESTION});
        let questions = [
            vec![text()],
            vec![image(0), text()],
            vec![image(1), text(), image(2), image(0)],
            vec![image(1), text(), image(0), image(2)],
        ];
        let asked = questions.map(|parts| {
            let mut asked = chat(&parts);
            asked["logprobs"] = json!(true);
            asked
        });
        let mut answers = [Vec::new(), Vec::new()];
        for (server, answers) in [&one, &two].into_iter().zip(&mut answers) {
            for asked in &asked {
                answers.push(said(&server.post("/v1/chat/completions", asked).await));
            }
        }
        let [expected, alone] = answers;
        assert_ne!(expected[2].1, expected[3].1, "{model} sees no difference");
        for ((text, logprobs), (expected, theirs)) in alone.iter().zip(&expected) {
            assert_eq!(text, expected, "{model}");
            let off = logprobs.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-3, "{model}: {off}");
        }
        // Again, from the prefix cache and together: the same bits.
        let together = asked.iter().map(|asked| two.post("/v1/chat/completions", asked));
        let together = futures::future::join_all(together).await;
        assert_eq!(together.iter().map(said).collect::<Vec<_>>(), alone, "{model}");
    }
}

/// The text of an answer, and the log-probabilities of its tokens.
fn said(answer: &Value) -> (String, Vec<f64>) {
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let tokens = choice["logprobs"]["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
    (text.to_owned(), tokens.iter().map(|token| token["logprob"].as_f64().unwrap()).collect())
}

#[tokio::test]
async fn hostile_pictures_disturb_no_stream_beside_them() {
    let server = server();
    let text = json!({"type": "text", "text": QUESTION});
    let mut asked = chat(&[image(0), text.clone()]);
    asked["max_tokens"] = json!(200);
    asked["ignore_eos"] = json!(true);
    let alone = server.post("/v1/chat/completions", &asked).await;
    let before = server.peak_memory();
    let bombs = (0..24).map(|index| {
        let side = if index % 2 == 0 { 16_384u32 } else { 60_000 };
        let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        file.extend([side.to_be_bytes(), side.to_be_bytes()].concat());
        file.extend([8, 6, 0, 0, 0]);
        file.extend(crc32fast::hash(&file[12..]).to_be_bytes());
        // Data begin, of which as much is there as a request carries.
        file.extend((1u32 << 30).to_be_bytes());
        file.extend(b"IDAT");
        file.extend(std::iter::repeat_n(0, 1 << 16));
        let url = format!("data:image/png;base64,{}", STANDARD.encode(file));
        chat(&[json!({"type": "image_url", "image_url": {"url": url}}), text.clone()])
    });
    let bombs: Vec<Value> = bombs.collect();
    let refused = futures::future::join_all(
        bombs.iter().map(|bomb| server.post("/v1/chat/completions", bomb)),
    );
    let (beside, refused) = tokio::join!(server.post("/v1/chat/completions", &asked), refused);
    for body in refused {
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("pixels; at most 16384 a side"), "{body}");
    }
    assert_eq!(beside["choices"], alone["choices"]);
    if let (Some(before), Some(after)) = (before, server.peak_memory()) {
        // Each would be a gigabyte.
        assert!(after < before + (128 << 20), "{before} {after}");
    }
}

#[tokio::test]
async fn what_can_not_be_seen_is_refused_with_the_reason() {
    let server = server();
    let of_url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let cut = &picture(0)[..400];
    let cases = [
        (vec![of_url(&format!("data:image/png;base64,{cut}"))], "can't be decoded"),
        (vec![of_url("data:image/svg+xml;base64,PHN2Zy8+")], "no PNG, JPEG, WebP or GIF"),
        (vec![of_url("http://169.254.169.254/a.png")], "--allowed-media-domains"),
        (vec![of_url("file:///etc/passwd")], "only data, http and https"),
        (vec![image(0), image(1), image(2)], "at most 2"),
        (vec![image(0), json!({"type": "text", "text": "<|image_pad|>"})], "2 places for 1"),
    ];
    for (parts, reason) in cases {
        let body = server.post("/v1/chat/completions", &chat(&parts)).await;
        let error = &body["error"];
        let message = error["message"].as_str().unwrap_or_default();
        let refused = error["type"] == "invalid_request_error" && message.contains(reason);
        assert!(refused, "{reason}: {body}");
    }
}

#[tokio::test]
async fn text_stands_around_pictures_where_their_family_wants_it() {
    // Two line breaks, the begin, 16 tokens, the end, two line breaks; and six tiles in two rows, each of 4
    // tokens behind two that name it, a line break behind each row, another one, the whole and its end.
    for (model, tokens) in [("gemma3", 22), ("idefics3", 46)] {
        let path = format!("{FIXTURES}/{model}");
        let memory = ["--kv-cache-memory", "16MiB"];
        let own = ["--model", &path, "--served-model-name", "tiny"];
        let server = Server::start(&[&own[..], &memory[..]].concat());
        let text = json!({"type": "text", "text": QUESTION});
        let mut counts = Vec::new();
        for parts in [vec![text.clone()], vec![image(0), text.clone(), image(0)]] {
            let answer = server.post("/v1/chat/completions", &chat(&parts)).await;
            counts.push(answer["usage"]["prompt_tokens"].as_u64().unwrap());
        }
        assert_eq!(counts[1] - counts[0], 2 * tokens, "{model}");
        let own = if model == "gemma3" { "<image_soft_token>" } else { "<image>" };
        let named = json!({"type": "text", "text": own});
        let body = server.post("/v1/chat/completions", &chat(&[image(0), named])).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("that stands for"), "{model}: {body}");
    }
}
