//! The calls of DeepSeek V3 and R1, `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, then the arguments in
//! a fence of JSON, then `<｜tool▁call▁end｜>`; and of V3.1, `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}`.
//! All calls stand between `<｜tool▁calls▁begin｜>` and `<｜tool▁calls▁end｜>`.
//!
//! Source: the models' chat templates.

use super::family::Family;
use super::markup::{Frame, Markup};
use super::named_json::{Head, NamedJson, is_name, no_id};
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY_V31: Family = Family {
    name: "deepseek_v31",
    detect: |template| template.contains(MARKERS[0]) && !template.contains("```json"),
    parser: |functions| Markup::boxed(&FRAME_V31, functions),
    markers: &MARKERS,
    always: false,
    grammar: Grammar::Shape(&SHAPE_V31),
};

static SHAPE_V31: Shape = Shape {
    open: "<｜tool▁calls▁begin｜>",
    each: "<｜tool▁call▁begin｜>",
    before: "",
    middle: "<｜tool▁sep｜>",
    after: "<｜tool▁call▁end｜>",
    between: "",
    close: "<｜tool▁calls▁end｜>",
    ..JSON_CALL
};

static SHAPE_V3: Shape = Shape {
    open: "<｜tool▁calls▁begin｜>",
    each: "<｜tool▁call▁begin｜>",
    before: "function<｜tool▁sep｜>",
    middle: "\n```json\n",
    after: "\n```<｜tool▁call▁end｜>",
    between: "\n",
    close: "<｜tool▁calls▁end｜>",
    ..JSON_CALL
};

static FRAME_V31: Frame = Frame {
    openers: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    bare: &[],
    closers: &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    dropped: &[],
    reader: |opener, _| Box::new(NamedJson::new(&HEAD_V31, opener == HEAD_V31.lead)),
};

static HEAD_V31: Head = Head { lead: "<｜tool▁call▁begin｜>", name: name_v31, id: no_id };

pub(super) const FAMILY_V3: Family = Family {
    name: "deepseek_v3",
    detect: |template| template.contains(MARKERS[0]) && template.contains("```json"),
    parser: |functions| Markup::boxed(&FRAME_V3, functions),
    markers: &MARKERS,
    always: false,
    grammar: Grammar::Shape(&SHAPE_V3),
};

static FRAME_V3: Frame = Frame {
    openers: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    bare: &[],
    closers: &["```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    dropped: &[],
    reader: |opener, _| Box::new(NamedJson::new(&HEAD_V3, opener == HEAD_V3.lead)),
};

static HEAD_V3: Head = Head { lead: "<｜tool▁call▁begin｜>", name: name_v3, id: no_id };

const MARKERS: [&str; 5] = [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
];

fn name_v31(head: &str) -> Option<&str> {
    Some(head.trim().strip_suffix(MARKERS[2])?.trim()).filter(|name| is_name(name))
}

fn name_v3(head: &str) -> Option<&str> {
    let (kind, name) = head.trim().strip_suffix("```json")?.split_once(MARKERS[2])?;
    (kind.trim() == "function" && is_name(name.trim())).then(|| name.trim())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, check_text};

    #[test]
    fn marks_may_be_missing_around_a_call() {
        let v3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```";
        check("deepseek_v3", &format!("Hm.\n{v3}"), "Hm.", &[("f", "{\"a\": 1}")]);
        check_text("deepseek_v3", &v3.replace("function", "tool"));
        check_text("deepseek_v3", "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>");
        let v31 = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}";
        check("deepseek_v31", v31, "", &[("f", "{}")]);
        check_text("deepseek_v31", "<｜tool▁call▁begin｜>f g<｜tool▁sep｜>{}");
    }
}
