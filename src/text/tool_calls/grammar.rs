//! Grammars of calls: for a request's functions, what a model may write so that its calls are well
//! formed, in a family's format, with arguments by the functions' schemas.
//!
//! Free text before calls ends where the family's opening text is complete; from there on only a call
//! can follow. What a grammar accepts, the family's parser reads.

use serde_json::{Value, json};

use super::lark::{Lark, TEXT, string};
use super::rules::{CallRules, FunctionRule};
use super::shape::{Arguments, Shape};
use super::{literal_grammar, tagged_grammar};

/// The grammar of answers whose calls have a shape.
pub(super) fn grammar(
    shape: &Shape,
    markers: &'static [&'static str],
    rules: &CallRules,
) -> String {
    let mut lark = Lark::new(markers, rules);
    let calls = calls(&mut lark, shape);
    let trigger = if shape.open.is_empty() { shape.each } else { shape.open };
    let answer = if trigger.is_empty() {
        bare_answer(&mut lark, &calls, shape.bare)
    } else {
        marked_answer(&mut lark, &calls, trigger)
    };
    lark.finish(&answer)
}

/// Adds the rule of calls in a shape, from behind the text that opens them; gives its name.
pub(super) fn calls(lark: &mut Lark, shape: &Shape) -> String {
    let rules = lark.rules;
    let calls: Vec<String> =
        rules.functions.iter().map(|function| call(lark, shape, function)).collect();
    let call = lark.rule(&calls.join(" | "));
    let each = if shape.open.is_empty() { "" } else { shape.each };
    let begin = lark.literal(&[shape.begin, each].concat());
    // Templates of a family disagree on the line ends between calls.
    let between = if shape.between == "\n" && !shape.each.is_empty() {
        format!("/\\n?/ {}", lark.literal(shape.each))
    } else {
        lark.literal(&[shape.between, shape.each].concat())
    };
    let more = if rules.parallel { format!("({between} {call})*") } else { String::new() };
    lark.rule(&format!("{begin} {call} {more} {}", lark.literal(shape.close)))
}

/// Adds the rule of a call in a shape, from behind the text that opens each; gives its name.
pub(super) fn call(lark: &mut Lark, shape: &Shape, function: &FunctionRule) -> String {
    let in_json = shape.before.ends_with("{\"") || shape.before.ends_with(": \"");
    let name = if in_json {
        let quoted = json!(function.name).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    } else {
        function.name.clone()
    };
    let head = lark.literal(&[shape.before, &name, shape.middle].concat());
    let arguments = match (&shape.arguments, &function.text) {
        (Arguments::Json, None) => Lark::json(&object_schema(&function.schema)),
        (Arguments::Json, Some(text)) => {
            let open = format!("{{{}: \"", Value::from(text.name.as_str()));
            format!("{} {} {}", string(&open), text.quoted, string("\"}"))
        }
        (Arguments::Tags(tags), None) => tagged_grammar::parameters(lark, tags, &function.schema),
        (Arguments::Tags(tags), Some(text)) => tagged_grammar::text(lark, tags, text),
        (Arguments::Literals(literals), None) => {
            literal_grammar::arguments(lark, literals, &function.schema)
        }
        (Arguments::Literals(literals), Some(text)) => literal_grammar::text(literals, text),
        // The text is a text, but not held to its grammar there.
        (Arguments::Own(write), _) => write(lark, &function.schema),
    };
    lark.rule(&format!("{head} {arguments} {}", lark.literal(shape.after)))
}

/// An answer whose calls an opening text tells.
fn marked_answer(lark: &mut Lark, calls: &str, trigger: &str) -> String {
    let opener = lark.literal(trigger);
    let rules = lark.rules;
    if rules.required && !rules.preamble {
        return format!("/[ \\n]{{0,4}}/ {opener} {calls}");
    }
    if let Some(answer) = &rules.answer {
        return format!("{answer} | /[ \\n]{{0,4}}/ {opener} {calls}");
    }
    let text_and_calls = format!("{} {calls}", lark.text_until(trigger));
    if rules.required { text_and_calls } else { format!("{TEXT} | {text_and_calls}") }
}

/// An answer that is either calls, told by their first character, or text.
fn bare_answer(lark: &mut Lark, calls: &str, bare: &[char]) -> String {
    if lark.rules.required {
        return format!("/[ \\n]{{0,4}}/ {calls}");
    }
    if let Some(answer) = &lark.rules.answer {
        return format!("{answer} | {calls}");
    }
    let first: Vec<String> = bare.iter().map(|c| format!("\\{c}")).collect();
    format!("/[^{}\\s](?s:.*)/ | {calls}", first.concat())
}

/// A schema that allows objects only.
fn object_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(members) if ["type", "$ref"].iter().any(|key| members.contains_key(*key)) => {
            schema.clone()
        }
        Value::Object(members) => {
            let mut members = members.clone();
            members.insert("type".to_owned(), json!("object"));
            Value::Object(members)
        }
        _ => json!({"type": "object"}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{grammar, names};
    use super::*;

    fn written(family: &str, required: bool, token_id: &dyn Fn(&str) -> Option<u32>) -> String {
        let schema = json!({"properties": {"a": {"type": "string"}}, "required": ["a"]});
        let functions = [FunctionRule { name: "f".to_owned(), schema, text: None }];
        let (preamble, parallel, reasoning) = (false, true, None);
        let functions = &functions;
        let answer = None;
        let rules =
            CallRules { functions, required, preamble, parallel, answer, reasoning, token_id };
        grammar(family, &rules).unwrap()
    }

    #[test]
    fn required_calls_begin_the_answer() {
        let expected = concat!(
            "start: r4\n",
            "r1: \"\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \" %json ",
            "{\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"],\"type\":\"object\"}",
            " \"}\\n\" <[8]>\n",
            "r2: r1\n",
            "r3:  r2 (/\\n?/ <[7]> r2)* \n",
            "r4: /[ \\n]{0,4}/ <[7]> r3\n",
        );
        let ids = |text: &str| match text {
            "<tool_call>" => Some(7),
            "</tool_call>" => Some(8),
            _ => None,
        };
        assert_eq!(written("hermes", true, &ids), expected);
    }

    #[test]
    fn text_ends_where_a_call_opens() {
        let lark = written("hermes", false, &|_| None);
        assert!(lark.contains("[lazy]: /(?s:.*)/ \"<tool_call>\"\n"), "{lark}");
        let lark = written("hermes", false, &|text| (text == "<tool_call>").then_some(7));
        assert!(lark.contains("/(?s:.*)/ | /(?s:.*)/ <[7]> "), "{lark}");
        let lark = written("llama3_json", false, &|_| None);
        assert!(lark.contains("/[^\\{\\s](?s:.*)/ | "), "{lark}");
    }

    #[test]
    fn every_family_has_a_grammar() {
        for name in names() {
            let lark = written(name, true, &|_| None);
            assert!(lark.starts_with("start: ") && lark.contains('f'), "{name}: {lark}");
        }
        let token_id = &|_: &str| None;
        let (required, preamble, parallel, reasoning) = (true, false, true, None);
        let functions: &[FunctionRule] = &[];
        let answer = None;
        let rules =
            CallRules { functions, required, preamble, parallel, answer, reasoning, token_id };
        assert_eq!(grammar("hermes", &rules), None);
    }
}
