//! Several models in one server: loaded on demand, in turns where they don't fit together, each alone with
//! its faults; and one model that sleeps.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};

use super::hybrids::with_tokenizer;
use super::server::Server;

/// A folder of the demo model under two names and of a hybrid.
fn models() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo/model");
    for name in ["story", "tale"] {
        copy(&demo, &folder.path().join(name));
    }
    copy(with_tokenizer().path(), &folder.path().join("hybrid"));
    folder
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn start(folder: &Path, arguments: &[&str]) -> Server {
    let own = ["--models", folder.to_str().unwrap(), "--kv-cache-memory", "8MiB"];
    Server::start(&[&own, &["--store", "memory", "--threads", "1"], arguments].concat())
}

fn body(model: &str, tokens: usize) -> Value {
    json!({
        "model": model, "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0.0,
        "ignore_eos": true, "return_token_ids": true,
    })
}

/// Status and JSON of an answer.
async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

async fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    send(reqwest::Client::new().post(format!("{}{path}", server.url)).json(body)).await
}

async fn get(server: &Server, path: &str) -> (u16, Value) {
    send(reqwest::Client::new().get(format!("{}{path}", server.url))).await
}

async fn complete(server: &Server, model: &str, tokens: usize) -> (u16, Value) {
    post(server, "/v1/completions", &body(model, tokens)).await
}

async fn status(server: &Server, model: &str) -> Value {
    let (_, list) = get(server, "/v1/models").await;
    let entries = list["data"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["id"] == model);
    entry.unwrap_or_else(|| panic!("{list}"))["status"].clone()
}

