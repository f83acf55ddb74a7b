//! What programs send that were written for vLLM, SGLang, llama.cpp and the newest SDKs.

use serde_json::{Value, json};

use super::fixture::{CONTEXT, Server, Setup, bytes, chat, completion, say};
use super::messages::{prompt_of, request as message};

const BAD: &str = "invalid_request_error";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

#[tokio::test]
async fn any_role_goes_to_the_template() {
    let server = Server::saying("x").await;
    let messages = json!([
        {"role": "critic", "content": "No."},
        {"role": "function", "name": "f", "content": "7"},
    ]);
    assert_eq!(server.client.chat(&chat(json!({"messages": messages}))).await.status, 200);
    let prompt = prompt_of(&server);
    assert!(prompt.contains("critic\nNo.") && prompt.contains("function\n7"), "{prompt}");
    let nameless = json!({"messages": [{"role": "", "content": "x"}]});
    server.client.chat(&chat(nameless)).await.error(400, BAD, Some("messages[0].role"));
}

#[tokio::test]
async fn constraints_have_other_servers_names_too() {
    let server = Server::saying("ab").await;
    let schema = json!({"type": "object"});
    for fields in [
        json!({"guided_json": schema}),
        json!({"guided_json": schema.to_string()}),
        json!({"json_schema": schema}),
        json!({"guided_regex": "a+"}),
        json!({"regex": "a+"}),
        json!({"guided_choice": ["a", "b"]}),
        json!({"guided_grammar": "start: \"a\"", "guided_decoding_backend": "guidance"}),
        json!({"grammar": "root ::= \"a\""}),
        json!({"ebnf": "root ::= \"a\""}),
        // As guidance sends it.
        json!({"guided_grammar": "start: \"a\"", "structured_outputs": {"grammar": "start: \"a\""}}),
    ] {
        for (path, body) in [
            ("/v1/chat/completions", chat(fields.clone())),
            ("/v1/completions", completion(fields.clone())),
        ] {
            let answer = server.client.post(path, &body).await;
            assert_eq!(answer.status, 200, "{fields}: {}", answer.text);
            let requests = server.engine.requests();
            assert!(requests.last().unwrap().sampling.grammar.is_some(), "{fields}");
        }
    }
    for (fields, param) in [
        (json!({"guided_regex": "a", "structured_outputs": {"regex": "b"}}), "guided_regex"),
        (json!({"guided_regex": "a", "regex": "b"}), "regex"),
        (json!({"guided_json": "{"}), "guided_json"),
        (json!({"grammar": "root ::= ("}), "grammar"),
        (json!({"guided_choice": "a"}), "guided_choice"),
        (json!({"guided_whitespace_pattern": " "}), "guided_whitespace_pattern"),
    ] {
        server.client.chat(&chat(fields)).await.error(400, BAD, Some(param));
    }
}

#[tokio::test]
async fn bad_words_become_sequences_of_tokens() {
    let server = Server::saying("x").await;
    let body = chat(json!({"bad_words": ["ab", " c"]}));
    assert_eq!(server.client.chat(&body).await.status, 200);
    let expected = [bytes("ab"), bytes("c")];
    assert_eq!(server.engine.requests()[0].sampling.bad_words, expected);
    let long = "x".repeat(300);
    for words in [json!([""]), json!([" "]), json!([long]), json!(vec!["a"; 300])] {
        let answer = server.client.chat(&chat(json!({"bad_words": words}))).await;
        assert!(
            answer.error(400, BAD, answer.json()["error"]["param"].as_str()).contains("bad_words")
        );
    }
}

#[tokio::test]
async fn logprobs_of_named_tokens_need_logprobs() {
    let server = Server::saying("x").await;
    let body = chat(json!({"logprobs": true, "logprob_token_ids": [7, 3]}));
    assert_eq!(server.client.chat(&body).await.status, 200);
    let asked = server.engine.requests()[0].sampling.logprob_token_ids.clone();
    assert_eq!(asked.as_deref(), Some(&[7, 3][..]));
    for fields in [
        json!({"logprob_token_ids": [7]}),
        json!({"logprobs": true, "logprob_token_ids": [99_999]}),
        json!({"logprobs": true, "logprob_token_ids": vec![1; 129]}),
    ] {
        server.client.chat(&chat(fields)).await.error(400, BAD, Some("logprob_token_ids"));
    }
}

