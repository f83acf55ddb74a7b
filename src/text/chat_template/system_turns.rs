//! Messages where a template takes none: templates are written for one message of the system at the
//! start, and clients send several, and more of them later; and some want user and assistant to
//! take turns, where clients send several messages of the user in a row.
//!
//! What a template takes is found by rendering small conversations, once: a message is taken if the
//! template doesn't refuse it and its text is in the prompt.

use std::fmt;

use serde_json::{Value, json};

/// Which messages of the system a template takes, and whether the user may speak twice in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct SystemTurns {
    /// One at the start.
    pub first: bool,
    /// Several at the start.
    pub several: bool,
    /// One after others have spoken.
    pub later: bool,
    /// Two messages of the user in a row.
    pub repeated_user: bool,
}

impl fmt::Display for SystemTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.first, self.several, self.later) {
            (true, true, true) => "taken anywhere",
            (true, true, false) => "later ones are moved to the start",
            (true, false, true) => "several at the start are joined",
            (true, false, false) => "all are joined at the start",
            (false, ..) => "all are put before the first message of the user",
        })?;
        f.write_str(if self.repeated_user { "" } else { "; those of the user in a row are joined" })
    }
}

impl SystemTurns {
    /// Has conversations rendered to see what a template takes; `None` is one that it refuses.
    pub(super) fn of(render: impl Fn(Vec<Value>) -> Option<String>) -> Self {
        let takes = |roles: &[&str]| {
            let text = |at: usize| format!("probe-{at}-text");
            let message = |(at, role): (usize, &&str)| json!({"role": role, "content": text(at)});
            let prompt = render(roles.iter().enumerate().map(message).collect());
            prompt.is_some_and(|prompt| (0..roles.len()).all(|at| prompt.contains(&text(at))))
        };
        if !takes(&["user"]) {
            // It needs more than messages, so nothing can be found out.
            return Self { first: true, several: true, later: true, repeated_user: true };
        }
        Self {
            first: takes(&["system", "user"]),
            several: takes(&["system", "system", "user"]),
            later: takes(&["system", "user", "assistant", "system", "user"])
                && takes(&["user", "system"]),
            repeated_user: takes(&["user", "user"]),
        }
    }

    /// The messages in a form that the template takes. Those that it takes as they are stay so.
    pub(super) fn arrange(self, messages: Vec<Value>) -> Vec<Value> {
        let messages = self.with_system(messages);
        if self.repeated_user { messages } else { joined(messages) }
    }

    fn with_system(self, messages: Vec<Value>) -> Vec<Value> {
        let count = messages.len();
        let start = messages.iter().take_while(|message| is_system(message)).count();
        let later = messages.iter().skip(start).any(is_system);
        let fits =
            (start == 0 || self.first) && (start < 2 || self.several) && (!later || self.later);
        // A conversation of nothing else has nowhere to put it.
        if fits || start == count {
            return messages;
        }
        let moves = !self.first || !self.later;
        let mut at = 0;
        let (system, mut rest): (Vec<Value>, Vec<Value>) = messages.into_iter().partition(|one| {
            at += 1;
            is_system(one) && (moves || at <= start)
        });
        let texts: Vec<&str> = system.iter().filter_map(|one| one["content"].as_str()).collect();
        let text = texts.join("\n\n");
        if self.first {
            let mut first = system[0].clone();
            first["content"] = Value::String(text);
            rest.insert(0, first);
        } else if let Some(user) = rest.iter_mut().find(|one| one["role"] == "user") {
            match &mut user["content"] {
                Value::Array(parts) => parts.insert(0, json!({"type": "text", "text": text})),
                said => {
                    let before = said.as_str().unwrap_or_default();
                    *said = Value::String(format!("{text}\n\n{before}"));
                }
            }
        } else {
            rest.insert(0, json!({"role": "user", "content": text}));
        }
        rest
    }
}

