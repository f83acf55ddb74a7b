//! Keys of a file: what each opens, how much of it, what it has used, and that a file is read again.

use std::time::Duration;

use sconce::config::ServerConfig;
use sconce::http::state::keys::file::{digest, hex};
use sconce::store::{Store, StorePlace};
use serde_json::{Value, json};

use super::client::Answer;
use super::fake_engine::Script;
use super::fixture::{Server, Setup, bytes, chat, completion, say};

/// A server with a key file.
struct Bench {
    server: Server,
    /// Its folder.
    _folder: tempfile::TempDir,
}

fn entry(name: &str, more: &str) -> String {
    let key = format!("sk-{name}");
    let hex = hex(&digest(key.as_bytes()));
    format!("[[keys]]\nname = \"{name}\"\nsha256 = \"{hex}\"\n{more}\n")
}

impl Bench {
    async fn start(file: &str, choose: fn() -> Script) -> Self {
        Self::of(Setup::default(), file, choose).await
    }

    async fn of(mut setup: Setup, file: &str, choose: fn() -> Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, file).unwrap();
        setup.config = ServerConfig { api_key_file: Some(path), ..setup.config };
        let server = Server::start(setup, move |_| choose()).await;
        Self { server, _folder: folder }
    }

    async fn post(&self, name: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer sk-{name}");
        self.server.client.post_with(path, body, &[("authorization", bearer.as_str())]).await
    }

    async fn get(&self, name: &str, path: &str) -> Answer {
        let bearer = format!("Bearer sk-{name}");
        self.server.client.get_with(path, &[("authorization", bearer.as_str())]).await
    }

    async fn complete(&self, name: &str, fields: Value) -> Answer {
        self.post(name, "/v1/completions", &completion(fields)).await
    }
}

fn text(answer: &Answer, name: &str) -> String {
    answer.header(name).unwrap_or_else(|| panic!("no {name}: {:?}", answer.headers)).to_owned()
}

