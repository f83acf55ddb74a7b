//! A chat page's first message to the embedded model: dozens of tools before a short question.

use serde_json::{Value, json};

use super::server::Server;

/// As many tools, with as long descriptions, as Open WebUI offers by default.
fn tools() -> Vec<Value> {
    let verbs = ["search", "view", "write", "replace", "list", "delete"];
    let things = ["notes", "chats", "channels", "files", "memories", "automations"];
    let pairs = verbs.iter().flat_map(|verb| things.iter().map(move |thing| (verb, thing)));
    let tool = |(verb, thing): (&&str, &&str)| {
        let about = format!(
            "{verb} the {thing} of the user. Use it when the user asks about {thing} explicitly; \
             returns a JSON list with id, title, snippet and the time of the last change (Unix, in \
             seconds)."
        );
        json!({"type": "function", "function": {"name": format!("{verb}_{thing}"),
        "description": about, "parameters": {"type": "object", "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for; a short sentence"},
            "count": {"type": "integer", "default": 5,
                "description": "Maximum number of results to return (default: 5)"},
            "start_timestamp": {"anyOf": [{"type": "integer"}, {"type": "null"}],
                "description": "Only results after this Unix timestamp, in seconds"},
        }}}})
    };
    pairs.map(tool).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_is_one_behind_the_tools_of_a_chat_page() {
    let server = Server::start(&[]);
    let body = json!({"model": "sconce-demo", "temperature": 0, "tools": tools(),
        "messages": [{"role": "user", "content": "Tell me a story about a lamp."}]});
    let answer = server.post("/v1/chat/completions", &body).await;
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 8000, "{answer}");
    let choice = &answer["choices"][0];
    let story = choice["message"]["content"].as_str().unwrap();
    assert_eq!(choice["finish_reason"], "stop", "{answer}");
    // Begun and ended, with the lamp in it all along.
    assert!(story.matches("lamp").count() >= 3 && story.ends_with('.'), "{story}");
}
