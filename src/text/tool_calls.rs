//! Tool calls in what a model writes: one parser per family of models, found by name.
//!
//! A parser turns text into content and calls while it is being written. Whatever the pieces, the
//! events joined are the same, and text that is no call after all comes out as content: nothing is
//! lost. Which family a model belongs to is told by its chat template, which shows the model how
//! calls are written; a family also gives the grammar of its calls, for who wants to enforce them.
//! Most families are plain data for one of these readers: JSON calls (`json_calls`), a named JSON object
//! (`named_json`), tagged parameters (`tagged`), tags that nest (`nested_tags`), Python calls
//! (`python_calls`), Gemma's literals (`gemma_call`).
//!
//! # How to add a tool call format
//!
//! 1. `src/text/tool_calls/NAME.rs`: the family as a `FAMILY` (see `src/text/tool_calls/family.rs`): how
//!    its templates are told, its reader, its shape for the grammar, and where the format is known from.
//!    `src/text/tool_calls/hermes.rs` is a short one to begin from. Tests beside it call `check` and
//!    `check_text` of `src/text/tool_calls/tests.rs`.
//! 2. `src/text/tool_calls.rs`: the module, and a row in `FAMILIES`, before families whose marks say less.
//! 3. `src/text/tool_calls/tests/formats.rs`: an arm that writes calls in the format; the tests of all formats
//!    read them again, in pieces, and enforce the grammar.
//! 4. `SCONCE_UPDATE_README=1 cargo test --test main readme` writes `--tool-call-parser` of `src/guide/flags.md`.

mod apertus;
mod command_r;
mod command_r_plus;
mod deepseek;
mod deepseek_dsml;
mod event;
mod family;
mod functionary;
mod functionary_v32;
mod gemma;
mod gemma_call;
mod generic;
mod gigachat;
mod glm;
mod grammar;
mod granite;
mod harmony;
mod hermes;
mod hy_v3;
mod internlm;
mod json_call;
mod json_calls;
mod json_scanner;
mod kimi;
mod kimi_k3;
mod lark;
mod lfm2;
mod literal_grammar;
mod llama3_json;
mod longcat;
mod markup;
mod mcp;
mod minicpm;
mod minimax;
mod minimax_m1;
mod minimax_m3;
mod mistral;
mod muse;
mod named_json;
mod nested_tags;
mod olmo3;
mod parameter_types;
mod phi4;
mod python_calls;
mod python_literal;
mod pythonic;
mod qwen3_coder;
mod rules;
mod seed_oss;
mod shape;
mod solar;
mod solar_open2;
mod step3;
mod tagged;
mod tagged_grammar;
mod tool_list;

#[cfg(test)]
mod tests;

pub use event::{Functions, ToolCallParser, ToolEvent};
use family::Family;
pub use rules::{CallRules, FunctionRule, ReasoningRule, TextArgument};
use shape::Grammar;

/// In the order in which templates are asked: those whose marks say more come first.
const FAMILIES: [Family; 42] = [
    harmony::FAMILY,
    muse::FAMILY,
    kimi_k3::FAMILY,
    gemma::FAMILY,
    gemma::FAMILY_FUNCTION_GEMMA,
    minimax_m3::FAMILY,
    hy_v3::FAMILY,
    longcat::FAMILY,
    step3::FAMILY,
    solar_open2::FAMILY,
    functionary_v32::FAMILY,
    minicpm::FAMILY,
    gigachat::FAMILY_35,
    deepseek_dsml::FAMILY,
    deepseek::FAMILY_V31,
    deepseek::FAMILY_V3,
    mistral::FAMILY,
    kimi::FAMILY,
    solar::FAMILY,
    apertus::FAMILY,
    command_r::FAMILY,
    command_r_plus::FAMILY,
    minicpm::FAMILY_3,
    lfm2::FAMILY,
    gigachat::FAMILY,
    internlm::FAMILY,
    minimax::FAMILY,
    seed_oss::FAMILY,
    qwen3_coder::FAMILY,
    glm::FAMILY,
    mcp::FAMILY,
    functionary::FAMILY,
    olmo3::FAMILY,
    minimax_m1::FAMILY,
    tool_list::FAMILY,
    tool_list::FAMILY_NEMOTRON,
    phi4::FAMILY,
    granite::FAMILY,
    hermes::FAMILY,
    pythonic::FAMILY,
    llama3_json::FAMILY,
    generic::FAMILY,
];

/// The name of the family that a chat template belongs to.
pub fn detect(template_source: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|family| (family.detect)(template_source)).map(|family| family.name)
}

/// A new parser of the family called `name`, for a request with these functions.
pub fn parser(name: &str, functions: &Functions) -> Option<Box<dyn ToolCallParser>> {
    family(name).map(|family| (family.parser)(functions))
}

/// Special tokens that the parser has to see in the text, though others are hidden.
pub fn markers(name: &str) -> &'static [&'static str] {
    family(name).map_or(&[], |family| family.markers)
}

/// Whether the family's answers are to be parsed even without tools.
pub fn always(name: &str) -> bool {
    family(name).is_some_and(|family| family.always)
}

/// A grammar, in llguidance's Lark, of the answers that the rules allow in the family's format;
/// nothing where there is no function to call.
pub fn grammar(name: &str, rules: &CallRules) -> Option<String> {
    let family = family(name).filter(|_| !rules.functions.is_empty())?;
    Some(match family.grammar {
        Grammar::Shape(shape) => grammar::grammar(shape, family.markers, rules),
        Grammar::Own(write) => write(family.markers, rules),
    })
}

/// The names of all families.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}
