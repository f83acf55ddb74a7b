//! Requests made to hurt: each gets a clear error (or an answer), memory stays bounded, and another
//! client's stream goes on saying what it says alone.
//!
//! With `--nocapture` it prints how long each took and that client's longest wait meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::server::Server;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
/// More memory than at the start, in bytes: bodies of 8 MB, their JSON and what is made of it.
const MOST_GROWTH: u64 = 2 << 30;

struct Attack {
    name: &'static str,
    path: &'static str,
    body: Vec<u8>,
    statuses: &'static [u16],
}

fn raw(name: &'static str, path: &'static str, body: impl Into<Vec<u8>>) -> Attack {
    Attack { name, path, body: body.into(), statuses: &[400] }
}

fn with(mut body: Value, fields: &Value) -> Vec<u8> {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn chat(name: &'static str, fields: &Value) -> Attack {
    let base = json!({"model": "sconce-demo", "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hi"}]});
    raw(name, CHAT, with(base, fields))
}

fn completion(name: &'static str, fields: &Value) -> Attack {
    let base = json!({"model": "sconce-demo", "max_tokens": 4, "prompt": "Hi"});
    raw(name, COMPLETIONS, with(base, fields))
}

fn schema(name: &'static str, schema: &Value) -> Attack {
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    chat(name, &json!({"response_format": format}))
}

fn structured(name: &'static str, fields: &Value) -> Attack {
    chat(name, &json!({"structured_outputs": fields}))
}

/// A body of the routes that call it so.
fn input(input: &Value) -> String {
    json!({"model": "sconce-demo", "input": input}).to_string()
}

impl Attack {
    /// It may also be served.
    fn or_served(self) -> Self {
        Self { statuses: &[200, 400], ..self }
    }

    fn with_status(self, statuses: &'static [u16]) -> Self {
        Self { statuses, ..self }
    }
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

fn bodies() -> Vec<Attack> {
    let head = r#"{"model":"sconce-demo","max_tokens":4,"messages":[{"role":"user","content":"#;
    let chat_of = |content: &str, rest: &str| format!("{head}{content}}}]{rest}}}");
    let invalid = [head.as_bytes(), b"\"\xff\xfe\"}]}"].concat();
    vec![
        raw("deep nesting", CHAT, chat_of(&nested(1_000_000), "")),
        raw("deep nesting of messages", "/v1/messages", chat_of(&nested(100_000), "")),
        raw("deep nesting of input", "/v1/responses", format!("{{\"input\":{}}}", nested(100_000))),
        raw("invalid UTF-8", CHAT, invalid),
        raw("NaN", CHAT, chat_of("\"a\"", ",\"temperature\":NaN")),
        raw("a number out of range", CHAT, chat_of("\"a\"", ",\"temperature\":1e999")),
        raw("duplicate keys", CHAT, chat_of("\"a\"", ",\"seed\":1,\"seed\":2")),
        raw("half a surrogate pair", CHAT, chat_of("\"\\ud800\"", "")),
        raw("half a body", CHAT, head),
        raw("too large a body", CHAT, chat_of(&format!("{:?}", "a".repeat(10_000_000)), ""))
            .with_status(&[413]),
    ]
}

fn sizes() -> Vec<Attack> {
    let word = "x".repeat(7_900_000);
    let message = json!({"role": "user", "content": "a"});
    let tool = |i| json!({"type": "function", "function": {"name": format!("f{i}")}});
    vec![
        chat("many messages", &json!({"messages": vec![message; 150_000]})),
        chat("many tools", &json!({"tools": (0..60_000).map(tool).collect::<Vec<_>>()})),
        chat("many stop strings", &json!({"stop": vec!["a"; 1_000_000]})),
        chat("many stop tokens", &json!({"stop_token_ids": vec![5; 1_000_000]})).or_served(),
        chat("a long stop string", &json!({"stop": "a".repeat(2_000_000)})).or_served(),
        completion("a long word", &json!({"prompt": word})),
        completion("many words", &json!({"prompt": "hello wor ".repeat(790_000)})),
        completion("many token ids", &json!({"prompt": vec![5; 2_000_000]})),
        completion("many prompts", &json!({"prompt": vec![[5]; 1_000_000]})),
        completion("many sequences", &json!({"prompt": vec!["a"; 1024], "n": 128})),
        raw("a long input", "/v1/responses", input(&json!(word))),
        raw("a long text to embed", "/v1/embeddings", input(&json!(word))),
        raw("many texts to embed", "/v1/embeddings", input(&json!(vec!["a"; 500_000]))),
        completion(
            "a wide search",
            &json!({"use_beam_search": true, "beam_width": 128, "max_tokens": 50,
                "stop_token_ids": (0..200).collect::<Vec<_>>()}),
        )
        .or_served(),
    ]
}

fn grammars() -> Vec<Attack> {
    let many = |count: usize| (0..count).map(|i| format!("v{i}")).collect::<Vec<_>>();
    let wide: serde_json::Map<String, Value> =
        many(50_000).into_iter().map(|name| (name, json!({"type": "string"}))).collect();
    let pairs: serde_json::Map<String, Value> = (0..30)
        .map(|i| {
            let next = json!({"$ref": format!("#/$defs/n{}", i + 1)});
            let both = json!({"type": "object", "properties": {"a": next, "b": next}});
            (format!("n{i}"), both)
        })
        .chain([("n30".to_owned(), json!({"type": "string"}))])
        .collect();
    let text = many(200_000).join("\" | \"");
    vec![
        structured("nested counts", &json!({"regex": "((a{1,1000}){1,1000}){1,1000}"})).or_served(),
        structured("an exploding regex", &json!({"regex": "(.*a.{24}){20}"})).or_served(),
        structured("many alternatives", &json!({"regex": "(a|b|c|d)*".repeat(500) + "(.*a.{30})"})),
        structured("deep groups", &json!({"regex": "(".repeat(100_000) + &")".repeat(100_000)})),
        structured("many choices", &json!({"choice": many(200_000)})),
        structured("a rule of itself", &json!({"grammar": "start: start"})),
        structured("an ambiguous rule", &json!({"grammar": "start: a*\na: a a | \"x\"?"}))
            .or_served(),
        structured("a long rule", &json!({"grammar": format!("root ::= \"{text}\"")})),
        schema("many values", &json!({"enum": many(300_000)})),
        schema("many properties", &json!({"type": "object", "properties": wide})),
        schema("pairs of pairs", &json!({"$ref": "#/$defs/n0", "$defs": pairs})).or_served(),
        schema("a schema of itself", &json!({"allOf": [{"$ref": "#"}]})),
        schema("a long array", &json!({"type": "array", "minItems": 1_000_000_000})),
        schema("a long string", &json!({"type": "string", "minLength": 100_000_000})),
    ]
}

fn templates() -> Vec<Attack> {
    let template = |name, source: String| chat(name, &json!({"chat_template": source}));
    let doubling = "{% set ns = namespace(s='x') %}{% for i in range(60) %}\
                    {% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}";
    let looping = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    let calling = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    vec![
        template("a template that loops", looping.to_owned()),
        template("a template that grows", doubling.to_owned()),
        template("a template that multiplies", "{{ 'x' * 999999999 }}".to_owned()),
        template("a template that calls itself", calling.to_owned()),
        template(
            "a deep template",
            format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000)),
        ),
        template("many conditions", "{% if true %}".repeat(20_000)),
    ]
}