async fn wait_for(server: &Server, model: &str, state: &str) -> Value {
    for _ in 0..1200 {
        let status = status(server, model).await;
        if status["value"] == state {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{model} is not {state}: {}", status(server, model).await);
}

fn kill(process: &Value) {
    let process = process.as_u64().expect("the process of a loaded model");
    let killed = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
    assert!(killed.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_loaded_by_the_requests_that_name_them() {
    let folder = models();
    let server = start(folder.path(), &[]);
    for name in ["hybrid", "story", "tale"] {
        assert_eq!(status(&server, name).await, json!({"value": "unloaded"}));
    }
    let alone = Server::start(&["--served-model-name", "story"]);
    let (_, expected) = complete(&alone, "story", 12).await;
    let (code, answer) = complete(&server, "story", 12).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["choices"], expected["choices"]);
    assert_eq!(status(&server, "story").await["value"], "loaded");
    assert_eq!(status(&server, "tale").await["value"], "unloaded");
    // Every protocol, and names in paths and queries.
    let chat = json!({
        "model": "tale", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}],
    });
    for path in ["/v1/chat/completions", "/chat/completions", "/v1/messages", "/api/chat"] {
        let mut chat = chat.clone();
        if path == "/api/chat" {
            chat["stream"] = json!(false);
        }
        let (code, answer) = post(&server, path, &chat).await;
        assert_eq!((code, &answer["model"]), (200, &json!("tale")), "{path} {answer}");
    }
    let mut unnamed = body("", 4);
    unnamed.as_object_mut().unwrap().remove("model");
    for path in ["/v1/completions?model=story", "/upstream/story/v1/completions"] {
        let (code, answer) = post(&server, path, &unnamed).await;
        assert_eq!((code, &answer["model"]), (200, &json!("story")), "{path} {answer}");
    }
    let (code, answer) = post(&server, "/v1/completions", &unnamed).await;
    assert_eq!(code, 400);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("hybrid, story, tale"), "{answer}");
    let (code, answer) = complete(&server, "nobody", 4).await;
    assert_eq!((code, &answer["error"]["code"]), (404, &json!("model_not_found")));
    let (code, answer) = post(&server, "/api/chat", &json!({"model": "nobody"})).await;
    assert_eq!(code, 404);
    assert!(answer["error"].is_string(), "{answer}");
    // Metrics of both, each name once.
    let (_, metrics) = get(&server, "/metrics").await;
    let metrics = metrics.as_str().unwrap().to_owned();
    for name in ["story", "tale"] {
        let line = format!("vllm:num_requests_running{{model_name=\"{name}\"");
        assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE vllm:num_requests_running ").count(), 1);
    assert!(metrics.contains("sconce:model_loaded{model_name=\"hybrid\"} 0"));
    // Gone and back.
    let (code, answer) = post(&server, "/models/unload", &json!({"model": "tale"})).await;
    assert_eq!((code, answer), (200, json!({"success": true})));
    wait_for(&server, "tale", "unloaded").await;
    assert_eq!(complete(&server, "tale", 4).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ollamas_clients_see_what_is_loaded_and_say_how_long_it_stays() {
    let folder = models();
    let server = start(folder.path(), &[]);
    let names = |list: &Value| -> Vec<String> {
        let models = list["models"].as_array().unwrap_or_else(|| panic!("{list}")).iter();
        models.map(|model| model["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&get(&server, "/api/tags").await.1), ["hybrid", "story", "tale"]);
    assert!(names(&get(&server, "/api/ps").await.1).is_empty());
    // What a model is is known before it is loaded.
    let (code, shown) = post(&server, "/api/show", &json!({"model": "story"})).await;
    assert_eq!(code, 200);
    assert!(shown["template"].as_str().unwrap().contains("{%"), "{shown}");
    assert!(names(&get(&server, "/api/ps").await.1).is_empty());
    let ask = |keep: Value| {
        json!({
            "model": "story:latest", "prompt": "Once", "stream": false, "keep_alive": keep,
            "options": {"num_predict": 4},
        })
    };
    let (code, answer) = post(&server, "/api/generate", &ask(json!("1h"))).await;
    assert_eq!((code, &answer["done"]), (200, &json!(true)), "{answer}");
    let (_, loaded) = get(&server, "/api/ps").await;
    assert_eq!(names(&loaded), ["story"]);
    let until = loaded["models"][0]["expires_at"].as_str().unwrap();
    let until = chrono_seconds(until);
    assert!((3500..3700).contains(&until), "{until}");
    let (_, answer) = post(&server, "/api/generate", &ask(json!("soon"))).await;
    assert!(answer["error"].as_str().unwrap().contains("keep_alive"), "{answer}");
    // A request for nothing lets it go.
    let nothing = json!({"model": "story", "keep_alive": 0});
    let (code, answer) = post(&server, "/api/generate", &nothing).await;
    assert_eq!((code, &answer["done_reason"]), (200, &json!("unload")));
    wait_for(&server, "story", "unloaded").await;
    let (code, answer) = post(&server, "/api/pull", &json!({"model": "org/name"})).await;
    assert_eq!(code, 400);
    assert!(answer["error"].as_str().unwrap().contains("--models hub"), "{answer}");
}

/// Seconds from now to a time in RFC 3339 of today or tomorrow, in UTC.
fn chrono_seconds(text: &str) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let of_day = |text: &str| -> i64 {
        let parts: Vec<i64> = text.split(':').map(|part| part.parse().unwrap()).collect();
        parts[0] * 3600 + parts[1] * 60 + parts[2]
    };
    let (_, time) = text.split_once('T').unwrap();
    let at = of_day(&time[..8]);
    (at - now.as_secs().cast_signed() % 86_400).rem_euclid(86_400)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_that_do_not_fit_together_take_turns_and_all_are_answered() {
    let folder = models();
    let server = start(folder.path(), &["--models-max", "1", "--models-min-residency", "1"]);
    let server = &server;
    let begun = Instant::now();
    // Both are asked for all the time, by four clients each.
    let client = |model: &'static str| async move {
        let mut answered = 0;
        while begun.elapsed() < Duration::from_secs(12) {
            let (code, answer) = complete(server, model, 8).await;
            assert_eq!(code, 200, "{answer}");
            assert_eq!(answer["choices"][0]["token_ids"].as_array().unwrap().len(), 8);
            answered += 1;
        }
        answered
    };
    let clients = (0..8).map(|i| client(if i % 2 == 0 { "story" } else { "tale" }));
    let answered: Vec<usize> = join_all(clients).await;
    assert!(answered.iter().all(|count| *count > 0), "{answered:?}");
    let (_, metrics) = get(server, "/metrics").await;
    let loads = |model: &str| -> usize {
        let line = format!("sconce:model_loads_total{{model_name=\"{model}\"}} ");
        let line = metrics.as_str().unwrap().lines().find_map(|text| text.strip_prefix(&line));
        line.unwrap().parse().unwrap()
    };
    // They took turns, and did not drive each other out with every request.
    let (turns, all) = (loads("story") + loads("tale"), answered.iter().sum::<usize>());
    assert!((2..=26).contains(&turns) && turns * 2 < all, "{turns} turns, {all} answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_felt_by_its_own_requests_alone_and_starts_again() {
    let folder = models();
    let server = start(folder.path(), &[]);
    for model in ["story", "tale"] {
        assert_eq!(complete(&server, model, 4).await.0, 200);
    }
    let server = &server;
    let begun = Instant::now();
    let others = async {
        let mut answered = 0;
        while begun.elapsed() < Duration::from_secs(6) {
            let (code, answer) = complete(server, "tale", 8).await;
            assert_eq!(code, 200, "{answer}");
            answered += 1;
        }
        answered
    };
    let killed = async {
        let mut stream = body("story", 4000);
        stream["stream"] = json!(true);
        let url = format!("{}/v1/completions", server.url);
        // Asked before: the stream might end meanwhile.
        let process = status(server, "story").await["process"].clone();
        let response = reqwest::Client::new().post(url).json(&stream).send().await.unwrap();
        let mut bytes = response.bytes_stream();
        bytes.next().await.unwrap().unwrap();
        kill(&process);
        let mut rest = Vec::new();
        while let Some(part) = bytes.next().await {
            rest.extend(part.unwrap());
        }
        let rest = String::from_utf8(rest).unwrap();
        let last = rest.trim_end().rsplit("data: ").next().unwrap();
        let last: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{last}"));
        assert!(last["error"]["message"].as_str().unwrap().contains("story"), "{last}");
        // Until it has been started again its requests are told why there is no answer.
        let (code, answer) = complete(server, "story", 4).await;
        if code != 200 {
            assert_eq!(code, 503, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("signal"), "{answer}");
        }
        for _ in 0..100 {
            let (code, _) = complete(server, "story", 4).await;
            if code == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it did not come back: {}", status(server, "story").await);
    };
    let (answered, ()) = tokio::join!(others, killed);
    assert!(answered > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_can_not_be_loaded_says_why_and_others_answer() {
    let folder = models();
    let broken = folder.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("config.json"), "{\"architectures\": [\"NoSuchModel\"]}").unwrap();
    // Its header is good; that it has no tokenizer shows when it is loaded.
    std::fs::remove_file(folder.path().join("hybrid/tokenizer.json")).unwrap();
    let server = start(folder.path(), &[]);
    for (model, why) in [("broken", "safetensors"), ("hybrid", "tokenizer")] {
        let (code, answer) = complete(&server, model, 4).await;
        assert_eq!(code, 503, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(model) && message.contains(why), "{message}");
    }
    let failed = status(&server, "hybrid").await;
    assert_eq!((&failed["failed"], &failed["exit_code"]), (&json!(true), &json!(1)), "{failed}");
    // At once, with the time of the next try.
    let url = format!("{}/v1/completions", server.url);
    let request = reqwest::Client::new().post(url).json(&body("hybrid", 4));
    let response = request.send().await.unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert!(response.headers().contains_key("retry-after"));
    assert_eq!(complete(&server, "story", 4).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_its_request_along() {
    let folder = models();
    let server = start(folder.path(), &[]);
    let mut endless = body("story", 4000);
    endless["stream"] = json!(true);
    let url = format!("{}/v1/completions", server.url);
    let response = reqwest::Client::new().post(url).json(&endless).send().await.unwrap();
    let mut bytes = response.bytes_stream();
    bytes.next().await.unwrap().unwrap();
    assert_eq!(status(&server, "story").await["requests"]["running"], 1);
    drop(bytes);
    for _ in 0..400 {
        let (_, metrics) = get(&server, "/metrics?model=story").await;
        let line = "vllm:num_requests_running{model_name=\"story\",engine=\"0\"} 0";
        let idle = metrics.as_str().unwrap().contains(line);
        if idle && status(&server, "story").await["requests"]["running"] == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the request goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_aliases_pins_and_flags_and_is_read_again() {
    let folder = models();
    let list = folder.path().join("models.toml");
    let entry = |name: &str, rest: &str| {
        format!("[[model]]\nname = \"{name}\"\npath = \"story\"\n{rest}\n")
    };
    let pinned =
        entry("first", "aliases = [\"gpt-4o\"]\npin = true\nflags = { max-model-len = 64 }");
    std::fs::write(&list, pinned.clone() + &entry("second", "ttl = 1")).unwrap();
    let server = start(&list, &[]);
    wait_for(&server, "first", "loaded").await;
    let (code, answer) = complete(&server, "gpt-4o", 4).await;
    assert_eq!(code, 200, "{answer}");
    let (_, model) = get(&server, "/v1/models/first").await;
    assert_eq!((&model["max_model_len"], &model["pinned"]), (&json!(64), &json!(true)));
    assert_eq!(complete(&server, "second", 4).await.0, 200);
    // Its time without requests is over soon; the pinned one stays.
    wait_for(&server, "second", "sleeping").await;
    assert_eq!(status(&server, "first").await["value"], "loaded");
    std::fs::write(&list, pinned + &entry("third", "")).unwrap();
    let (_, models) = get(&server, "/models?reload=1").await;
    let ids: Vec<&Value> =
        models["data"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["first", "third"]);
    std::fs::write(&list, "[[model]]\nname = 5").unwrap();
    let (code, answer) = post(&server, "/v1/models/reload", &json!({})).await;
    assert_eq!(code, 400, "{answer}");
    assert_eq!(complete(&server, "third", 4).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_sleeps_without_requests_and_has_its_cache_when_it_wakes() {
    let disk = tempfile::tempdir().unwrap();
    let disk = disk.path().to_str().unwrap();
    let own = ["--sleep-idle-seconds", "2", "--served-model-name", "demo", "--kv-disk", disk];
    let server = Server::start(&own);
    let mut long = body("demo", 8);
    long["prompt"] = json!("There once lived a fox in a village. ".repeat(20));
    let (code, first) = post(&server, "/v1/completions", &long).await;
    assert_eq!(code, 200, "{first}");
    assert_eq!(get(&server, "/props").await.1["is_sleeping"], false);
    wait_for(&server, "demo", "sleeping").await;
    for path in ["/health", "/v1/models", "/metrics"] {
        assert_eq!(get(&server, path).await.0, 200, "{path}");
    }
    // None of these wakes it.
    assert_eq!(get(&server, "/props").await.1["is_sleeping"], true);
    assert_eq!(get(&server, "/is_sleeping").await.1, json!({"is_sleeping": true}));
    let (_, metrics) = get(&server, "/metrics").await;
    let tokens = "vllm:generation_tokens_total{model_name=\"demo\",engine=\"0\"} 8";
    assert!(metrics.as_str().unwrap().contains(tokens), "{metrics}");
    let (code, again) = post(&server, "/v1/completions", &long).await;
    assert_eq!(code, 200, "{again}");
    assert_eq!(again["choices"], first["choices"]);
    let cached = &again["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() > 100, "{again}");
    assert_eq!(get(&server, "/props").await.1["is_sleeping"], false);
    let (code, _) = post(&server, "/sleep", &json!({})).await;
    assert_eq!(code, 200);
    wait_for(&server, "demo", "sleeping").await;
    assert_eq!(post(&server, "/wake_up", &json!({})).await.0, 200);
    assert_eq!(status(&server, "demo").await["value"], "loaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_asked_for_before_anything_is_loaded() {
    let folder = models();
    let server = start(folder.path(), &["--api-key", "user", "--admin-api-key", "admin"]);
    let client = reqwest::Client::new();
    let url = format!("{}/v1/completions", server.url);
    let request = || client.post(&url).json(&body("story", 4));
    let (code, answer) = send(request()).await;
    assert_eq!((code, &answer["error"]["type"]), (401, &json!("authentication_error")));
    let list = client.get(format!("{}/v1/models", server.url)).bearer_auth("user");
    let (_, list) = send(list).await;
    assert!(
        list["data"].as_array().unwrap().iter().all(|one| one["status"]["value"] == "unloaded")
    );
    let (code, answer) = send(request().bearer_auth("user")).await;
    assert_eq!(code, 200, "{answer}");
    let pull = client.post(format!("{}/api/pull", server.url)).bearer_auth("user");
    assert_eq!(send(pull.json(&json!({"model": "a/b"}))).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_end_with_the_server() {
    for killed in [false, true] {
        let folder = models();
        let server = start(folder.path(), &[]);
        let mut processes = Vec::new();
        for model in ["story", "tale"] {
            assert_eq!(complete(&server, model, 4).await.0, 200);
            processes.push(status(&server, model).await["process"].as_u64().unwrap());
        }
        if killed {
            drop(server);
        } else {
            // What runs may end.
            let mut long = body("story", 200);
            long["stream"] = json!(true);
            let frames = server.stream(&long).await;
            server.terminate();
            assert_eq!(frames.token_ids().await.len(), 200);
            assert!(server.wait().success());
        }
        let running = |id: &u64| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
        };
        for _ in 0..400 {
            if !processes.iter().any(running) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert!(!processes.iter().any(running), "killed: {killed}");
    }
}
