//! Requests to `/v1/messages`: what the template and the engine make of them, what is refused, and
//! that every refusal has Anthropic's shape.

use std::time::Duration;

use sconce::config::Parser;
use sconce::engine::output::EngineError;
use serde_json::{Value, json};

use super::client::read_until;
use super::fake_engine::Script;
use super::fixture::{Server, Setup, chat, endless, say};
use super::messages::{
    CALLS, PATH, PROMPT, both_ways, error, kinds, prompt_of, request, roomy, saying, tools,
};

const COUNT: &str = "/v1/messages/count_tokens";

#[tokio::test]
async fn fields_reach_the_engine() {
    let server = Server::saying("x").await;
    let fields = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 40, "max_tokens": 9,
        "min_p": 0.1, "repetition_penalty": 1.1, "frequency_penalty": -1.5,
        "presence_penalty": 2, "logit_bias": {"7": -100}, "seed": -3, "min_tokens": 1,
        "stop_token_ids": [5], "ignore_eos": true, "priority": -2, "cache_salt": "tenant"});
    assert_eq!(server.client.post(PATH, &request(fields)).await.status, 200);
    let asked = &server.engine.requests()[0];
    let sampling = &asked.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k), (0.5, 0.9, 40));
    assert_eq!((sampling.min_p, sampling.repetition_penalty), (0.1, 1.1));
    assert_eq!((sampling.frequency_penalty, sampling.presence_penalty), (-1.5, 2.0));
    assert_eq!((&sampling.logit_bias[..], sampling.logprobs), (&[(7, -100.0)][..], None));
    assert_eq!(sampling.seed, (-3i64).cast_unsigned());
    assert_eq!((asked.stop.max_tokens, asked.stop.min_tokens), (9, 1));
    assert_eq!((&asked.stop.stop_token_ids[..], asked.stop.ignore_eos), (&[5][..], true));
    assert_eq!((asked.priority, asked.cache_salt.as_deref()), (-2, Some("tenant")));
}

#[tokio::test]
async fn every_block_reaches_the_template() {
    let template = "{% for message in messages %}[{{ message.role }}{% if message.name %} \
{{ message.name }} {{ message.tool_call_id }}{% endif %}|{% if message.reasoning_content %}\
<{{ message.reasoning_content }}>{% endif %}{{ message.content }}{% for call in \
message.tool_calls or [] %}({{ call.id }} {{ call.function.name }} \
{{ call.function.arguments | tojson }}){% endfor %}]{% endfor %}{{ tools | length }}";
    let mut setup = Setup { template: Some(template), ..roomy() };
    setup.config.tool_call_parser = Parser::Named("hermes");
    let server = Server::start(setup, |_| say("x")).await;
    let text = |text: &str| json!({"type": "text", "text": text});
    let body = json!({
        "model": "tiny", "max_tokens": 5, "tools": tools(),
        "system": [text("Be brief."), text("Be kind.")],
        "messages": [
            {"role": "user", "content": "One"},
            {"role": "user", "content": [text("two"), text("three")]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                text("Let me look."),
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}},
                {"type": "tool_use", "id": "t2", "name": "time", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1",
                    "content": [text("rain"), text("7 C")]},
                {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "late"},
                text("Well?"),
            ]},
            {"role": "system", "content": "Now be quick."},
            {"role": "user", "content": "Go"},
        ],
    });
    let answer = server.client.post(PATH, &body).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None), "{}", answer.text);
    let expected = "[system|Be brief.\nBe kind.][user|One\ntwo\nthree][assistant|<Hm.>Let me look.\
(t1 weather {\"city\": \"Ulm\"})(t2 time {})][tool weather t1|rain\n7 C]\
[tool time t2|Error: late][user|Well?][system|Now be quick.][user|Go]2";
    assert_eq!(prompt_of(&server), expected);
    let mut counted = body.clone();
    counted.as_object_mut().unwrap().remove("max_tokens");
    let counted = server.client.post(COUNT, &counted).await;
    let tokens = server.engine.requests()[0].prompt_token_ids.len();
    assert_eq!(counted.json(), json!({"input_tokens": tokens}));
    assert_eq!(server.engine.requests().len(), 1, "counting runs nothing");
}

