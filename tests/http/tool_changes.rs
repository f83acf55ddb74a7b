//! Tools that come and go in the middle of a conversation on `/v1/messages`.

use serde_json::{Value, json};

use super::fixture::{Server, say};
use super::messages::{prompt_of, request as message, roomy};

const BAD: &str = "invalid_request_error";

fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "input_schema": {"type": "object"}})
}

/// A conversation that changes its tools before its second question.
fn changing(tools: &Value, changes: &Value) -> Value {
    message(json!({"tools": tools, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "system", "content": changes},
        {"role": "user", "content": "Go on."},
    ]}))
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"type": kind, "tool": {"type": "tool_reference", "name": name}})
}

fn definition(definition: Value) -> Value {
    json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}})
}

#[tokio::test]
async fn the_prompt_changes_where_the_tools_do() {
    let server = Server::start(roomy(), |_| say("x")).await;
    let ask = async |changes: Value| {
        let body = changing(&json!([tool("first"), tool("second")]), &changes);
        let answer = server.client.post("/v1/messages", &body).await;
        assert_eq!(
            (answer.status, answer.header("x-sconce-ignored")),
            (200, None),
            "{}",
            answer.text
        );
        let prompt = prompt_of(&server);
        let offered = ["first", "second", "third"]
            .into_iter()
            .filter(|name| prompt.contains(&format!("Does {name}.")));
        (offered.collect::<Vec<_>>(), prompt)
    };
    let (described, unchanged) = ask(json!([{"type": "text", "text": "Well."}])).await;
    assert_eq!(described, ["first", "second"]);
    let begins = unchanged.split("Yes?").next().unwrap();
    let (described, prompt) = ask(json!([reference("tool_removal", "first")])).await;
    assert_eq!(described, ["first", "second"]);
    assert!(prompt.starts_with(begins), "the cache keeps {begins:?} of {prompt}");
    let told = prompt.find("The tool first is not available any more.").unwrap();
    assert!(prompt.find("Yes?").unwrap() < told && told < prompt.find("Go on.").unwrap());
    let (described, prompt) = ask(json!([definition(tool("third"))])).await;
    assert_eq!(described, ["first", "second", "third"]);
    assert!(prompt.starts_with(begins) && !begins.contains("third"), "{prompt}");
    assert!(prompt.contains("The tool third is available: {"), "{prompt}");
    let back = json!([reference("tool_removal", "first"), reference("tool_addition", "first")]);
    let (described, prompt) = ask(back).await;
    assert_eq!(described, ["first", "second"]);
    assert!(prompt.contains("The tool first is available."), "{prompt}");
}

#[tokio::test]
async fn a_tool_that_was_removed_can_not_be_called() {
    let server = Server::start(roomy(), |_| say("x")).await;
    let tools = json!([tool("first"), tool("second")]);
    let mut body = changing(&tools, &json!([reference("tool_removal", "first")]));
    body["tool_choice"] = json!({"type": "tool", "name": "first"});
    let refused = server.client.post("/v1/messages", &body).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    body["messages"][2]["content"] =
        json!([reference("tool_removal", "first"), reference("tool_addition", "first")]);
    let answer = server.client.post("/v1/messages", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_tool_that_was_added_can_be_called() {
    let server =
        Server::saying("<tool_call>\n{\"name\": \"late\", \"arguments\": {}}\n</tool_call>").await;
    let mut body = changing(&json!([]), &json!([definition(tool("late"))]));
    let answer = server.client.post("/v1/messages", &body).await.json();
    assert_eq!(
        (&answer["content"][0]["name"], &answer["stop_reason"]),
        (&json!("late"), &json!("tool_use"))
    );
    body["tool_choice"] = json!({"type": "tool", "name": "late"});
    assert_eq!(server.client.post("/v1/messages", &body).await.status, 200);
    body["messages"][2]["content"] =
        json!([definition(tool("late")), reference("tool_removal", "late"),]);
    let refused = server.client.post("/v1/messages", &body).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
}

#[tokio::test]
async fn tools_of_the_provider_are_named() {
    let server = Server::saying("x").await;
    let hosted = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    for (change, ignored) in [
        (reference("tool_removal", "web_search"), "messages[2].content[0], tools[0]"),
        (
            json!({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "x"}}),
            "messages[2].content[0]",
        ),
        (
            definition(json!({"type": "web_fetch_20250910", "name": "web_fetch"})),
            "messages[2].content[0].tool.definition",
        ),
    ] {
        let body = changing(&hosted, &json!([change, {"type": "text", "text": "Well."}]));
        let answer = server.client.post("/v1/messages", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let named = answer.header("x-sconce-ignored").unwrap();
        for path in ignored.split(", ") {
            assert!(named.contains(path), "{named}");
        }
    }
}

#[tokio::test]
async fn changes_of_nothing_are_refused() {
    let server = Server::saying("x").await;
    for (change, param) in [
        (reference("tool_removal", "none"), "messages[2].content[0].tool.name"),
        (reference("tool_addition", "none"), "messages[2].content[0].tool.name"),
        (
            json!({"type": "tool_removal", "tool": {"type": "x"}}),
            "messages[2].content[0].tool.type",
        ),
        (json!({"type": "tool_removal"}), "messages[2].content[0]"),
    ] {
        let body = changing(&json!([tool("first")]), &json!([change]));
        let answer = server.client.post("/v1/messages", &body).await;
        let told = answer.json();
        assert_eq!((answer.status, &told["error"]["type"]), (400, &json!(BAD)), "{told}");
        assert!(told["error"]["message"].as_str().unwrap().contains(param), "{told}");
    }
    let mut body = changing(&json!([tool("first")]), &json!([reference("tool_removal", "first")]));
    body["messages"][2]["role"] = json!("user");
    assert_eq!(server.client.post("/v1/messages", &body).await.status, 400);
}
