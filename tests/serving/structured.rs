//! Answers that must be of a form, by the real engine at a high temperature: whatever the model
//! would rather say, the form is kept.

use futures::future::join_all;
use serde_json::{Value, json};

use super::server::Server;

async fn chat(server: &Server, fields: Value) -> Value {
    let mut body = json!({
        "model": "sconce-demo", "temperature": 1.5, "max_tokens": 400,
        "messages": [{"role": "user", "content": "Tell me about Ada, who is 36."}],
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    server.post("/v1/chat/completions", &body).await
}

fn content(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{answer}");
    choice["message"]["content"].as_str().unwrap()
}

fn person() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "likes"],
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "likes": {"type": "array", "maxItems": 3, "items": {"enum": ["tea", "ships", "é"]}},
        },
    })
}

fn format(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}})
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_kept_alone_and_in_company() {
    let server = Server::start(&[]);
    let validator = jsonschema::validator_for(&person()).unwrap();
    let ask =
        |seed: u64| chat(&server, json!({"seed": seed, "response_format": format(&person())}));
    let mut alone = Vec::new();
    for seed in 0..6 {
        let answer = ask(seed).await;
        let value: Value = serde_json::from_str(content(&answer)).unwrap();
        assert!(validator.is_valid(&value), "{value}");
        alone.push(content(&answer).to_owned());
    }
    let others = join_all((0..6).map(|seed| chat(&server, json!({"seed": seed}))));
    let (together, _) = futures::join!(join_all((0..6).map(ask)), others);
    let together: Vec<&str> = together.iter().map(content).collect();
    assert_eq!(together, alone);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_notation_is_kept() {
    let server = Server::start(&[]);
    let lark = "start: GREETING \", \" NAME\nGREETING: \"hi\" | \"ho\"\nNAME: /[a-z]{2,6}/";
    let gbnf = "root ::= (\"a\" | \"b\"){2,4} end\nend ::= \"!\"";
    let tag = json!({"triggers": ["<n>"],
        "structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}]});
    let cases = [
        (json!({"regex": "[0-9]{3}-[a-f]{2}"}), "^[0-9]{3}-[a-f]{2}$"),
        (json!({"choice": ["red", "green", "dark green"]}), "^(red|green|dark green)$"),
        (json!({"grammar": lark}), "^h[io], [a-z]{2,6}$"),
        (json!({"grammar": gbnf}), "^[ab]{2,4}!$"),
        (json!({"json": {"type": "boolean"}}), "^(true|false)$"),
        (json!({"json_object": true}), r"(?s)^\{.*\}$"),
        (json!({"structural_tag": tag}), "(?s)^.*$"),
    ];
    for (asked, expected) in cases {
        let pattern = regex::Regex::new(expected).unwrap();
        for seed in 0..3 {
            let fields = json!({"seed": seed, "temperature": 0.9, "structured_outputs": asked});
            let answer = chat(&server, fields).await;
            if answer["choices"][0]["finish_reason"] == "length" {
                // Free text and free objects may go on for long.
                assert!(asked.get("json_object").or(asked.get("structural_tag")).is_some());
                continue;
            }
            assert!(pattern.is_match(content(&answer)), "{asked}: {:?}", content(&answer));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_logprobs_say_the_same_as_whole_answers() {
    let server = Server::start(&[]);
    let fields = json!({"seed": 3, "response_format": format(&person())});
    let whole = chat(&server, fields.clone()).await;
    let mut streamed = fields.clone();
    streamed["prompt"] = json!("Once");
    streamed["model"] = json!("sconce-demo");
    streamed["stream"] = json!(true);
    streamed["max_tokens"] = json!(300);
    let mut text = String::new();
    let mut frames = server.stream(&streamed).await;
    while let Some(chunk) = frames.next().await {
        text.push_str(chunk["choices"][0]["text"].as_str().unwrap());
    }
    streamed["stream"] = json!(false);
    let completion = server.post("/v1/completions", &streamed).await;
    assert_eq!(completion["choices"][0]["text"], text.as_str());
    assert!(serde_json::from_str::<Value>(&text).unwrap()["age"].is_u64());
    let mut told = fields;
    told["logprobs"] = json!(true);
    let told = chat(&server, told).await;
    // Without forced tokens the text may be cut into others; it is valid all the same.
    let value: Value = serde_json::from_str(content(&told)).unwrap();
    assert!(jsonschema::is_valid(&person(), &value));
    let entries = told["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len() as u64, told["usage"]["completion_tokens"].as_u64().unwrap());
    assert!(content(&whole).starts_with('{'));
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_called_where_the_choice_says_so() {
    let server = Server::start(&[]);
    let weather = json!({"type": "object", "additionalProperties": false,
        "required": ["city", "days"], "properties": {"city": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}}});
    let time = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tools = json!([
        {"type": "function", "function": {"name": "weather", "parameters": weather}},
        {"type": "function", "function": {"name": "time", "parameters": time}},
    ]);
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [{"type": "function", "function": {"name": "time"}}]}});
    for (choice, expected, reason) in [
        (json!("required"), &["weather", "time"][..], "tool_calls"),
        (named, &["weather"], "stop"),
        (allowed, &["time"], "tool_calls"),
    ] {
        for seed in 0..3 {
            let fields = json!({"seed": seed, "tools": tools, "tool_choice": choice,
                "parallel_tool_calls": false, "temperature": 1.0});
            let answer = chat(&server, fields).await;
            let message = &answer["choices"][0]["message"];
            assert_eq!(answer["choices"][0]["finish_reason"], reason, "{answer}");
            assert_eq!(message["content"], Value::Null);
            let function = &message["tool_calls"][0]["function"];
            let name = function["name"].as_str().unwrap();
            assert!(expected.contains(&name), "{answer}");
            let arguments: Value =
                serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
            let schema = if name == "weather" { &weather } else { &time };
            assert!(jsonschema::is_valid(schema, &arguments), "{arguments}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_form_and_calls_may_be_asked_for_together() {
    let server = Server::start(&[]);
    let tools = json!([{"type": "function", "function": {"name": "weather", "strict": true,
        "parameters": {"type": "object", "additionalProperties": false, "required": ["days"],
            "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}]);
    let opener = server.post("/tokenize", &json!({"prompt": "<tool_call>"})).await;
    let [opener] = &opener["tokens"].as_array().unwrap()[..] else { panic!("{opener}") };
    for seed in 0..8 {
        let calls = seed % 2 == 0;
        let bias = if calls { 100 } else { -100 };
        let fields = json!({"seed": seed, "tools": tools, "response_format": format(&person()),
            "logit_bias": {opener.to_string(): bias}});
        let answer = chat(&server, fields).await;
        if calls {
            let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
            let arguments: Value =
                serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{answer}");
        } else {
            let value: Value = serde_json::from_str(content(&answer)).unwrap();
            assert!(jsonschema::is_valid(&person(), &value), "{value}");
        }
    }
    let tags = json!({"structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<a>"]});
    let fields = json!({"tools": tools, "structured_outputs": {"structural_tag": tags}});
    let refused = chat(&server, fields).await;
    assert_eq!(refused["error"]["param"], "structured_outputs.structural_tag", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_refused_by_name() {
    let server = Server::start(&[]);
    let schema = |schema: Value| json!({"response_format": format(&schema)});
    let structured = |value: Value| json!({"structured_outputs": value});
    let schema_param = "response_format.json_schema.schema";
    let deep = (0..90).fold(json!({}), |inner, _| json!({"items": inner}));
    for (fields, param, mentions) in [
        (schema(json!({"type": "array", "uniqueItems": true})), schema_param, "uniqueItems"),
        (schema(json!({"type": "strin"})), schema_param, "strin"),
        (schema(deep), schema_param, "nest"),
        (json!({"response_format": {"type": "yaml"}}), "response_format", "yaml"),
        (structured(json!({"regex": "(a"})), "structured_outputs.regex", ""),
        (structured(json!({"regex": "a", "json": {}})), "structured_outputs", "exactly one"),
        (structured(json!({"grammar": "start: x"})), "structured_outputs.grammar", ""),
        (structured(json!({"choice": [1]})), "structured_outputs.choice", "list of strings"),
        (structured(json!({"regex": "(?=a)b"})), "structured_outputs.regex", ""),
        (
            json!({"structured_outputs": {"regex": "a"}, "ignore_eos": true}),
            "ignore_eos",
            "grammar",
        ),
    ] {
        let began = std::time::Instant::now();
        let answer = chat(&server, fields.clone()).await;
        let error = &answer["error"];
        assert_eq!(error["param"], param, "{answer}");
        assert!(error["message"].as_str().unwrap().contains(mentions), "{answer}");
        assert!(began.elapsed().as_secs() < 30, "{param}");
    }
    server.assert_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_custom_tools_follow_their_grammars() {
    let server = Server::start(&[]);
    let lines = "start: \"*** Begin\" LF line{1,3} \"*** End\"\nline: (\"+\" | \"-\") /[ -~]{0,12}/ LF\n\
                 %import common.LF";
    let nested = "start: \"[\" start \"]\" | /[ab\"\\n]{1,2}/";
    let cases = [
        ("lark", lines, "^\\*\\*\\* Begin\n([+-][ -~]{0,12}\n){1,3}\\*\\*\\* End$"),
        ("lark", nested, "^\\[*[ab\"\n]{1,2}\\]*$"),
        ("regex", "[a-c\"]{2}\\n\\\\", "^[a-c\"]{2}\n\\\\$"),
    ];
    for (syntax, definition, expected) in cases {
        let pattern = regex::Regex::new(expected).unwrap();
        for temperature in [0.0, 1.0, 2.0] {
            let tool = json!({"type": "custom", "name": "edit", "description": "Edits.",
                "format": {"type": "grammar", "syntax": syntax, "definition": definition}});
            let body = json!({"model": "sconce-demo", "input": "Edit it.", "tools": [tool],
                "tool_choice": "required", "parallel_tool_calls": false,
                "temperature": temperature, "max_output_tokens": 600});
            let answer = server.post("/v1/responses", &body).await;
            let call = &answer["output"][0];
            assert_eq!(call["type"], "custom_tool_call", "{answer}");
            if answer["status"] == "incomplete" {
                assert_eq!(definition, nested, "only brackets can go on for ever: {answer}");
                continue;
            }
            assert!(pattern.is_match(call["input"].as_str().unwrap()), "{definition}: {call}");
        }
    }
}