#[tokio::test]
async fn the_same_conversation_is_the_same_prompt_as_in_a_chat() {
    let server = saying("x").await;
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
        {"role": "user", "content": "Who?"}]);
    let tools = tools();
    let functions = tools.as_array().unwrap().iter().map(|tool| {
        json!({"type": "function", "function": {"name": tool["name"],
            "description": tool["description"], "parameters": tool["input_schema"]}})
    });
    let functions: Vec<Value> = functions.collect();
    let chat = chat(json!({"messages": messages, "tools": functions}));
    assert_eq!(server.client.chat(&chat).await.status, 200);
    let chatted = prompt_of(&server);
    let body = request(json!({"messages": messages, "tools": tools}));
    assert_eq!(server.client.post(PATH, &body).await.status, 200);
    assert_eq!(prompt_of(&server), chatted);
}

#[tokio::test]
async fn a_last_message_of_the_assistant_is_continued() {
    let server = saying("B)").await;
    for content in [json!("It is ("), json!([{"type": "text", "text": "It is ("}])] {
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]);
        let message = both_ways(&server, json!({"messages": messages})).await;
        assert_eq!(message["content"], json!([{"type": "text", "text": "B)"}]));
        assert_eq!(prompt_of(&server), format!("{PROMPT}It is ("));
    }
}

#[tokio::test]
async fn thinking_is_told_to_the_template() {
    let server = saying("x").await;
    for (thinking, ending) in [
        (json!({"type": "enabled", "budget_tokens": 100}), "assistant\n<think>True"),
        (json!({"type": "disabled"}), "assistant\n<think>False"),
        (json!({"type": "adaptive"}), "assistant\n"),
    ] {
        let answer = server.client.post(PATH, &request(json!({"thinking": thinking}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(prompt_of(&server).ends_with(ending), "{thinking}");
        assert_eq!(answer.header("x-sconce-ignored"), None);
        let asked = server.engine.requests().pop().unwrap();
        let budget = asked.sampling.reasoning.and_then(|reasoning| reasoning.budget);
        assert_eq!(budget, thinking.get("budget_tokens").map(|_| 100));
    }
    let server = saying("<think>hm</think>Hi").await;
    let thinking = json!({"type": "adaptive", "display": "omitted"});
    let message = both_ways(&server, json!({"thinking": thinking})).await;
    assert_eq!(kinds(&message), ["thinking", "text"]);
    assert_eq!(message["content"][0]["thinking"], "");
    let template = Some("{{ messages[0].content }}");
    let server = Server::start(Setup { template, ..roomy() }, |_| say("x")).await;
    let thinking = json!({"type": "enabled", "budget_tokens": 100});
    let answer = server.client.post(PATH, &request(json!({"thinking": thinking}))).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("thinking.budget_tokens"));
}

#[tokio::test]
async fn a_schema_or_a_choice_of_tools_binds_the_answer() {
    let server = saying("x").await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "schema": schema});
    let choice = |choice: Value| json!({"tools": tools(), "tool_choice": choice});
    for (fields, binds) in [
        (json!({"output_config": {"format": format}}), true),
        (json!({"output_format": format}), true),
        (choice(json!({"type": "any"})), true),
        (choice(json!({"type": "tool", "name": "time"})), true),
        (choice(json!({"type": "auto"})), false),
        (json!({"output_config": {"format": format}, "tools": tools()}), true),
    ] {
        let answer = server.client.post(PATH, &request(fields.clone())).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let asked = server.engine.requests().pop().unwrap();
        assert_eq!(asked.sampling.grammar.is_some(), binds, "{fields}");
    }
    let unknown = json!({"type": "json_schema", "schema": {"type": "array", "uniqueItems": true}});
    for (fields, parts) in [
        (json!({"output_format": {"type": "text"}}), ["output_format.type", "\"text\""]),
        (json!({"output_config": {"format": {}}}), ["output_config.format.type", "nothing"]),
        (json!({"output_format": {"type": "json_schema"}}), ["output_format.schema", "schema"]),
        (
            json!({"output_config": {"format": unknown}}),
            ["output_config.format.schema", "uniqueItems"],
        ),
    ] {
        let answer = server.client.post(PATH, &request(fields)).await;
        let message = error(&answer, 400, "invalid_request_error");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
        assert!(!message.contains("response_format"), "{message}");
    }
}

