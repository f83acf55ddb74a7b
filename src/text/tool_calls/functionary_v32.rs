//! The calls of Functionary 3.2: an answer is parts, each with its recipient on a line of its own: `>>>NAME`,
//! then the arguments in JSON; text is for `all`. The prompt ends with the first `>>>`.
//!
//! Source: the model's chat template.

use super::event::Functions;
use super::family::Family;
use super::grammar;
use super::lark::{Lark, TEXT};
use super::markup::{Calls, Frame, Markup, Progress, Reader};
use super::named_json::{Head, NamedJson, is_name, no_id};
use super::rules::CallRules;
use super::shape::{Grammar, JSON_CALL, Shape};

pub(super) const FAMILY: Family = Family {
    name: "functionary_v32",
    detect: |template| template.contains("recipient==all") || template.contains(">>>all"),
    parser: |functions| Markup::boxed(&FRAME, functions),
    markers: &[],
    always: true,
    grammar: Grammar::Own(grammar_of_parts),
};

const MARK: &str = ">>>";
/// Whom text is for.
const ALL: &str = "all";

static SHAPE: Shape =
    Shape { each: MARK, before: "", middle: "\n", after: "", between: "", ..JSON_CALL };

static FRAME: Frame = Frame {
    openers: &[MARK],
    bare: &[
        'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r',
        's', 't', 'u', 'v', 'w', 'x', 'y', 'z', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J',
        'K', 'L', 'M', 'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z', '_',
    ],
    closers: &[],
    dropped: &[],
    reader: |opener, functions| Box::new(Recipient::new(opener.is_empty(), functions)),
};

static HEAD: Head =
    Head { lead: "", name: |head| Some(head.trim()).filter(|name| is_name(name)), id: no_id };

/// Reads a recipient, and the arguments where it is a function.
#[derive(Debug)]
struct Recipient {
    /// Whether no mark stands before it: what is no function's name is text.
    bare: bool,
    functions: Functions,
    /// The line of the recipient.
    line: String,
    json: NamedJson,
}

impl Recipient {
    fn new(bare: bool, functions: &Functions) -> Self {
        let json = NamedJson::new(&HEAD, true);
        Self { bare, functions: functions.clone(), line: String::new(), json }
    }

    fn is_known(&self, name: &str) -> bool {
        name == ALL || (is_name(name) && !(self.bare && self.functions.lack(name)))
    }
}

impl Reader for Recipient {
    fn feed(&mut self, c: char, calls: &mut Calls) -> Progress {
        if let Some(name) = self.line.strip_suffix('\n') {
            return match c {
                // What follows is text, and this its first character.
                _ if name.trim_end() == ALL => {
                    calls.commit();
                    Progress::Broken
                }
                c if c == '{' || c.is_whitespace() || self.json.in_markup() => {
                    self.json.feed(c, calls)
                }
                _ => Progress::Broken,
            };
        }
        self.line.push(c);
        let name = self.line.trim_end();
        let fits = if c == '\n' { self.is_known(name) } else { is_name(name) };
        if !fits {
            return Progress::Broken;
        }
        self.json.feed(c, calls)
    }

    fn in_markup(&self) -> bool {
        self.json.in_markup() || self.line.trim_end() == ALL
    }
}

/// The first part's mark is the prompt's, if it is anyone's.
fn grammar_of_parts(markers: &'static [&'static str], rules: &CallRules) -> String {
    let mut lark = Lark::new(markers, rules);
    let mark = format!("({})?", lark.literal(MARK));
    let calls = grammar::calls(&mut lark, &SHAPE);
    let all = lark.literal("all\n");
    let behind_text = format!("{} {calls}", lark.text_until(MARK));
    let answer = match &rules.answer {
        _ if rules.required && !rules.preamble => calls,
        _ if rules.required => format!("({calls} | {all} {behind_text})"),
        Some(answer) => format!("({calls} | {all} {answer})"),
        None => format!("({calls} | {all} {TEXT} | {all} {behind_text})"),
    };
    lark.finish(&format!("{mark} {answer}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::Functions;
    use super::super::tests::{check, check_text, read_both};

    #[test]
    fn every_part_has_its_recipient() {
        let two = [("f", "{\"a\": 1}"), ("g", "{}")];
        check("functionary_v32", "f\n{\"a\": 1}>>>g\n{}", "", &two);
        check("functionary_v32", ">>>f\n{\"a\": 1}\n>>>g\n{}", "", &two);
        check("functionary_v32", "all\nI look.\n>>>f\n{\"a\": 1}", "I look.", &two[..1]);
        check("functionary_v32", "all\nI {look}, >>> print(1)\n", "I {look}, >>> print(1)\n", &[]);
        check("functionary_v32", ">>>all\nYes\n{}", "Yes\n{}", &[]);
        check("functionary_v32", "all\n", "", &[]);
    }

    #[test]
    fn what_has_no_recipient_is_text() {
        for text in ["Yes, so\n{}", "f{}", "f\nno", ">>>f\nprint(1)", ">>> f\n{}", "f g\n{}"] {
            check_text("functionary_v32", text);
        }
        let functions = Functions::new([("f".to_owned(), Value::Null)]);
        let read = |text: &str| read_both("functionary_v32", &functions, text);
        assert_eq!(read("Yes\n{}"), ("Yes\n{}".to_owned(), Vec::new()));
        assert_eq!(read("f\n{}").1.len(), 1);
    }
}
