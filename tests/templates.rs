//! Real chat templates render to the byte as transformers renders them.

use std::path::{Path, PathBuf};

use chrono::NaiveDateTime;
use sconce::text::chat_template::{ChatPrompt, ChatTemplate, TemplateError};
use sconce::text::special_tokens::SpecialTokens;
use serde_json::{Map, Value};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates")
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a fixture");
    serde_json::from_str(&text).expect("a JSON fixture")
}

fn prompt(conversation: &Value, now: NaiveDateTime) -> ChatPrompt {
    let list = |name: &str| conversation.get(name).and_then(Value::as_array).cloned();
    let flag = |name: &str| conversation.get(name).and_then(Value::as_bool).unwrap_or(false);
    ChatPrompt {
        messages: list("messages").expect("a conversation"),
        tools: list("tools"),
        documents: list("documents"),
        add_generation_prompt: flag("add_generation_prompt"),
        continue_final_message: flag("continue_final_message"),
        kwargs: conversation.get("kwargs").and_then(Value::as_object).cloned().unwrap_or_default(),
        now: Some(now),
    }
}

/// Describes a difference, or says nothing.
fn difference(expected: &Value, rendered: &Result<String, TemplateError>) -> Option<String> {
    match (expected.get("text").and_then(Value::as_str), rendered) {
        (Some(text), Ok(rendered)) if text == rendered => None,
        (None, _) if expected["kind"] == "other" => None,
        (None, Err(TemplateError::Raised(_))) => None,
        _ => Some(format!("expected {expected}\nrendered {rendered:?}")),
    }
}

fn expected_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixtures().join("expected")).expect("fixtures");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a fixture").path()).collect();
    files.sort();
    files
}

#[test]
fn render_as_transformers_renders() {
    let meta = json(&fixtures().join("meta.json"));
    let now = NaiveDateTime::parse_from_str(meta["now"].as_str().unwrap(), "%Y-%m-%dT%H:%M:%S");
    let now = now.unwrap();
    let special_tokens = SpecialTokens::from_json(&meta["special_tokens"]);
    let conversations: Map<String, Value> =
        json(&fixtures().join("conversations.json")).as_object().unwrap().clone();
    let (mut count, mut differences) = (0, Vec::new());
    for file in expected_files() {
        let expected = json(&file);
        let name = expected["template"].as_str().unwrap();
        let source = std::fs::read_to_string(fixtures().join("data").join(name)).unwrap();
        let template = ChatTemplate::new(&source, special_tokens.clone()).unwrap();
        for (case, expected) in expected["cases"].as_object().unwrap() {
            let rendered = template.render(&prompt(&conversations[case], now));
            count += 1;
            let difference = difference(expected, &rendered);
            differences.extend(difference.map(|text| format!("{name}, {case}: {text}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert_eq!(count, 41 * 24);
}

#[test]
fn every_template_names_its_source_and_licence() {
    for file in expected_files() {
        let expected = json(&file);
        assert!(expected["source"].as_str().is_some_and(|source| !source.is_empty()), "{file:?}");
        let licence = expected["licence"].as_str().unwrap();
        assert!(licence.starts_with("MIT") || licence.starts_with("Apache-2.0"), "{file:?}");
    }
}

/// What agents send: messages of the system one after another, and later ones.
#[test]
fn every_template_renders_messages_of_the_system_anywhere() {
    let special_tokens =
        SpecialTokens::from_json(&json(&fixtures().join("meta.json"))["special_tokens"]);
    let conversations: [&[(&str, &str)]; 3] = [
        &[("system", "rules-a"), ("system", "rules-b"), ("user", "asks-a")],
        &[("user", "asks-a"), ("system", "rules-a")],
        &[
            ("system", "rules-a"),
            ("user", "asks-a"),
            ("assistant", "says-a"),
            ("system", "rules-b"),
            ("user", "asks-b"),
        ],
    ];
    let (mut refused, mut unrelated) = (Vec::new(), 0);
    for file in expected_files() {
        let name = json(&file)["template"].as_str().unwrap().to_owned();
        let source = std::fs::read_to_string(fixtures().join("data").join(&name)).unwrap();
        let template = ChatTemplate::new(&source, special_tokens.clone()).unwrap();
        for conversation in conversations {
            let message =
                |(role, text): &(&str, &str)| serde_json::json!({"role": role, "content": text});
            let messages: Vec<Value> = conversation.iter().map(message).collect();
            let mut others = messages.clone();
            others.retain(|message| message["role"] != "system");
            // Two render no such conversation at all: one without tools, one with what follows.
            if template.render(&ChatPrompt::new(others).unwrap()).is_err() {
                unrelated += 1;
                continue;
            }
            let prompt = ChatPrompt::new(template.arrange(messages)).unwrap();
            match template.render(&prompt) {
                Ok(prompt) if conversation.iter().all(|(_, text)| prompt.contains(text)) => {}
                other => refused.push(format!("{name} ({}): {other:?}", template.system_turns())),
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    assert!(unrelated <= 4, "{unrelated} of {} are not looked at", 3 * 41);
}
