//! Structural tags.

use serde_json::json;

use super::super::spec::{StructuralTag, Tag};
use super::*;

fn tag(begin: &str, content: GrammarSpec, end: &str) -> Tag {
    Tag { begin: begin.to_owned(), content: Box::new(content), end: end.to_owned() }
}

fn functions(at_least_one: bool, stop_after_first: bool) -> Arc<Grammar> {
    let number = GrammarSpec::JsonSchema(
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}),
    );
    let tags = vec![
        tag("<function=add>", number, "</function>"),
        tag("<function=say>", GrammarSpec::Regex("[a-z ]*".to_owned()), "</function>"),
        tag(
            "<function=pick>",
            GrammarSpec::Choice(vec!["a".to_owned(), "ab".to_owned()]),
            "</function>",
        ),
    ];
    let triggers = vec!["<function=".to_owned()];
    let spec = StructuralTag { tags, triggers, at_least_one, stop_after_first };
    compile(&GrammarSpec::StructuralTag(spec)).unwrap()
}

const CALL: &str = "<function=add>{\"n\": 1}</function>";

#[test]
fn free_text_goes_on_until_a_trigger() {
    let grammar = functions(false, false);
    for text in [
        "",
        "hello <b>world</b> <functio",
        CALL,
        &format!("a{CALL}b{CALL}{CALL} <c"),
        "<function=say>hi there</function>",
        "<function=pick>ab</function>",
        "<function=pick>a</function>!",
    ] {
        assert!(accepts(&grammar, text), "{text}");
    }
    for text in [
        "<function=",
        "<function=foo>",
        "<function=add>{}</function>",
        "<function=add>{\"n\": 1}",
        "<function=say>Hi</function>",
        "<function=pick>b</function>",
    ] {
        assert!(!accepts(&grammar, text), "{text}");
    }
}

#[test]
fn tags_are_as_many_as_asked() {
    let once = functions(true, false);
    assert!(!accepts(&once, "") && !accepts(&once, "text") && accepts(&once, &format!("a{CALL}b")));
    assert!(accepts(&once, &format!("{CALL}{CALL}")));
    let exactly = functions(true, true);
    assert!(accepts(&exactly, &format!("a{CALL}")) && !accepts(&exactly, &format!("{CALL}b")));
    assert!(!accepts(&exactly, "a"));
    let at_most = functions(false, true);
    assert!(
        accepts(&at_most, "a")
            && accepts(&at_most, CALL)
            && !accepts(&at_most, &format!("{CALL}{CALL}"))
    );
}

#[test]
fn special_tokens_open_and_close_tags() {
    let object = GrammarSpec::JsonSchema(json!({"type": "object"}));
    let tags =
        vec![tag("<tool_call>\n", object.clone(), "\n</tool_call>"), tag("[TOOL]x", object, "")];
    let triggers = vec!["<tool_call>".to_owned(), "[TOOL]".to_owned()];
    let spec = StructuralTag { tags, triggers, at_least_one: false, stop_after_first: false };
    let grammar = compile(&GrammarSpec::StructuralTag(spec)).unwrap();
    assert!(accepts(&grammar, "a<tool_call>\n{}\n</tool_call>b"), "spelled out");
    let ids = |parts: &[&str]| -> Vec<u32> {
        let of = |part: &&str| match SPECIALS.iter().position(|special| special == part) {
            Some(index) => vec![256 + u32::try_from(index).unwrap()],
            None => part.bytes().map(u32::from).collect(),
        };
        parts.iter().flat_map(of).collect()
    };
    for (parts, good) in [
        (vec!["hi", "<tool_call>", "\n{}\n", "</tool_call>", "bye"], true),
        (
            vec![
                "<tool_call>",
                "\n{\"a\":1}\n",
                "</tool_call>",
                "<tool_call>",
                "\n{}\n</tool_call>",
            ],
            true,
        ),
        (vec!["[TOOL]", "x{}", "[TOOL]", "x{}"], true),
        (vec!["hi", "<tool_call>", "{}"], false),
        (vec!["</tool_call>"], false),
        (vec!["[TOOL]", "y"], false),
    ] {
        let mut cursor = grammar.cursor();
        let all = ids(&parts).iter().all(|id| cursor.accept(*id).is_ok());
        assert_eq!(all && cursor.can_end().unwrap(), good, "{parts:?}");
    }
    let mut cursor = grammar.cursor();
    let free = allowed(cursor.mask().unwrap());
    assert!(free.contains(&258) && free.contains(&260) && !free.contains(&259));
    assert!(free.contains(&EOS[0]) && free.contains(&u32::from(b'x')));
}

#[test]
fn tags_that_make_no_sense_are_refused() {
    let spec = |begin: &str, trigger: &str| {
        let tags = vec![tag(begin, GrammarSpec::JsonObject, "")];
        let triggers = vec![trigger.to_owned()];
        GrammarSpec::StructuralTag(StructuralTag {
            tags,
            triggers,
            at_least_one: false,
            stop_after_first: false,
        })
    };
    for (begin, trigger) in [("<a>", "<b>"), ("<a>", "")] {
        assert!(compile(&spec(begin, trigger)).is_err(), "{begin} {trigger}");
    }
    let uniform = json!({"type": "array", "uniqueItems": true});
    let tags = vec![tag("<a>", GrammarSpec::JsonSchema(uniform), "")];
    let spec = StructuralTag {
        tags,
        triggers: vec!["<a".to_owned()],
        at_least_one: true,
        stop_after_first: true,
    };
    let error = compile(&GrammarSpec::StructuralTag(spec)).unwrap_err();
    assert!(matches!(error, GrammarError::Unsupported { .. }), "{error}");
}

#[test]
fn content_may_be_a_grammar() {
    let lark = GrammarSpec::Lark("start: \"x\" start | \"y\"".to_owned());
    let gbnf = GrammarSpec::Gbnf("root ::= \"(\" root \")\" | \"z\"".to_owned());
    let tags = vec![tag("<l>", lark, "</l>"), tag("<g>", gbnf, "</g>")];
    let triggers = vec!["<l>".to_owned(), "<g>".to_owned()];
    let spec = StructuralTag { tags, triggers, at_least_one: false, stop_after_first: false };
    let grammar = compile(&GrammarSpec::StructuralTag(spec)).unwrap();
    assert!(accepts(&grammar, "a<l>xxy</l>b<g>((z))</g>"));
    assert!(!accepts(&grammar, "<l>xx</l>") && !accepts(&grammar, "<g>((z)</g>"));
}
