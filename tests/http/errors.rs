//! Every way to be refused, and that the refusal names the field.

use serde_json::{Value, json};

use super::fixture::{CONTEXT, Server, Setup, VOCAB, chat, completion, say};

const BAD: &str = "invalid_request_error";

#[tokio::test]
async fn values_out_of_range_are_named_with_their_bound() {
    let server = Server::saying("x").await;
    for (field, value, bound) in [
        ("temperature", json!(2.1), "[0, 2]"),
        ("temperature", json!(-0.1), "[0, 2]"),
        ("temperature", json!("hot"), "invalid type: string \"hot\""),
        ("top_p", json!(0), "(0, 1]"),
        ("top_p", json!(1.01), "(0, 1]"),
        ("top_k", json!(-2), "at least -1"),
        ("top_k", json!(1.5), "an integer"),
        ("min_p", json!(1.1), "[0, 1]"),
        ("typical_p", json!(0), "(0, 1]"),
        ("top_n_sigma", json!(101), "[-1, 100]"),
        ("xtc_probability", json!(1.5), "[0, 1]"),
        ("xtc_threshold", json!(-0.5), "[0, 1]"),
        ("dry_multiplier", json!(-1), "[0, 100]"),
        ("dry_base", json!(0.5), "[1, 100]"),
        ("dry_allowed_length", json!(0), "at least 1"),
        ("dry_penalty_last_n", json!(-2), "at least -1"),
        ("dry_sequence_breakers", json!(["a", ""]), "1 to 40 bytes"),
        ("dry_sequence_breakers", json!(vec!["a"; 65]), "at most 64"),
        ("repetition_penalty", json!(0), "above 0"),
        ("repetition_penalty", json!(-1), "above 0"),
        ("repetition_penalty", json!(1e300), "finite"),
        ("frequency_penalty", json!(2.5), "[-2, 2]"),
        ("presence_penalty", json!(-2.5), "[-2, 2]"),
        ("logit_bias", json!({"x": 1}), "\"x\" is not a token id"),
        ("logit_bias", json!({"261": 1}), "0..261"),
        ("logit_bias", json!({"-1": 1}), "0..261"),
        ("logit_bias", json!({"1": 101}), "[-100, 100]"),
        ("seed", json!(1.5), "integer"),
        ("seed", json!(u64::MAX), "integer"),
        ("n", json!(0), "[1, 128]"),
        ("n", json!(129), "[1, 128]"),
        ("stop", json!(""), "empty string"),
        ("stop", json!(["a", ""]), "empty string"),
        ("stop", json!(vec!["a"; 17]), "at most 16"),
        ("stop", json!(3), "a string or a list of strings"),
        ("stop_token_ids", json!([VOCAB]), "0..261"),
        ("min_tokens", json!(-1), "at least 0"),
        ("max_tokens", json!(-1), "at least 0"),
        ("max_completion_tokens", json!(-5), "at least 0"),
        ("priority", json!(1i64 << 40), "[-2147483648, 2147483647]"),
        ("cache_salt", json!(""), "1 to 128"),
        ("cache_salt", json!("x".repeat(129)), "1 to 128"),
        ("deadline_ms", json!(0), "[1, 86400000]"),
        ("top_logprobs", json!(21), "[0, 20]"),
        ("top_logprobs", json!(3), "logprobs"),
        ("stream_options", json!({"include_usage": true}), "stream"),
        ("reasoning_effort", json!("hardest"), "one of"),
        ("tool_choice", json!("auto"), "tools"),
    ] {
        let answer = server.client.chat(&chat(json!({field: value}))).await;
        let message = answer.error(400, BAD, Some(field));
        assert!(message.contains(field) && message.contains(bound), "{field}: {message}");
    }
    assert!(server.engine.requests().is_empty());
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let server = Server::saying("x").await;
    let mut body = chat(json!({}));
    for field in [
        "temperature",
        "top_p",
        "stop",
        "seed",
        "n",
        "max_tokens",
        "logit_bias",
        "tools",
        "tool_choice",
        "stream_options",
        "response_format",
        "user",
        "unheard_of",
        "prompt_logprobs",
    ] {
        body[field] = Value::Null;
    }
    let answer = server.client.chat(&body).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None), "{}", answer.text);
}

