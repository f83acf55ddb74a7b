//! The calls of DeepSeek V3.2 and V4: within `<｜DSML｜tool_calls>` (V3.2: `<｜DSML｜function_calls>`) one
//! `<｜DSML｜invoke name="NAME">` for each call, in it `<｜DSML｜parameter name="KEY" string="true|false">`:
//! a text as it is, or a JSON document.
//!
//! Source: the models' chat templates.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::shape::{Arguments, Grammar, JSON_CALL, Shape};
use super::tagged::{PLAIN, Says, Tagged, Tags};

pub(super) const FAMILY: Family = Family {
    name: "deepseek_dsml",
    detect: is_family_of,
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &["｜DSML｜"],
    always: false,
    grammar: Grammar::Shape(&SHAPE),
};

static SHAPE: Shape = Shape {
    open: "<｜DSML｜tool_calls>",
    each: "\n<｜DSML｜invoke name=\"",
    before: "",
    middle: "\">",
    arguments: Arguments::Tags(&TAGS),
    after: "",
    between: "",
    close: "\n</｜DSML｜tool_calls>",
    ..JSON_CALL
};

static FRAME: Frame = Frame {
    openers: &["<｜DSML｜tool_calls>", "<｜DSML｜function_calls>", "<｜DSML｜invoke name=\""],
    bare: &[],
    closers: &["</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"],
    dropped: &[],
    reader: |opener, functions| Box::new(Tagged::new(&TAGS, functions, opener == TAGS.lead)),
};

static TAGS: Tags = Tags {
    lead: "<｜DSML｜invoke name=\"",
    key_open: "<｜DSML｜parameter name=\"",
    key_end: ">",
    says: Says::IsText,
    value_close: "</｜DSML｜parameter>",
    close: "</｜DSML｜invoke>",
    ..PLAIN
};

fn is_family_of(template: &str) -> bool {
    template.contains("｜DSML｜")
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn the_tag_tells_texts_from_values() {
        let call = |is_text: &str| {
            let open = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n";
            let parameter = format!("<｜DSML｜parameter name=\"a\"{is_text}>1</｜DSML｜parameter>");
            format!("{open}{parameter}\n</｜DSML｜invoke>\n</｜DSML｜function_calls>")
        };
        check("deepseek_dsml", &call(" string=\"true\""), "", &[("f", "{\"a\": \"1\"}")]);
        check("deepseek_dsml", &call(" string=\"false\""), "", &[("f", "{\"a\": 1}")]);
        check("deepseek_dsml", &call(""), "", &[("f", "{\"a\": 1}")]);
    }
}