#[tokio::test]
async fn as_many_logprobs_as_the_server_allows() {
    let server = Server::saying("x").await;
    let asks = |top: i64| chat(json!({"logprobs": true, "top_logprobs": top}));
    assert!(
        server.client.chat(&asks(-1)).await.error(400, BAD, Some("top_logprobs")).contains("20")
    );
    let mut setup = Setup::default();
    setup.config.max_logprobs = None;
    let server = Server::start(setup, |_| say("x")).await;
    for (asked, listed) in [(-1, 261), (100, 100)] {
        let body = server.client.chat(&asks(asked)).await.json();
        let top = &body["choices"][0]["logprobs"]["content"][0]["top_logprobs"];
        assert_eq!(top.as_array().unwrap().len(), listed);
    }
}

#[tokio::test]
async fn prompts_are_cut_where_it_is_asked_for() {
    let server = Server::saying("x").await;
    let long = "a".repeat(CONTEXT) + "bcd";
    let tail = |most: usize| bytes(&long[long.len() - most..]);
    for (fields, expected) in [
        (json!({"truncate_prompt_tokens": 3}), tail(3)),
        (json!({"truncate_prompt_tokens": 2, "truncation_side": "right"}), bytes("aa")),
        (json!({"truncate_prompt_tokens": -1, "max_tokens": 12}), tail(CONTEXT - 12)),
    ] {
        let mut body = completion(fields);
        body["prompt"] = json!(long);
        let answer = server.client.complete(&body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(server.engine.requests().last().unwrap().prompt_token_ids, expected);
    }
    let said = json!([{"role": "user", "content": long}]);
    let body = chat(json!({"messages": said, "truncate_prompt_tokens": 30}));
    assert_eq!(server.client.chat(&body).await.json()["usage"]["prompt_tokens"], 30);
    for (fields, param) in [
        (json!({"truncate_prompt_tokens": 0}), "truncate_prompt_tokens"),
        (json!({"truncate_prompt_tokens": CONTEXT + 1}), "truncate_prompt_tokens"),
        (json!({"truncation_side": "up"}), "truncation_side"),
    ] {
        server.client.complete(&completion(fields)).await.error(400, BAD, Some(param));
    }
}

#[tokio::test]
async fn tiers_are_priorities() {
    let server = Server::saying("x").await;
    for (fields, priority, told) in [
        (json!({}), 0, "default"),
        (json!({"service_tier": "auto"}), 0, "default"),
        (json!({"service_tier": "flex"}), 1, "flex"),
        (json!({"service_tier": "priority"}), -1, "priority"),
        (json!({"service_tier": "flex", "priority": 7}), 7, "flex"),
    ] {
        let body = server.client.chat(&chat(fields.clone())).await.json();
        assert_eq!(
            (&body["service_tier"], &body["system_fingerprint"]),
            (&json!(told), &json!("fp_test"))
        );
        assert_eq!(server.engine.requests().last().unwrap().priority, priority);
        let mut asked = json!({"model": "tiny", "input": "Hi"});
        asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let body = server.client.post(RESPONSES, &asked).await.json();
        assert_eq!(body["service_tier"], told);
    }
    let unknown = chat(json!({"service_tier": "gold"}));
    server.client.chat(&unknown).await.error(400, BAD, Some("service_tier"));
    let answer =
        server.client.post(MESSAGES, &message(json!({"service_tier": "standard_only"}))).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None));
}

