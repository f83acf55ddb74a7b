//! Ids of tool calls for templates that want them in a form of their own: Mistral's take nine letters
//! and digits, and refuse the ids of other servers and clients.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Characters of an id.
const LENGTH: usize = 9;
/// What templates say that want such ids.
const DEMAND: &str = "length 9";

/// The messages with ids that the template takes: those of a call and of its result stay the same.
pub(super) fn adapted(mut messages: Vec<Value>, source: &str) -> Vec<Value> {
    if !source.contains(DEMAND) {
        return messages;
    }
    for message in &mut messages {
        if let Some(id) = message.get_mut("tool_call_id") {
            adapt(id);
        }
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for id in calls.into_iter().flatten().filter_map(|call| call.get_mut("id")) {
            adapt(id);
        }
    }
    messages
}

fn adapt(id: &mut Value) {
    let Value::String(id) = id else { return };
    let fits = id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !fits {
        *id = short(id);
    }
}

/// The same for the same id, and different ones for different ids as far as hashes are.
fn short(id: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let mut rest = hasher.finish();
    let digit = || {
        let digit = DIGITS[(rest % 62) as usize];
        rest /= 62;
        char::from(digit)
    };
    std::iter::repeat_with(digit).take(LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_results_keep_belonging_together() {
        let messages = vec![
            json!({"role": "assistant", "tool_calls": [{"id": "call_1"}, {"id": "abcDEF123"}]}),
            json!({"role": "tool", "tool_call_id": "call_1"}),
            json!({"role": "tool", "tool_call_id": "abcDEF123"}),
        ];
        assert_eq!(adapted(messages.clone(), "{{ messages }}"), messages);
        let short = adapted(messages, "raise('... alphanumeric strings with length 9!')");
        let id = short[0]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        assert_eq!(short[1]["tool_call_id"], id);
        assert_eq!(short[0]["tool_calls"][1]["id"], "abcDEF123");
        assert_eq!(short[2]["tool_call_id"], "abcDEF123");
    }
}