#[tokio::test]
async fn fields_that_would_change_the_answer_are_refused() {
    let server = Server::saying("x").await;
    for (field, value) in [
        ("top_a", json!(0.5)),
        ("tfs_z", json!(0.5)),
        ("mirostat", json!(2)),
        ("functions", json!([])),
    ] {
        let answer = server.client.chat(&chat(json!({field: value}))).await;
        let message = answer.error(400, BAD, Some(field));
        assert!(message.contains("not supported"), "{message}");
    }
    for (fields, param) in [
        (json!({"suffix": "x"}), "suffix"),
        (json!({"best_of": 1, "n": 2}), "best_of"),
        (json!({"prompt_logprobs": 21}), "prompt_logprobs"),
        (json!({"prompt_logprobs": 0, "stream": true}), "prompt_logprobs"),
    ] {
        server.client.complete(&completion(fields)).await.error(400, BAD, Some(param));
    }
    assert_eq!(
        server.client.complete(&completion(json!({"best_of": 2, "n": 2}))).await.status,
        200
    );
}

#[tokio::test]
async fn fields_without_effect_are_named_in_a_header() {
    let server = Server::saying("x").await;
    let body = chat(json!({"user": "me", "metadata": {"a": "b"}, "store": false, "foo": 1,
        "response_format": {"type": "text"}}));
    for path in ["/v1/chat/completions", "/v1/chat/completions/render"] {
        let answer = server.client.post(path, &body).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-sconce-ignored"), Some("user, foo, metadata"));
    }
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_obfuscation": false});
    let answer = server.client.chat(&streamed).await;
    let header = answer.header("x-sconce-ignored").unwrap();
    assert_eq!(header, "user, foo, stream_options.include_obfuscation, metadata");
    assert_eq!(server.client.chat(&chat(json!({}))).await.header("x-sconce-ignored"), None);
}

#[tokio::test]
async fn a_strict_server_refuses_unknown_fields_and_takes_known_ones() {
    let mut setup = Setup::default();
    setup.config.strict = true;
    let server = Server::start(setup, |_| say("x")).await;
    let answer = server.client.chat(&chat(json!({"user": "me", "temperatura": 1}))).await;
    assert!(answer.error(400, BAD, Some("temperatura")).contains("unknown"));
    let nested = json!({"messages": [{"role": "user", "content": "x", "mood": 1}]});
    server.client.chat(&chat(nested)).await.error(400, BAD, Some("messages[0].mood"));
    let answer = server.client.chat(&chat(json!({"user": "me"}))).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, Some("user")));
    let answer = server.client.complete(&completion(json!({"messages": []}))).await;
    answer.error(400, BAD, Some("messages"));
}

