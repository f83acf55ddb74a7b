//! How a family writes its calls, as data that a grammar is made of. Refuses to know how.

use serde_json::Value;

use super::lark::Lark;
use super::literal_grammar::Literals;
use super::rules::CallRules;
use super::tagged::Tags;

/// How a family writes calls.
#[derive(Debug)]
pub(super) struct Shape {
    /// What opens all calls, once.
    pub(super) open: &'static str,
    /// What stands behind `open`, once.
    pub(super) begin: &'static str,
    /// What opens each call.
    pub(super) each: &'static str,
    /// What stands between `each` and the function's name.
    pub(super) before: &'static str,
    /// What stands between name and arguments.
    pub(super) middle: &'static str,
    pub(super) arguments: Arguments,
    /// What stands behind the arguments.
    pub(super) after: &'static str,
    /// What stands between two calls.
    pub(super) between: &'static str,
    /// What closes all calls, once.
    pub(super) close: &'static str,
    /// First characters of calls where nothing opens them.
    pub(super) bare: &'static [char],
}

/// How a family's grammar is written.
#[derive(Clone, Copy)]
pub(super) enum Grammar {
    Shape(&'static Shape),
    /// Written by a function of the family's, from its markers.
    Own(fn(&'static [&'static str], &CallRules) -> String),
}

/// How a family writes arguments.
#[derive(Debug)]
pub(super) enum Arguments {
    Json,
    Tags(&'static Tags),
    Literals(&'static Literals),
    /// Written by a function of the family's, from the schema of a call's arguments.
    Own(fn(&mut Lark, &Value) -> String),
}

/// A call that is a JSON object, alone.
pub(super) const JSON_CALL: Shape = Shape {
    open: "",
    begin: "",
    each: "",
    before: "{\"name\": \"",
    middle: "\", \"arguments\": ",
    arguments: Arguments::Json,
    after: "}",
    between: ", ",
    close: "",
    bare: &[],
};

/// Calls that `each` opens, the name and the tags of its arguments behind it, on lines of their own.
pub(super) const fn tagged_call(each: &'static str, tags: &'static Tags) -> Shape {
    Shape {
        each,
        before: "",
        middle: "",
        arguments: Arguments::Tags(tags),
        after: "",
        between: "\n",
        ..JSON_CALL
    }
}