/// What the other client sees.
struct Watch {
    rounds: usize,
    longest: Duration,
}

/// Streams the same answer again and again until it is told to stop.
async fn watch(
    server: &Server,
    expected: &[u64],
    stop: &AtomicBool,
    gap: &std::sync::Mutex<Duration>,
) -> Watch {
    let mut watch = Watch { rounds: 0, longest: Duration::ZERO };
    while !stop.load(Ordering::Relaxed) {
        let mut stream = server.stream(&story()).await;
        let (mut tokens, mut last) = (Vec::new(), Instant::now());
        while let Some(chunk) = stream.next().await {
            let waited = last.elapsed();
            last = Instant::now();
            watch.longest = watch.longest.max(waited);
            let mut gap = gap.lock().unwrap();
            *gap = waited.max(*gap);
            let ids = chunk["choices"][0]["token_ids"].as_array().into_iter().flatten();
            tokens.extend(ids.map(|id| id.as_u64().unwrap()));
        }
        assert_eq!(tokens, expected);
        watch.rounds += 1;
    }
    watch
}

fn story() -> Value {
    json!({"model": "sconce-demo", "prompt": "Once upon a time", "max_tokens": 300, "seed": 4,
        "ignore_eos": true, "stream": true, "return_token_ids": true})
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_hurt_nobody() {
    let server = Arc::new(Server::start(&["--trust-request-chat-template"]));
    let alone = server.stream(&story()).await.token_ids().await;
    let before = server.peak_memory();
    let stop = Arc::new(AtomicBool::new(false));
    let gap = Arc::new(std::sync::Mutex::new(Duration::ZERO));
    let watching = tokio::spawn({
        let (server, stop, gap) = (Arc::clone(&server), Arc::clone(&stop), Arc::clone(&gap));
        async move { watch(&server, &alone, &stop, &gap).await }
    });
    let client = reqwest::Client::builder().timeout(Duration::from_mins(2)).build().unwrap();
    for Attack { name, path, body, statuses } in
        [bodies(), sizes(), grammars(), templates()].into_iter().flatten()
    {
        *gap.lock().unwrap() = Duration::ZERO;
        let began = Instant::now();
        let request = client.post(format!("{}{path}", server.url)).body(body);
        let answer = request.header("content-type", "application/json").send().await;
        let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        let status = answer.status().as_u16();
        let answer: Value = answer.json().await.unwrap();
        let shown: String = answer["error"]["message"].to_string().chars().take(90).collect();
        let waited = *gap.lock().unwrap();
        let took = began.elapsed();
        let peak = server.peak_memory().unwrap_or_default() >> 20;
        eprintln!("{name:28} {status} {took:>8.2?} others {waited:>8.2?} {peak} MB {shown}");
        assert!(statuses.contains(&status), "{name}: {status} {shown}");
        assert!(status == 200 || answer["error"]["message"].as_str().is_some_and(|m| m.len() > 8));
    }
    stop.store(true, Ordering::Relaxed);
    let watch = watching.await.unwrap();
    eprintln!("the other client: {} answers, longest wait {:?}", watch.rounds, watch.longest);
    if let (Some(before), Some(after)) = (before, server.peak_memory()) {
        eprintln!("memory: {} MB, then {} MB", before >> 20, after >> 20);
        assert!(after - before < MOST_GROWTH, "{before} bytes, then {after}");
    }
    server.assert_idle().await;
}