#[tokio::test]
async fn a_scope_opens_its_routes_and_no_others() {
    let file = [
        entry("infer", "scopes = [\"infer\"]"),
        entry("vectors", "scopes = [\"embeddings\"]"),
        entry("batches", "scopes = [\"batches\"]"),
        entry("metrics", "scopes = [\"metrics\"]"),
    ];
    let bench = Bench::start(&file.concat(), || say("x")).await;
    let open = async |name: &str| {
        let completed = bench.complete(name, json!({})).await.status;
        let embedded = json!({"model": "tiny", "input": "x"});
        let embedded = bench.post(name, "/v1/embeddings", &embedded).await.status;
        let stored = bench.get(name, "/v1/batches").await.status;
        let watched = bench.get(name, "/metrics").await.status;
        let load = bench.post(name, "/v1/load_lora_adapter", &json!({})).await;
        load.error(403, "permission_error", None);
        assert_eq!(bench.get(name, "/v1/models").await.status, 200, "any key");
        assert_eq!(bench.get(name, "/v1/usage").await.status, 200, "any key");
        [completed, embedded, stored, watched]
    };
    assert_eq!(open("infer").await, [200, 403, 403, 403]);
    assert_eq!(open("vectors").await, [403, 200, 403, 403]);
    assert_eq!(open("batches").await, [403, 403, 200, 403]);
    assert_eq!(open("metrics").await, [403, 403, 403, 200]);
    bench.complete("nobody", json!({})).await.error(401, "authentication_error", None);
    let refused = bench.complete("metrics", json!({})).await;
    let message = refused.error(403, "permission_error", None);
    assert!(message.contains("the scope infer"), "{message}");
    let metrics = bench.get("metrics", "/metrics").await.text;
    let line = "sconce:key_refusals_total{key=\"infer\",reason=\"forbidden\"";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_model_that_is_not_allowed_is_refused_and_not_listed() {
    let file =
        [entry("one", "models = [\"tiny\"]"), entry("none", "models = []"), entry("all", "")];
    let bench = Bench::start(&file.concat(), || say("x")).await;
    let listed = async |name: &str, path: &str, list: &str, id: &str| {
        let models = bench.get(name, path).await.json();
        let names = models[list].as_array().unwrap().iter();
        names.map(|model| model[id].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (path, list, id) in [("/v1/models", "data", "id"), ("/api/tags", "models", "name")] {
        assert_eq!(listed("one", path, list, id).await, ["tiny"]);
        assert_eq!(listed("none", path, list, id).await, [""; 0]);
        assert_eq!(listed("all", path, list, id).await, ["tiny", "org/alias"]);
    }
    assert_eq!(bench.complete("one", json!({})).await.status, 200);
    for body in [json!({"model": "org/alias"}), json!({"model": "org/alias", "stream": true})] {
        let refused = bench.complete("one", body).await;
        let message = refused.error(403, "permission_error", Some("model"));
        assert!(message.contains("org/alias"), "{message}");
        assert_eq!(refused.json()["error"]["code"], "model_not_allowed");
    }
    let unknown = bench.complete("one", json!({"model": "other"})).await;
    unknown.error(404, "invalid_request_error", Some("model"));
    // One that names none asks for the model all the same.
    let silent = json!({"inputs": "x"});
    assert_eq!(bench.post("none", "/embed", &silent).await.status, 403);
    assert_eq!(bench.post("all", "/embed", &silent).await.status, 200);
    assert_eq!(bench.get("one", "/v1/models/org/alias").await.status, 403);
    let shown = bench.post("one", "/api/show", &json!({"model": "org/alias:latest"})).await;
    assert_eq!(shown.status, 403, "{}", shown.text);
}

#[tokio::test]
async fn limits_answer_429_with_what_is_left_and_when_there_is_more() {
    let file = [
        entry("few", "requests_per_minute = 2"),
        entry("short", "tokens_per_minute = 20"),
        entry("free", ""),
    ];
    let bench = Bench::start(&file.concat(), || say("abcdefgh")).await;
    let first = bench.complete("few", json!({})).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(text(&first, "x-ratelimit-limit-requests"), "2");
    assert_eq!(text(&first, "x-ratelimit-remaining-requests"), "1");
    assert!(text(&first, "x-ratelimit-reset-requests").ends_with('s'));
    assert_eq!(first.header("x-ratelimit-limit-tokens"), None);
    assert_eq!(bench.complete("few", json!({})).await.status, 200);
    let third = bench.complete("few", json!({})).await;
    let message = third.error(429, "requests", None);
    assert!(message.contains("requests per min (RPM): Limit 2"), "{message}");
    assert_eq!(third.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(text(&third, "x-ratelimit-remaining-requests"), "0");
    let seconds: u64 = text(&third, "retry-after").parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    let milliseconds: u64 = text(&third, "retry-after-ms").parse().unwrap();
    assert!((1..=30_000).contains(&milliseconds), "{milliseconds}");
    // Two of the prompt and nine of the answer, of twenty.
    let first = bench.complete("short", json!({"max_tokens": 8})).await;
    let total = first.json()["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(text(&first, "x-ratelimit-limit-tokens"), "20");
    let second = bench.complete("short", json!({"max_tokens": 8})).await;
    assert_eq!(second.status, 200, "what an answer costs is known when it is there");
    assert!(total * 2 >= 20, "{total}");
    let third = bench.complete("short", json!({})).await;
    let message = third.error(429, "tokens", None);
    assert!(message.contains("tokens per min (TPM): Limit 20"), "{message}");
    let free = bench.complete("free", json!({})).await;
    assert_eq!((free.status, free.header("x-ratelimit-limit-requests")), (200, None));
    // In each protocol's own shape.
    let body =
        json!({"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]});
    let refused = bench.post("few", "/v1/messages", &body).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["type"]),
        (429, &json!("rate_limit_error"))
    );
}

#[tokio::test]
async fn a_prompt_that_is_too_long_for_now_takes_no_place() {
    let file = entry("short", "tokens_per_minute = 40");
    let bench = Bench::start(&file, || say("x")).await;
    assert_eq!(bench.complete("short", json!({"prompt": "x".repeat(30)})).await.status, 200);
    let refused = bench.complete("short", json!({"prompt": "x".repeat(30)})).await;
    let message = refused.error(429, "tokens", None);
    assert!(message.contains("Requested 30"), "{message}");
    assert_eq!(bench.complete("short", json!({"prompt": "xx"})).await.status, 200);
    let load = bench.server.client.get_with("/load", &[("authorization", "Bearer sk-short")]).await;
    assert_eq!(load.status, 403);
}

#[tokio::test]
async fn no_more_requests_run_at_once_than_a_key_may() {
    let file = [entry("two", "max_concurrent = 2"), entry("free", "")].concat();
    let slow = || Script {
        tokens: bytes(&"ab".repeat(20)),
        delay: Duration::from_millis(10),
        ..Script::default()
    };
    let bench = Bench::start(&file, slow).await;
    let all = futures::future::join_all((0..6).map(|_| bench.complete("two", json!({})))).await;
    let answered = all.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(answered, 2);
    for refused in all.iter().filter(|answer| answer.status != 200) {
        let message = refused.error(429, "requests", None);
        assert!(message.contains("requests at once: Limit 2"), "{message}");
    }
    // Places are free again, of streams that were dropped, too.
    let body = completion(json!({"stream": true}));
    for _ in 0..3 {
        let mut socket = tokio::net::TcpStream::connect(bench.server.client.address).await.unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-two\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        tokio::io::AsyncWriteExt::write_all(&mut socket, head.as_bytes()).await.unwrap();
        super::client::read_until(&mut socket, "data: ").await;
    }
    bench.server.engine.wait_for_aborts(3).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(bench.complete("two", json!({})).await.status, 200);
}

/// Sums of usage by key: requests, prompt tokens, answer tokens.
fn sums(usage: &Value) -> std::collections::BTreeMap<String, [u64; 3]> {
    let mut sums = std::collections::BTreeMap::new();
    for bucket in usage["data"].as_array().unwrap() {
        for row in bucket["results"].as_array().unwrap() {
            let sum = sums.entry(row["key"].as_str().unwrap().to_owned()).or_insert([0; 3]);
            let names = ["num_model_requests", "input_tokens", "output_tokens"];
            for (sum, name) in sum.iter_mut().zip(names) {
                *sum += row[name].as_u64().unwrap();
            }
        }
    }
    sums
}

#[tokio::test]
async fn usage_adds_up_to_the_usage_of_answers() {
    let file = [entry("a", ""), entry("b", ""), entry("watch", "scopes = [\"metrics\"]")];
    let bench = Bench::start(&file.concat(), || say("abcdefgh")).await;
    let mut told = [[0; 3]; 2];
    let mut add = |which: usize, usage: &Value| {
        let count = |names: [&str; 2]| {
            names.iter().find_map(|name| usage[name].as_u64()).unwrap_or_default()
        };
        let [requests, input, output] = &mut told[which];
        *requests += 1;
        *input += count(["prompt_tokens", "input_tokens"]);
        *output += count(["completion_tokens", "output_tokens"]);
    };
    for (which, name) in ["a", "b"].into_iter().enumerate() {
        for fields in [json!({}), json!({"n": 3}), json!({"max_tokens": 2, "prompt": ["x", "yyy"]})]
        {
            add(which, &bench.complete(name, fields).await.json()["usage"]);
        }
        add(which, &bench.complete(name, json!({"stop": "c"})).await.json()["usage"]);
        let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
        let chunks = bench.post(name, "/v1/chat/completions", &chat(stream)).await.chunks();
        add(which, &chunks.last().unwrap()["usage"]);
        let message = json!({"model": "tiny", "max_tokens": 4,
            "messages": [{"role": "user", "content": "x"}]});
        add(which, &bench.post(name, "/v1/messages", &message).await.json()["usage"]);
        let response = json!({"model": "tiny", "input": "x", "max_output_tokens": 16});
        add(which, &bench.post(name, "/v1/responses", &response).await.json()["usage"]);
        let texts = json!({"model": "org/alias", "input": ["one", "three"]});
        add(which, &bench.post(name, "/v1/embeddings", &texts).await.json()["usage"]);
        if which == 0 {
            bench.complete(name, json!({"max_tokens": -1})).await.error(
                400,
                "invalid_request_error",
                Some("max_tokens"),
            );
        }
    }
    let usage = bench.get("watch", "/v1/usage?bucket_width=1h").await.json();
    let expected = [("a".to_owned(), told[0]), ("b".to_owned(), told[1])];
    assert_eq!(sums(&usage), expected.clone().into(), "{usage}");
    let daily = bench.get("watch", "/v1/usage").await.json();
    assert_eq!(sums(&daily), expected.into());
    let models: Vec<&Value> =
        daily["data"][0]["results"].as_array().unwrap().iter().map(|row| &row["model"]).collect();
    assert_eq!(models, ["org/alias", "tiny", "org/alias", "tiny"]);
    // A key sees its own.
    let own = sums(&bench.get("b", "/v1/usage").await.json());
    assert_eq!(own, [("b".to_owned(), told[1])].into());
    bench.get("b", "/v1/usage?key=a").await.error(403, "permission_error", None);
    let of_one = sums(&bench.get("watch", "/v1/usage?key=a").await.json());
    assert_eq!(of_one, [("a".to_owned(), told[0])].into());
    let past = bench.get("watch", "/v1/usage?start_time=0&end_time=3600").await.json();
    assert_eq!(past["data"], json!([]));
    let wrong = bench.get("watch", "/v1/usage?bucket_width=1m").await;
    wrong.error(400, "invalid_request_error", Some("bucket_width"));
    // Metrics say the same.
    let metrics = bench.get("watch", "/metrics").await.text;
    for (name, place) in [("requests", 0), ("prompt_tokens", 1), ("generation_tokens", 2)] {
        let value = told[0][place];
        let line = format!(
            "sconce:key_{name}_total{{key=\"a\",model_name=\"tiny\",engine=\"0\"}} {value}"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn stored_requests_are_their_keys_usage() {
    let file = [entry("a", "tokens_per_minute = 1000"), entry("b", "")].concat();
    let store = Store::open(&StorePlace::Memory, 64 << 20).unwrap();
    let setup = Setup { store: Some(store), ..Setup::default() };
    let bench = Bench::of(setup, &file, || say("abcdefgh")).await;
    let body = json!({"model": "tiny", "input": "x", "background": true});
    let begun = bench.post("a", "/v1/responses", &body).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    let path = format!("/v1/responses/{}", begun.json()["id"].as_str().unwrap());
    let mut response = Value::Null;
    for _ in 0..300 {
        response = bench.get("a", &path).await.json();
        if response["status"] == "completed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let usage = &response["usage"];
    let expected = ["input_tokens", "output_tokens"].map(|name| usage[name].as_u64().unwrap());
    let used = sums(&bench.get("a", "/v1/usage").await.json());
    assert_eq!(used["a"], [1, expected[0], expected[1]]);
    assert_eq!(bench.get("b", &path).await.status, 404, "it is another key's");
}
