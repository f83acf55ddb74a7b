//! Notations of grammars that are one text (regular expressions, choices, Lark, GBNF), as Lark.

use super::error::GrammarError;
use super::spec::GrammarSpec;
use super::vocabulary::Vocabulary;
use super::{gbnf, lark};

/// Rules and groups of a grammar; the parser recurses over them, so the stack of its thread bounds them.
const MAX_GROUPS: usize = 10_000;

/// The Lark grammar of a specification that is one text.
pub(super) fn to_lark(spec: &GrammarSpec, vocabulary: &Vocabulary) -> Result<String, GrammarError> {
    let text = match spec {
        GrammarSpec::Regex(pattern) => format!("start: {}\n", lark::regex(pattern)),
        GrammarSpec::Choice(choices) if choices.is_empty() => {
            return Err(GrammarError::syntax("choice", "there is nothing to choose from"));
        }
        // One terminal: as rules, a choice that begins another one would hide it.
        GrammarSpec::Choice(choices) => {
            let spelled: Vec<String> = choices
                .iter()
                .filter(|text| !text.is_empty())
                .map(|text| lark::quote(text))
                .collect();
            match (spelled.is_empty(), spelled.len() < choices.len()) {
                (true, _) => "start: \"\"\n".to_owned(),
                (_, empty) => format!(
                    "start: CHOICE{}\nCHOICE: {}\n",
                    if empty { "?" } else { "" },
                    spelled.join(" | ")
                ),
            }
        }
        GrammarSpec::Lark(text) => lark::prepare_schemas(text)?,
        GrammarSpec::Gbnf(text) => gbnf::to_lark(text, vocabulary)?,
        GrammarSpec::JsonObject | GrammarSpec::JsonSchema(_) | GrammarSpec::StructuralTag(_) => {
            unreachable!("schemas and structural tags are compiled as such")
        }
    };
    if !matches!(spec, GrammarSpec::Choice(_) | GrammarSpec::Regex(_)) {
        check_size(&text)?;
    }
    Ok(text)
}

/// Refuses a Lark grammar of too many rules and groups.
pub(super) fn check_size(lark: &str) -> Result<(), GrammarError> {
    let actual = lark.bytes().filter(|b| b"([:".contains(b)).count();
    if actual > MAX_GROUPS {
        let what = "rules and groups of the grammar";
        return Err(GrammarError::TooLarge { what, actual, limit: MAX_GROUPS });
    }
    Ok(())
}