/// Bodies with one member that nobody knows, and its place: at every depth that a protocol has.
fn unknown_members() -> Vec<(&'static str, Value, &'static str)> {
    const CHAT: &str = "/v1/chat/completions";
    const RESPONSES: &str = "/v1/responses";
    const MESSAGES: &str = "/v1/messages";
    let schema = json!({"type": "object"});
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let with_tool = |tool: Value| chat(json!({"tools": [tool]}));
    let function = json!({"name": "f"});
    let choice = |choice: Value| {
        let tools = json!([{"type": "function", "function": function}]);
        chat(json!({"tools": tools, "tool_choice": choice}))
    };
    let format = |format: Value| chat(json!({"response_format": format}));
    let call = |call: Value| {
        chat(json!({"messages": [{"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "x"}]}))
    };
    let response = |fields: Value| {
        let mut body = json!({"model": "tiny", "input": "Hi"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let message = |fields: Value| {
        let mut body = json!({"model": "tiny", "max_tokens": 5, "messages": user(json!("Hi"))});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let flat = json!({"type": "function", "name": "f"});
    vec![
        (CHAT, format(json!({"type": "text", "foo": 1})), "response_format.foo"),
        (CHAT, format(json!({"type": "json_object", "foo": 1})), "response_format.foo"),
        (
            CHAT,
            format(json!({"type": "json_schema", "schema": schema,
                "json_schema": {"name": "a", "schema": schema}})),
            "response_format.schema",
        ),
        (
            CHAT,
            format(json!({"type": "json_schema",
                "json_schema": {"name": "a", "schema": schema, "foo": 1}})),
            "response_format.json_schema.foo",
        ),
        (
            CHAT,
            format(json!({"type": "structural_tag", "triggers": ["<a>"], "structures": [
                {"begin": "<a>", "schema": schema, "end": "</a>", "foo": 1}]})),
            "response_format.structures[0].foo",
        ),
        (
            CHAT,
            chat(json!({"structured_outputs": {"structural_tag": {"triggers": ["<a>"], "foo": 1,
                "structures": [{"begin": "<a>", "end": "</a>"}]}}})),
            "structured_outputs.structural_tag.foo",
        ),
        (
            CHAT,
            with_tool(json!({"type": "function", "function": function, "foo": 1})),
            "tools[0].foo",
        ),
        (
            CHAT,
            with_tool(json!({"type": "function", "function": {"name": "f", "foo": 1}})),
            "tools[0].function.foo",
        ),
        (
            CHAT,
            choice(json!({"type": "function", "function": {"name": "f"}, "foo": 1})),
            "tool_choice.foo",
        ),
        (
            CHAT,
            choice(json!({"type": "function", "function": {"name": "f", "foo": 1}})),
            "tool_choice.function.foo",
        ),
        (
            CHAT,
            choice(json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}, "foo": 1}]}})),
            "tool_choice.allowed_tools.tools[0].foo",
        ),
        (
            CHAT,
            chat(json!({"messages": user(json!([{"type": "text", "text": "x", "foo": 1}]))})),
            "messages[0].content[0].foo",
        ),
        (
            CHAT,
            call(json!({"id": "a", "foo": 1, "function": {"name": "f", "arguments": "{}"}})),
            "messages[0].tool_calls[0].foo",
        ),
        (
            CHAT,
            call(json!({"id": "a", "function": {"name": "f", "arguments": "{}", "foo": 1}})),
            "messages[0].tool_calls[0].function.foo",
        ),
        (CHAT, chat(json!({"stream": true, "stream_options": {"foo": 1}})), "stream_options.foo"),
        (
            RESPONSES,
            response(json!({"text": {"format": {"type": "text", "foo": 1}}})),
            "text.format.foo",
        ),
        (
            RESPONSES,
            response(json!({"text": {"format": {"type": "json_schema", "name": "a",
                "schema": schema, "foo": 1}}})),
            "text.format.foo",
        ),
        (RESPONSES, response(json!({"text": {"foo": 1}})), "text.foo"),
        (RESPONSES, response(json!({"reasoning": {"foo": 1}})), "reasoning.foo"),
        (
            RESPONSES,
            response(json!({"tools": [{"type": "function", "name": "f", "foo": 1}]})),
            "tools[0].foo",
        ),
        (
            RESPONSES,
            response(json!({"tools": [flat], "tool_choice": {"type": "function", "name": "f",
                "foo": 1}})),
            "tool_choice.foo",
        ),
        (
            RESPONSES,
            response(json!({"input": [{"role": "user", "content": "Hi", "foo": 1}]})),
            "input[0].foo",
        ),
        (
            RESPONSES,
            response(json!({"input": user(json!([{"type": "input_text", "text": "x",
                "foo": 1}]))})),
            "input[0].content[0].foo",
        ),
        (
            MESSAGES,
            message(json!({"messages": user(json!([{"type": "text", "text": "x", "foo": 1}]))})),
            "messages[0].content[0].foo",
        ),
        (
            MESSAGES,
            message(json!({"output_config": {"format": {"type": "json_schema",
                "schema": schema, "foo": 1}}})),
            "output_config.format.foo",
        ),
        (MESSAGES, message(json!({"thinking": {"type": "adaptive", "foo": 1}})), "thinking.foo"),
        (
            MESSAGES,
            message(json!({"tools": [{"name": "f", "input_schema": schema, "foo": 1}]})),
            "tools[0].foo",
        ),
    ]
}

#[tokio::test]
async fn a_member_that_nobody_knows_is_named_at_any_depth() {
    let mut setup = Setup::default();
    setup.limits.max_model_len = 4096;
    let server = Server::start(setup, |_| say("x")).await;
    let mut setup = Setup::default();
    setup.limits.max_model_len = 4096;
    setup.config.strict = true;
    let strict = Server::start(setup, |_| say("x")).await;
    for (path, body, place) in unknown_members() {
        let answer = server.client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{place}: {}", answer.text);
        assert_eq!(answer.header("x-sconce-ignored"), Some(place), "{body}");
        let answer = strict.client.post(path, &body).await;
        assert_eq!(answer.status, 400, "{place}");
        assert!(answer.text.contains(&format!("{place}: unknown field")), "{}", answer.text);
    }
}

#[tokio::test]
async fn members_that_nobody_knows_are_not_shown_to_the_template() {
    let server = Server::saying("x").await;
    let tool = |extra: Value| {
        let mut function = json!({"parameters": {"type": "object"}, "name": "f"});
        function.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        chat(json!({"tools": [{"type": "function", "function": function}]}))
    };
    let path = "/v1/chat/completions/render";
    let plain = server.client.post(path, &tool(json!({}))).await.json();
    let more = server.client.post(path, &tool(json!({"foo": 1}))).await.json();
    assert_eq!(plain["prompt"], more["prompt"]);
    let shown = "{\"type\": \"function\", \"function\": {\"parameters\": {\"type\": \"object\"}, \
                 \"name\": \"f\"}}";
    assert!(plain["prompt"].as_str().unwrap().contains(shown), "{plain}");
    let returns = server.client.post(path, &tool(json!({"return": {"type": "string"}}))).await;
    assert!(returns.json()["prompt"].as_str().unwrap().contains("\"return\""));
    assert_eq!(returns.header("x-sconce-ignored"), None);
}

#[tokio::test]
async fn messages_are_checked_one_by_one() {
    let server = Server::saying("x").await;
    let user = json!({"role": "user", "content": "x"});
    for (messages, param) in [
        (json!([]), "messages"),
        (json!("hello"), "messages"),
        (json!(["hello"]), "messages[0]"),
        (json!([user, {"role": "", "content": "x"}]), "messages[1].role"),
        (json!([{"content": "x"}]), "messages[0].role"),
        (json!([{"role": 3, "content": "x"}]), "messages[0].role"),
        (json!([{"role": "user"}]), "messages[0].content"),
        (json!([{"role": "user", "content": 7}]), "messages[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            "messages[0].content[0].type",
        ),
        (json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text"),
        (json!([{"role": "user", "content": "x", "tool_calls": [{}]}]), "messages[0].tool_calls"),
        (
            json!([{"role": "assistant", "tool_calls": [{"type": "function"}]}]),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"type": "custom"}]}]),
            "messages[0].tool_calls[0].type",
        ),
    ] {
        let answer = server.client.chat(&chat(json!({"messages": messages}))).await;
        answer.error(400, BAD, Some(param));
    }
    let answer = server.client.chat(&json!({"model": "tiny"})).await;
    answer.error(400, BAD, Some("messages"));
}