#[tokio::test]
async fn tools_may_be_chosen() {
    let server = saying(CALLS).await;
    for choice in
        [json!({"type": "auto"}), json!({"type": "auto", "disable_parallel_tool_use": false})]
    {
        let message = both_ways(&server, json!({"tools": tools(), "tool_choice": choice})).await;
        assert_eq!(kinds(&message), ["thinking", "text", "tool_use", "tool_use"]);
    }
    let choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    let message = both_ways(&server, json!({"tools": tools(), "tool_choice": choice})).await;
    assert_eq!(kinds(&message), ["thinking", "text", "tool_use"]);
    let choice = json!({"type": "none"});
    let message = both_ways(&server, json!({"tools": tools(), "tool_choice": choice})).await;
    assert_eq!(kinds(&message), ["thinking", "text"]);
    assert_eq!(message["stop_reason"], "end_turn");
    let message = both_ways(&server, json!({"tools": []})).await;
    assert_eq!(kinds(&message), ["thinking", "text"]);
}

#[tokio::test]
async fn what_has_no_effect_is_named() {
    let server = saying("x").await;
    let cached = json!({"type": "ephemeral"});
    let mut tool = tools()[0].clone();
    tool["cache_control"] = cached.clone();
    tool["type"] = json!("custom");
    tool["input_examples"] = json!([{}]);
    let body = request(json!({
        "system": [{"type": "text", "text": "a", "cache_control": cached}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": cached}]},
            {"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "thinking", "thinking": "a", "signature": "sig"},
                {"type": "text", "text": "a", "citations": null},
            ]},
            {"role": "user", "content": "b"},
        ],
        "tools": [tool], "metadata": {"user_id": "u"}, "service_tier": "auto",
        "container": "c1", "mcp_servers": [], "cache_control": cached, "speed": "fast",
        "inference_geo": "eu", "output_config": {"effort": "low"},
    }));
    for path in [PATH, COUNT] {
        let answer = server.client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let mut named: Vec<&str> = answer.header("x-sconce-ignored").unwrap().split(", ").collect();
        named.sort_unstable();
        assert_eq!(
            named,
            [
                "cache_control",
                "container",
                "inference_geo",
                "messages[0].content[0].cache_control",
                "messages[1].content[0]",
                "messages[1].content[1].signature",
                "metadata",
                "speed",
                "system[0].cache_control",
                "tools[0].cache_control",
                "tools[0].input_examples",
            ]
        );
    }
}

#[tokio::test]
async fn unknown_fields_are_named_or_refused() {
    let unknown = [
        (json!({"frobnicate": 1}), "frobnicate"),
        (json!({"n": 2}), "n"),
        (json!({"stop": "a"}), "stop"),
        (json!({"thinking": {"type": "adaptive", "x": 1}}), "thinking.x"),
        (json!({"messages": [{"role": "user", "content": "a", "x": 1}]}), "messages[0].x"),
        (
            json!({"messages": [{"role": "user",
                "content": [{"type": "text", "text": "a", "x": 1}]}]}),
            "messages[0].content[0].x",
        ),
    ];
    let server = Server::saying("x").await;
    let mut setup = Setup::default();
    setup.config.strict = true;
    let strict = Server::start(setup, |_| say("x")).await;
    for (fields, path) in unknown {
        let answer = server.client.post(PATH, &request(fields.clone())).await;
        assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, Some(path)));
        let answer = strict.client.post(PATH, &request(fields)).await;
        assert!(error(&answer, 400, "invalid_request_error").contains(path));
    }
    let fine = request(json!({"metadata": {}, "thinking": {"type": "adaptive"}}));
    assert_eq!(strict.client.post(PATH, &fine).await.status, 200);
}