#[tokio::test]
async fn a_prompt_can_be_computed_without_an_answer() {
    let server = Server::saying("abc").await;
    for (path, body) in [
        ("/v1/chat/completions", chat(json!({"max_tokens": 0}))),
        ("/v1/chat/completions", chat(json!({"prompt_cache_options": {"prewarm": true}}))),
        ("/v1/completions", completion(json!({"max_tokens": 0}))),
    ] {
        let answer = server.client.post(path, &body).await.json();
        let choice = &answer["choices"][0];
        let text = choice["text"].as_str().or(choice["message"]["content"].as_str());
        assert_eq!((text, &choice["finish_reason"]), (Some(""), &json!("length")), "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 0);
        assert_eq!(server.engine.requests().last().unwrap().stop.max_tokens, 1);
    }
    let answer = server.client.post(MESSAGES, &message(json!({"max_tokens": 0}))).await.json();
    assert_eq!((&answer["content"], &answer["stop_reason"]), (&json!([]), &json!("max_tokens")));
    let warm = json!({"model": "tiny", "input": "Hi", "prompt_cache_options": {"prewarm": true}});
    let answer = server.client.post(RESPONSES, &warm).await.json();
    assert_eq!(
        (&answer["status"], &answer["output"]),
        (&json!("incomplete"), &json!([])),
        "{answer}"
    );
    let streamed = server.client.chat(&chat(json!({"max_tokens": 0, "stream": true}))).await;
    assert_eq!(streamed.chunks().last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_prompt_that_was_not_in_the_cache_is_explained() {
    let server = Server::saying("x").await;
    let long = "The rules are many. ".repeat(8);
    let ask = async |system: &str, first: &str, previous: Value| {
        let body =
            message(json!({"system": system, "diagnostics": {"previous_message_id": previous},
            "messages": [{"role": "user", "content": first}]}));
        let answer = server.client.post(MESSAGES, &body).await.json();
        (answer["id"].clone(), answer["diagnostics"]["cache_miss_reason"].clone())
    };
    let (first, reason) = ask(&long, &long, Value::Null).await;
    assert_eq!(reason, Value::Null);
    assert_eq!(ask(&long, &long, first.clone()).await.1, Value::Null);
    let (_, reason) = ask(&format!("Today. {long}"), &long, first.clone()).await;
    assert_eq!(reason["type"], "system_changed");
    assert!(reason["cache_missed_input_tokens"].as_u64().unwrap() > 200, "{reason}");
    let (_, reason) = ask(&long, &format!("No. {long}"), first.clone()).await;
    assert_eq!(reason["type"], "messages_changed");
    assert_eq!(ask(&long, &long, json!("msg_none")).await.1["type"], "previous_message_not_found");

    let respond = async |instructions: &str, compared: Value| {
        let body = json!({"model": "tiny", "input": "Hi", "instructions": instructions,
            "prompt_cache_options": {"comparison_response_id": compared}});
        let answer = server.client.post(RESPONSES, &body).await.json();
        (answer["id"].clone(), answer["prompt_cache_diagnostics"].clone())
    };
    let (first, told) = respond(&long, Value::Null).await;
    assert_eq!(told, Value::Null);
    assert_eq!(respond(&long, first.clone()).await.1["type"], "cache_hit");
    let (_, told) = respond(&format!("Today. {long}"), first).await;
    assert_eq!((&told["type"], &told["reason"]), (&json!("cache_miss"), &json!("input_changed")));
    let (_, told) = respond(&long, json!("resp_none")).await;
    assert_eq!(told["type"], "comparison_response_not_found");
}

/// The tool runners of Anthropic's SDKs go on without threads when they are refused like this.
#[tokio::test]
async fn threads_are_refused_so_that_clients_do_without() {
    let server = Server::saying("x").await;
    let answer =
        server.client.post(MESSAGES, &message(json!({"thread": {"type": "create"}}))).await;
    let body = answer.json();
    assert_eq!(answer.status, 400);
    let expected = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
    assert_eq!(body["error"]["details"], expected, "{body}");
}

#[tokio::test]
async fn openai_routes_answer_without_their_version_too() {
    let server = Server::saying("x").await;
    assert_eq!(server.client.post("/chat/completions", &chat(json!({}))).await.status, 200);
    assert_eq!(server.client.get("/models").await.json()["object"], "list");
    assert_eq!(server.client.get("/models/org/alias?x=1").await.json()["id"], "org/alias");
    let counted = server.client.post("/chat/completions/input_tokens", &chat(json!({}))).await;
    assert!(counted.json()["input_tokens"].as_u64().is_some());
    let embedded = server.client.post("/embeddings", &json!({"input": "Hi"})).await;
    assert_eq!(embedded.status, 200);
    let metrics = server.client.get("/metrics").await.text;
    assert!(metrics.contains("handler=\"/v1/chat/completions\""), "{metrics}");
    server.client.post("/completions", &completion(json!({}))).await.error(404, BAD, None);
}

#[tokio::test]
async fn one_route_takes_all_requests() {
    let server = Server::saying("x").await;
    let invoke = async |body: Value| server.client.post("/invocations", &body).await;
    assert_eq!(invoke(chat(json!({}))).await.json()["object"], "chat.completion");
    assert_eq!(invoke(completion(json!({}))).await.json()["object"], "text_completion");
    assert_eq!(invoke(json!({"input": "Hi"})).await.json()["object"], "list");
    assert_eq!(invoke(chat(json!({"prompt": null}))).await.json()["object"], "chat.completion");
    invoke(json!({"model": "tiny"})).await.error(400, BAD, Some("messages"));
    invoke(chat(json!({"temperature": 9}))).await.error(400, BAD, Some("temperature"));
}

#[tokio::test]
async fn requests_are_rendered_in_the_shape_that_routers_read() {
    let server = Server::saying("x").await;
    let tokens = |count: &Value| count.as_array().unwrap().len();
    for (path, body, prefix) in [
        (
            "/v1/chat/completions/render",
            chat(json!({"temperature": 0.3, "max_tokens": 9})),
            "chatcmpl-",
        ),
        ("/v1/messages/render", message(json!({"temperature": 0.3, "max_tokens": 9})), "msg_"),
        (
            "/v1/responses/render",
            json!({"input": "Hi", "temperature": 0.3, "max_output_tokens": 9}),
            "resp_",
        ),
    ] {
        let rendered = server.client.post(path, &body).await.json();
        assert!(rendered["request_id"].as_str().unwrap().starts_with(prefix), "{rendered}");
        assert_eq!(tokens(&rendered["token_ids"]), rendered["count"].as_u64().unwrap() as usize);
        let params = &rendered["sampling_params"];
        assert_eq!((&params["temperature"], &params["max_tokens"]), (&json!(0.3), &json!(9)));
        assert_eq!((&rendered["stream"], &rendered["model"]), (&json!(false), &json!("tiny")));
    }
    let body = completion(json!({"prompt": ["ab", "c"]}));
    let rendered = server.client.post("/v1/completions/render", &body).await.json();
    assert_eq!(rendered[0]["token_ids"], json!(bytes("ab")));
    assert!(rendered[1]["request_id"].as_str().unwrap().ends_with("-1"), "{rendered}");
    assert!(server.engine.requests().is_empty());
}

#[tokio::test]
async fn dates_are_told_to_templates_that_ask() {
    let template = "{{ date_string }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let server =
        Server::start(Setup { template: Some(template), ..Setup::default() }, |_| say("x")).await;
    let prompt = async |fields: Value| {
        let body = server.client.post("/apply-template", &chat(fields)).await.json();
        body["prompt"].as_str().unwrap().to_owned()
    };
    let today = prompt(json!({})).await;
    assert!(today.len() == 13 && today.ends_with("Hi"), "{today}");
    let given = json!({"chat_template_kwargs": {"date_string": "5 May"}});
    assert_eq!(prompt(given).await, "5 MayHi");
}

#[tokio::test]
async fn what_was_not_asked_for_is_null() {
    let server = Server::saying("x").await;
    let body = server.client.chat(&chat(json!({}))).await.json();
    for name in ["prompt_logprobs", "prompt_token_ids"] {
        assert!(body.get(name).is_some_and(Value::is_null), "{name}: {body}");
    }
    assert!(body["choices"][0].get("token_ids").is_some_and(Value::is_null));
    let body = server.client.complete(&completion(json!({}))).await.json();
    for name in ["prompt_logprobs", "prompt_token_ids", "token_ids"] {
        assert!(body["choices"][0].get(name).is_some_and(Value::is_null), "{name}: {body}");
    }
}

#[tokio::test]
async fn fields_that_change_answers_here_and_there_are_refused() {
    let server = Server::saying("x").await;
    for (path, body, param) in [
        ("/v1/chat/completions", chat(json!({"echo": true})), "echo"),
        ("/v1/chat/completions", chat(json!({"logits_processors": ["x"]})), "logits_processors"),
        (
            "/v1/chat/completions",
            chat(json!({"moderation": {"policy": {"output": {"mode": "block"}}}})),
            "moderation",
        ),
        (
            RESPONSES,
            json!({"model": "tiny", "input": "Hi", "enable_response_messages": true}),
            "enable_response_messages",
        ),
        ("/v1/embeddings", json!({"input": "Hi", "padding": "max_length"}), "padding"),
    ] {
        server.client.post(path, &body).await.error(400, BAD, Some(param));
    }
    let reports = chat(json!({"moderation": {"policy": {"output": {"mode": "report"}}}}));
    let answer = server.client.chat(&reports).await;
    assert_eq!(answer.header("x-sconce-ignored"), Some("moderation"));
}

#[tokio::test]
async fn slots_are_the_sequences_that_can_run() {
    let server = Server::saying("x").await;
    let slots = server.client.get("/slots").await.json();
    assert_eq!(slots.as_array().unwrap().len(), 8);
    assert_eq!(slots[0], json!({"id": 0, "n_ctx": CONTEXT, "is_processing": false}));
}

#[tokio::test]
async fn routers_of_sglang_learn_the_model_and_its_room() {
    let server = Server::saying("x").await;
    for path in ["/server_info", "/get_server_info"] {
        let info = server.client.get(path).await.json();
        assert_eq!(info["served_model_name"], "tiny");
        assert_eq!(info["context_length"], CONTEXT);
        assert_eq!(info["max_running_requests"], 8);
    }
    for path in ["/model_info", "/get_model_info"] {
        let info = server.client.get(path).await.json();
        assert_eq!(info["model_path"], "tiny");
        assert_eq!(info["is_generation"], true);
    }
    assert_eq!(server.client.get("/health_generate").await.status, 200);
}

#[tokio::test]
async fn tokens_are_told_with_their_texts() {
    let server = Server::saying("x").await;
    let body = json!({"content": "a\u{e9}", "with_pieces": true, "add_special": false});
    let tokens = server.client.post("/tokenize", &body).await.json()["tokens"].clone();
    let expected = json!([
        {"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]},
    ]);
    assert_eq!(tokens, expected);
}

#[tokio::test]
async fn embeddings_come_as_bytes_of_many_types() {
    let server = Server::saying("x").await;
    let embed = async |fields: Value| {
        let mut body = json!({"input": ["ab", "c"], "use_activation": false});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.client.post("/v1/embeddings", &body).await
    };
    let answer = embed(json!({"encoding_format": "bytes", "embed_dtype": "float16"})).await;
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    let metadata: Value = serde_json::from_str(answer.header("metadata").unwrap()).unwrap();
    let second = json!({"index": 1, "embed_dtype": "float16", "endianness": "little",
        "start": 8, "end": 16, "shape": [4]});
    assert_eq!(metadata["data"][1], second);
    assert_eq!(metadata["usage"]["prompt_tokens"], 3);
    let plain = embed(json!({"encoding_format": "bytes_only"})).await;
    assert_eq!((plain.status, plain.header("metadata")), (200, None));
    // 2.0 in the highest bits first.
    let big =
        embed(json!({"encoding_format": "base64", "embed_dtype": "bfloat16", "endianness": "big"}));
    let first = big.await.json()["data"][0]["embedding"].as_str().unwrap()[..2].to_owned();
    assert_eq!(first, "QA");
    for (fields, param) in [
        (json!({"embed_dtype": "int3"}), "embed_dtype"),
        (json!({"endianness": "middle"}), "endianness"),
        (json!({"encoding_format": "hex"}), "encoding_format"),
    ] {
        embed(fields).await.error(400, BAD, Some(param));
    }
}
