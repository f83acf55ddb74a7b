//! Grammars between the quotes of a JSON string: a text follows one exactly where its value follows
//! the grammar that it was made of.

use super::*;

/// The grammar with which Codex describes its patches.
const PATCH: &str = r#"start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
"#;

/// Grammars with values that follow them, and values that don't.
fn cases() -> Vec<(GrammarSpec, Vec<&'static str>, Vec<&'static str>)> {
    let lark = |text: &str| GrammarSpec::Lark(text.to_owned());
    vec![
        (
            lark(PATCH),
            vec![
                "*** Begin Patch\n*** Add File: a \"b\".txt\n+x\\n\t\u{1b}é\n+\n*** End Patch",
                "*** Begin Patch\n*** Update File: a\n@@\n-\"old\"\n+new\n*** End Patch\n",
                "*** Begin Patch\n*** Delete File: C:\\x\n*** End Patch",
            ],
            vec![
                "*** Begin Patch\n*** End Patch",
                "*** Begin Patch\n*** Add File: a\nx\n*** End Patch",
                "*** Begin Patch\\n*** Delete File: a\\n*** End Patch",
            ],
        ),
        // Recursive, with white space between all terminals.
        (
            lark(
                "start: expr\nexpr: INT | NAME | \"(\" expr OP expr \")\"\nOP: \"+\" | /[-*\\/]/\n%import common (INT, WS)\n%import common.CNAME -> NAME\n%ignore WS",
            ),
            vec!["(1 +\n\t(x * 3))", "7", "( a/(b-c))"],
            vec!["(1 +", "1 + 2", "(1 \" 2)"],
        ),
        (
            lark(
                "start: QUOTED \"..\" \"a\"..\"c\" \"Select\"i /x{2,3}|\\/\\w?/i\nQUOTED: \"\\\"\" /[^\"]{0,4}/ \"\\\"\"",
            ),
            vec!["\"a\\b\"..bSELECTXX", "\"\n\"..cselect/é", "\"\"..aSelect/"],
            vec!["\"\"..dSelect/", "\"\"..aSelectx", "\"12345\"..aSelect/"],
        ),
        (
            lark("start: A\nA: ~/(?s:.*)\"(?s:.*)/ & /[a-z\"\\n]+/ & ~(\"a\" | \"b\\n\")"),
            vec!["ab\n", "b", "\n\n"],
            vec!["a", "b\n", "a\"", "A"],
        ),
        (lark("start: A? B\nA: \"[\"\nB: /x*/"), vec!["", "[", "[x"], vec!["[]"]),
        (lark("start: \"ab\"~2..3"), vec!["abab", "ababab"], vec!["ab", "abababab"]),
        (
            GrammarSpec::Regex("\\*{3} [^x]+/\"?|\\p{Greek}{2}".to_owned()),
            vec!["*** a\nb\u{0}/", "*** \u{7f}\\/\"", "αβ"],
            vec!["*** x/", "***", "α"],
        ),
    ]
}

#[test]
fn a_text_follows_where_its_value_does() {
    for (spec, right, wrong) in cases() {
        let plain = compile(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        let nested = COMPILER.nested_in_string(&spec).unwrap();
        let lark = format!("start: \"{{\\\"input\\\": \\\"\" {nested} \"\\\"}}\"");
        let quoted = compile(&GrammarSpec::Lark(lark)).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
        let cases = right.into_iter().map(|value| (value, true));
        for (value, follows) in cases.chain(wrong.into_iter().map(|value| (value, false))) {
            assert_eq!(accepts(&plain, value), follows, "{value:?} in {spec:?}");
            let text = format!("{{\"input\": {}}}", Value::from(value));
            assert_eq!(accepts(&quoted, &text), follows, "{text} in {spec:?}");
        }
    }
}

#[test]
fn what_is_no_text_is_refused_by_name() {
    for (grammar, told) in [
        ("start: <tool_call>", "< is no part"),
        ("start: @other", "@ is no part"),
        ("start: \"a\" b", "b is not defined"),
        ("start[capture]: \"a\"", "attributes"),
        ("start: (\"a\"", "not closed"),
        ("start: \"a\" start | ~/b/", "exclude"),
        ("start: %json {\"type\": \"null\"}", "%json"),
        ("start: %regex {\"substring_words\": \"a b\"}", "%regex"),
        ("start: /^a$/", "anchors"),
        ("start: /a\\b/", "anchors"),
        ("start: /a", "has no end"),
        ("start: /[/", "unclosed"),
        ("start: A\n%import python.NAME -> A", "common"),
        ("start: A\n%import common.NOTHING -> A", "NOTHING"),
    ] {
        let error = COMPILER.nested_in_string(&GrammarSpec::Lark(grammar.to_owned()));
        let error = error.expect_err(grammar).to_string();
        assert!(error.contains(told), "{grammar}: {error}");
    }
}