#[tokio::test]
async fn bad_requests_are_refused_by_field() {
    let server = saying("x").await;
    let content = |role: &str, block: Value| json!({"messages": [{"role": "user", "content": "a"}, {"role": role, "content": [block]}]});
    let block = "messages[1].content[0]";
    let source = json!({"type": "base64", "media_type": "image/png", "data": ""});
    let tool = |tool: Value| json!({"tools": [tool]});
    let choice = |choice: Value| json!({"tools": tools(), "tool_choice": choice});
    for (fields, parts) in [
        (json!({"max_tokens": null}), vec!["max_tokens is required"]),
        (json!({"max_tokens": -1}), vec!["max_tokens must be at least 0, got -1"]),
        (json!({"messages": null}), vec!["messages must have at least one"]),
        (json!({"messages": []}), vec!["messages must have at least one"]),
        (json!({"messages": [{"role": "user"}]}), vec!["messages[0]", "missing field `content`"]),
        (
            json!({"messages": [{"role": "tool", "content": ""}]}),
            vec!["messages[0].role", "\"tool\""],
        ),
        (
            json!({"messages": [{"role": "user", "content": []}]}),
            vec!["messages[0].content must be"],
        ),
        (
            json!({"messages": [{"role": "user", "content": 3}]}),
            vec!["messages[0].content must be"],
        ),
        (content("user", json!("a")), vec![block, "with a type"]),
        (content("user", json!({"type": "text"})), vec![block, "missing field `text`"]),
        (content("user", json!({"type": "text", "text": 3})), vec!["messages[1].content[0].text"]),
        (content("user", json!({"type": "image", "source": source})), vec![block, "\"image\""]),
        (
            content("user", json!({"type": "document", "source": source})),
            vec![block, "image/png", "as image blocks"],
        ),
        (content("user", json!({"type": "thinking", "thinking": ""})), vec![block, "\"thinking\""]),
        (
            content("assistant", json!({"type": "image", "source": source})),
            vec![block, "\"image\""],
        ),
        (
            content("assistant", json!({"type": "server_tool_use"})),
            vec![block, "\"server_tool_use\""],
        ),
        (
            content("assistant", json!({"type": "tool_use", "id": "a", "name": "b", "input": "c"})),
            vec!["messages[1].content[0].input"],
        ),
        (
            content("assistant", json!({"type": "tool_use", "id": "a", "name": "b", "input": {}})),
            vec!["messages[1].content", "tool_result"],
        ),
        (
            content("user", json!({"type": "tool_result", "tool_use_id": "z"})),
            vec!["messages[1].content[0].tool_use_id", "\"z\""],
        ),
        (json!({"system": 3}), vec!["system must be"]),
        (json!({"system": [{"type": "image"}]}), vec!["system[0]", "\"image\""]),
        (json!({"temperature": 1.5}), vec!["temperature must be in [0, 1], got 1.5"]),
        (json!({"top_p": 2}), vec!["top_p must be in (0, 1], got 2"]),
        (json!({"top_k": -2}), vec!["top_k must be at least -1, got -2"]),
        (json!({"stop_sequences": [""]}), vec!["stop_sequences must not"]),
        (json!({"stop_sequences": vec!["a"; 17]}), vec!["stop_sequences must have at most 16"]),
        (json!({"stop_sequences": "a"}), vec!["stop_sequences"]),
        (
            tool(json!({"type": 5, "name": "a", "input_schema": {}})),
            vec!["tools[0]", "of the type 5"],
        ),
        (tool(json!({"name": "a"})), vec!["tools[0]", "missing field `input_schema`"]),
        (tool(json!({"name": "", "input_schema": {}})), vec!["tools[0].name"]),
        (tool(json!({"name": "a", "input_schema": []})), vec!["tools[0].input_schema"]),
        (json!({"tool_choice": {"type": "auto"}}), vec!["tool_choice needs tools"]),
        (choice(json!({"type": "some"})), vec!["tool_choice.type", "\"some\""]),
        (choice(json!({"type": "tool"})), vec!["tool_choice.name is required"]),
        (choice(json!({"type": "tool", "name": "z"})), vec!["tool_choice", "\"z\""]),
        (choice(json!("auto")), vec!["tool_choice"]),
        (json!({"thinking": {"type": "maybe"}}), vec!["thinking.type", "\"maybe\""]),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 0}}),
            vec!["thinking.budget_tokens"],
        ),
        (json!({"thinking": {"type": "adaptive", "display": "x"}}), vec!["thinking.display"]),
        (json!({"output_config": {"effort": "x"}}), vec!["output_config.effort", "\"x\""]),
        (json!({"container": {"skills": []}}), vec!["container"]),
        (json!({"mcp_servers": [{"name": "m"}]}), vec!["mcp_servers"]),
    ] {
        let answer = server.client.post(PATH, &request(fields)).await;
        let message = error(&answer, 400, "invalid_request_error");
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    }
    assert!(server.engine.requests().is_empty());
}