#[tokio::test]
async fn prompts_are_checked() {
    let server = Server::saying("x").await;
    for prompt in [
        json!(null),
        json!(""),
        json!([]),
        json!([[]]),
        json!(["a", ""]),
        json!([VOCAB]),
        json!([-1]),
        json!([1.5]),
        json!([1, "a"]),
        json!({"a": 1}),
        json!(vec!["a"; 1025]),
    ] {
        let body = json!({"model": "tiny", "prompt": prompt});
        server.client.complete(&body).await.error(400, BAD, Some("prompt"));
    }
    for logprobs in [-1, 21] {
        let body = completion(json!({"logprobs": logprobs}));
        server.client.complete(&body).await.error(400, BAD, Some("logprobs"));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_the_context_is_refused_with_both_numbers() {
    let mut setup = Setup::default();
    setup.config.strict = true;
    let server = Server::start(setup, |_| say("x")).await;
    let body = completion(json!({"max_tokens": CONTEXT - 1}));
    let message = server.client.complete(&body).await.error(400, BAD, Some("max_tokens"));
    assert!(message.contains("(2 in prompt, 511 by max_tokens)"), "{message}");
    assert!(message.contains("maximum context length is 512 tokens"), "{message}");
    assert_eq!(
        server.client.complete(&completion(json!({"max_tokens": CONTEXT - 2}))).await.status,
        200
    );
    let long = completion(json!({"prompt": "a".repeat(CONTEXT)}));
    let answer = server.client.complete(&long).await;
    let message = answer.error(400, BAD, Some("prompt"));
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    assert!(message.contains("512 tokens"), "{message}");
    let body = completion(json!({"max_tokens": 3, "min_tokens": 4}));
    let message = server.client.complete(&body).await.error(400, BAD, Some("min_tokens"));
    assert!(message.contains("(3), got 4"), "{message}");
}

#[tokio::test]
async fn models_are_found_by_any_of_their_names() {
    let server = Server::saying("x").await;
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let body = json!({"model": "gpt-9", "prompt": "x",
            "messages": [{"role": "user", "content": "x"}]});
        let answer = server.client.post(path, &body).await;
        answer.error(404, BAD, Some("model"));
        assert_eq!(answer.json()["error"]["code"], "model_not_found");
    }
    assert_eq!(server.client.complete(&json!({"prompt": "x"})).await.json()["model"], "tiny");
    let answer = server.client.complete(&json!({"prompt": "x", "model": "org/alias"})).await;
    assert_eq!(answer.json()["model"], "org/alias");
}

#[tokio::test]
async fn routes_methods_and_media_types_have_error_objects() {
    let server = Server::saying("x").await;
    server.client.get("/v1/nothing").await.error(404, BAD, None);
    server.client.post("/v1/moderations", &json!({})).await.error(404, BAD, None);
    server.client.get("/v1/completions").await.error(405, BAD, None);
    server.client.request("DELETE", "/v1/models").await.error(405, BAD, None);
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let path = "/v1/completions";
        let answer = server.client.post_bytes(path, content_type, b"{}".to_vec()).await;
        assert!(answer.error(415, BAD, None).contains(content_type));
    }
    let body = completion(json!({})).to_string().into_bytes();
    let content_type = "application/json; charset=utf-8";
    let answer = server.client.post_bytes("/v1/completions", content_type, body).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn broken_bodies_are_refused_without_harm() {
    let server = Server::saying("x").await;
    let deep = format!("{{\"model\": {}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let object_bomb = format!("{{\"a\":{}", "{\"a\":".repeat(50_000));
    for body in [
        b"".to_vec(),
        b"{".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"{\"model\": \"tiny\", \"model\": \"tiny\", \"prompt\": \"x\"}".to_vec(),
        b"{\"model\": \"tiny\", \"prompt\": \"\xff\xfe\"}".to_vec(),
        b"{\"model\": \"tiny\", \"prompt\": \"\\ud800\"}".to_vec(),
        b"{\"model\": \"tiny\", \"prompt\": \"x\", \"temperature\": NaN}".to_vec(),
        b"{\"model\": \"tiny\", \"prompt\": \"x\"} trailing".to_vec(),
        deep.into_bytes(),
        object_bomb.into_bytes(),
    ] {
        for path in ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"] {
            let answer = server.client.post_bytes(path, "application/json", body.clone()).await;
            answer.error(400, BAD, None);
        }
    }
    assert_eq!(server.client.complete(&completion(json!({}))).await.status, 200);
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let mut setup = Setup::default();
    setup.config.max_body_bytes = Some(1 << 20);
    let server = Server::start(setup, |_| say("x")).await;
    let long = completion(json!({"prompt": "a ".repeat(1 << 18)}));
    server.client.complete(&long).await.error(400, BAD, Some("prompt"));
    let too_long = completion(json!({"prompt": "a".repeat(1 << 21)}));
    let answer = server.client.complete(&too_long).await;
    assert!(answer.error(413, BAD, None).contains("1048576"));
}

#[tokio::test]
async fn a_model_without_a_template_has_no_chat() {
    let setup = Setup { template: None, ..Setup::default() };
    let server = Server::start(setup, |_| say("x")).await;
    let message = server.client.chat(&chat(json!({}))).await.error(400, BAD, None);
    assert!(message.contains("chat template"));
    assert_eq!(server.client.complete(&completion(json!({}))).await.status, 200);
}

#[tokio::test]
async fn a_template_that_refuses_is_the_requests_fault() {
    let template = "{% if messages[0].role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}x";
    let setup = Setup { template: Some(template), ..Setup::default() };
    let server = Server::start(setup, |_| say("x")).await;
    let fields = json!({"messages": [{"role": "system", "content": "x"}]});
    let message = server.client.chat(&chat(fields)).await.error(400, BAD, Some("messages"));
    assert!(message.contains("roles must alternate"));
}

#[tokio::test]
async fn an_object_may_come_with_its_schema() {
    let server = Server::saying("x").await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    let format = |schema: Value| json!({"type": "json_object", "schema": schema});
    let path = "/v1/chat/completions";
    let body = chat(json!({"response_format": format(schema.clone())}));
    let answer = server.client.post(path, &body).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None), "{}", answer.text);
    let named = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    server.client.post(path, &chat(json!({"response_format": named}))).await;
    server.client.post(path, &chat(json!({"response_format": {"type": "json_object"}}))).await;
    let asked = server.engine.requests();
    let grammar = |at: usize| asked[at].sampling.grammar.clone().unwrap();
    // An equal request's grammar is the same one, as long as it is remembered.
    assert!(std::sync::Arc::ptr_eq(&grammar(0), &grammar(1)));
    assert!(!std::sync::Arc::ptr_eq(&grammar(0), &grammar(2)));
    let answer = server.client.chat(&chat(json!({"response_format": format(json!(3))}))).await;
    let message = answer.error(400, BAD, Some("response_format.schema"));
    assert!(message.contains("got 3"), "{message}");
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused_where_nothing_is_compiled() {
    let server = Server::saying("x").await;
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": 3}});
    for (fields, param) in [
        (json!({"response_format": format}), "response_format.json_schema.schema"),
        (json!({"structured_outputs": {"json": 3}}), "structured_outputs.json"),
        (json!({"structured_outputs": {"json": "3"}}), "structured_outputs.json"),
    ] {
        let answer = server.client.post("/v1/chat/completions/render", &chat(fields)).await;
        let message = answer.error(400, BAD, Some(param));
        assert!(message.contains("got 3"), "{message}");
    }
}