/// With one message of the user where there were several in a row.
fn joined(messages: Vec<Value>) -> Vec<Value> {
    let mut turns: Vec<Value> = Vec::with_capacity(messages.len());
    for message in messages {
        let both = |last: &&mut Value| last["role"] == "user" && message["role"] == "user";
        let last = turns.last_mut().filter(both);
        match (last, message["content"].as_str()) {
            (Some(last), Some(text)) if last["content"].is_string() => {
                let said = last["content"].as_str().unwrap_or_default();
                last["content"] = Value::String(format!("{said}\n\n{text}"));
            }
            _ => turns.push(message),
        }
    }
    turns
}

fn is_system(message: &Value) -> bool {
    message["role"] == "system" || message["role"] == "developer"
}

#[cfg(test)]
mod tests {
    use super::super::super::special_tokens::SpecialTokens;
    use super::super::{ChatPrompt, ChatTemplate};
    use super::*;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(source, SpecialTokens::default()).unwrap()
    }

    fn said(messages: &[(&str, &str)]) -> Vec<Value> {
        messages.iter().map(|(role, text)| json!({"role": role, "content": text})).collect()
    }

    const ANY: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
    const FIRST: &str = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
        {{ raise_exception('at the beginning') }}{% endif %}{{ m.role }}:{{ m.content }};\
        {% endfor %}";
    const DROPS: &str = "{% for m in messages %}{% if m.role != 'system' or loop.first %}\
        {{ m.role }}:{{ m.content }};{% endif %}{% endfor %}";
    const NONE: &str = "{% for m in messages %}{% if m.role == 'system' %}\
        {{ raise_exception('no system') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";

    #[test]
    fn what_a_template_takes_is_found_by_rendering() {
        let turns =
            |first, several, later| SystemTurns { first, several, later, repeated_user: true };
        assert_eq!(template(ANY).system_turns(), turns(true, true, true));
        for source in [FIRST, DROPS] {
            assert_eq!(template(source).system_turns(), turns(true, false, false), "{source}");
        }
        assert_eq!(template(NONE).system_turns(), turns(false, false, false));
    }

    #[test]
    fn messages_of_the_user_are_joined_where_sides_take_turns() {
        const TURNS: &str = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
            {{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }};{% endfor %}";
        let messages = said(&[("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")]);
        let template = template(TURNS);
        assert!(template.system_turns().to_string().ends_with("in a row are joined"));
        let expected = said(&[("user", "a\n\nb"), ("assistant", "c"), ("user", "d")]);
        assert_eq!(template.arrange(messages), expected);
    }

    #[test]
    fn a_template_that_needs_more_than_messages_is_left_alone() {
        let template = template("{{ tools | length }}{{ messages[0].content }}");
        let messages = said(&[("user", "a"), ("system", "b")]);
        assert_eq!(template.arrange(messages.clone()), messages);
    }

    #[test]
    fn every_text_is_in_the_prompt_whatever_the_template() {
        let conversations = [
            said(&[("system", "a"), ("developer", "b"), ("user", "c")]),
            said(&[("user", "a"), ("system", "b")]),
            said(&[
                ("system", "a"),
                ("user", "b"),
                ("assistant", "c"),
                ("system", "d"),
                ("user", "e"),
            ]),
        ];
        for source in [ANY, FIRST, DROPS, NONE] {
            let template = template(source);
            for messages in &conversations {
                let arranged = template.arrange(messages.clone());
                let prompt = template.render(&ChatPrompt::new(arranged).unwrap()).unwrap();
                for message in messages {
                    assert!(prompt.contains(message["content"].as_str().unwrap()), "{prompt}");
                }
            }
        }
    }

    #[test]
    fn what_is_taken_stays_as_it_is() {
        let messages = said(&[("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")]);
        assert_eq!(template(FIRST).arrange(messages.clone()), messages);
        let late = said(&[("user", "b"), ("system", "a")]);
        assert_eq!(template(ANY).arrange(late.clone()), late);
        let expected = said(&[("system", "a"), ("user", "b")]);
        assert_eq!(template(DROPS).arrange(late.clone()), expected);
        assert_eq!(template(NONE).arrange(late), said(&[("user", "a\n\nb")]));
    }
}