#[tokio::test]
async fn every_layer_speaks_the_shape_of_the_api() {
    let mut setup = Setup::default();
    setup.config.api_keys = vec!["secret".to_owned()];
    setup.config.max_body_bytes = Some(1 << 16);
    let server = Server::start(setup, |_| endless("a")).await;
    let body = request(json!({}));
    for path in [PATH, COUNT] {
        let answer = server.client.post(path, &body).await;
        assert!(error(&answer, 401, "authentication_error").contains("x-api-key"));
        let wrong = [("x-api-key", "guess")];
        let answer = server.client.post_with(path, &body, &wrong).await;
        error(&answer, 401, "authentication_error");
    }
    let key = [
        ("x-api-key", "secret"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14"),
    ];
    let post = async |path: &str, body: Value| server.client.post_with(path, &body, &key).await;
    let bearer = [("authorization", "Bearer secret")];
    assert_eq!(server.client.post_with(COUNT, &body, &bearer).await.status, 200);
    assert_eq!(post(COUNT, body.clone()).await.status, 200);
    let unknown = request(json!({"model": "claude"}));
    assert!(error(&post(PATH, unknown).await, 404, "not_found_error").contains("claude"));
    error(&post("/v1/messages/batches", body.clone()).await, 400, "invalid_request_error");
    error(&post("/v1/messages/nothing", body.clone()).await, 404, "not_found_error");
    let long = request(json!({"system": "a".repeat(1 << 17)}));
    error(&post(PATH, long).await, 413, "request_too_large");
    let long = request(json!({"system": "a".repeat(600)}));
    assert!(error(&post(PATH, long).await, 400, "invalid_request_error").contains("> 512 maximum"));
    let late = request(json!({"deadline_ms": 1, "ignore_eos": true}));
    assert!([200, 408].contains(&post(PATH, late).await.status));
    let answer = post("/v1/completions", json!({"model": "none", "prompt": "x"})).await;
    answer.error(404, "invalid_request_error", Some("model"));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = http.get(server.client.url(PATH)).header("x-api-key", "secret").send().await.unwrap();
    assert_eq!(get.status().as_u16(), 405);
    let get: Value = serde_json::from_str(&get.text().await.unwrap()).unwrap();
    assert_eq!(get["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn a_server_that_goes_down_refuses_in_the_shape_of_the_api() {
    let mut server = Server::start(Setup::default(), |_| endless("ab")).await;
    let mut socket = server.client.open(PATH, &request(json!({"stream": true}))).await;
    read_until(&mut socket, "text_delta").await;
    server.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    for path in [PATH, COUNT] {
        let answer = server.client.post(path, &request(json!({}))).await;
        error(&answer, 503, "overloaded_error");
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn a_full_queue_and_a_failing_engine_have_their_errors() {
    let mut setup = Setup::default();
    setup.config.max_queued_requests = 0;
    setup.limits.max_num_seqs = 1;
    let server = Server::start(setup, |_| endless("ab")).await;
    let mut socket = server.client.open(PATH, &request(json!({"stream": true}))).await;
    read_until(&mut socket, "text_delta").await;
    let answer = server.client.post(PATH, &request(json!({}))).await;
    error(&answer, 429, "rate_limit_error");
    assert_eq!(answer.header("retry-after"), Some("1"));
    drop(socket);
    server.engine.wait_for_aborts(1).await;
    let server = Server::start(Setup::default(), |_| Script {
        fail: Some((0, EngineError::StepFailed("nan".to_owned()))),
        ..say("a")
    })
    .await;
    for stream in [false, true] {
        let answer = server.client.post(PATH, &request(json!({"stream": stream}))).await;
        assert!(error(&answer, 500, "api_error").contains("nan"));
    }
}
