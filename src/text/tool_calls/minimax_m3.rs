//! The calls of MiniMax M3: every tag stands behind a mark of its own, calls between `<tool_call>` and
//! `</tool_call>`, each within `<invoke name="NAME">` and `</invoke>`, and in it `<KEY>VALUE</KEY>`.
//!
//! Source: the model's chat template.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::nested_tags::{self, MARK, NestedTags};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "minimax_m3",
    detect: |template| template.contains(MARK),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[MARK],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "]<]minimax[>[<tool_call>",
    begin: "\n",
    each: nested_tags::INVOKE,
    before: "",
    middle: "\">",
    arguments: Arguments::Own(nested_tags::arguments),
    after: "]<]minimax[>[</invoke>\n",
    between: "",
    close: "]<]minimax[>[</tool_call>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["]<]minimax[>[<tool_call>", nested_tags::INVOKE],
    bare: &[],
    closers: &["]<]minimax[>[</tool_call>"],
    dropped: &[],
    reader: |opener, functions| Box::new(NestedTags::new(functions, opener == nested_tags::INVOKE)),
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Functions;
    use super::super::tests::{check, check_text, read_both};

    /// A call as it is read better: `^` is the mark.
    fn call(parameters: &str) -> String {
        format!("^<tool_call>\n^<invoke name=\"f\">{parameters}^</invoke>\n^</tool_call>")
            .replace('^', super::MARK)
    }

    #[test]
    fn values_nest() {
        for (parameters, json) in [
            ("", "{}"),
            ("^<a>1^</a>^<b> x\n^</b>", "{\"a\": 1, \"b\": \" x\\n\"}"),
            ("^<a>^<item>1^</item>^<item>x^</item>^</a>", "{\"a\": [1,\"x\"]}"),
            (
                "^<a>^<k>^<l>true^</l>^</k>^<m>]<]^</m>^</a>",
                "{\"a\": {\"k\":{\"l\":true},\"m\":\"]<]\"}}",
            ),
        ] {
            check("minimax_m3", &call(parameters), "", &[("f", json)]);
        }
        let two = format!("Hm. {}{}", call("^<a>1^</a>"), call(""));
        check("minimax_m3", &two, "Hm.", &[("f", "{\"a\": 1}"), ("f", "{}")]);
    }

    #[test]
    fn the_schema_tells_what_a_value_is() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let item = json!({"type": "object", "properties": {"item": {"type": "integer"}}});
        let properties = json!({"a": {"type": "string"}, "l": list, "o": item});
        let functions = Functions::new([("f".to_owned(), json!({"properties": properties}))]);
        let check = |parameters: &str, json: &str| {
            let found = read_both("minimax_m3", &functions, &call(parameters));
            assert_eq!(found, (String::new(), vec![("f".to_owned(), json.to_owned())]));
        };
        check("^<a>12^</a>", "{\"a\": \"12\"}");
        check("^<l>^<item>12^</item>^</l>", "{\"l\": [\"12\"]}");
        check("^<l>^</l>^<o>^</o>", "{\"l\": [], \"o\": {}}");
        check("^<o>^<item>12^</item>^</o>", "{\"o\": {\"item\":12}}");
    }

    #[test]
    fn what_is_malformed_is_content() {
        check_text("minimax_m3", "<tool_call><invoke name=\"f\"></invoke></tool_call>");
        check_text("minimax_m3", &call("").replace("invoke name", "call name"));
        check_text("minimax_m3", &call("").replace("\"f\"", "\"f g\""));
        check_text("minimax_m3", &call("^>"));
        let rest = "^</invoke>\n^</tool_call>".replace('^', super::MARK);
        let begun = [("f", "{\"a\": 1")];
        check("minimax_m3", &call("^<a>1^</a> no"), &format!(" no{rest}"), &begun);
    }
}
