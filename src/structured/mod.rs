//! Constrained decoding: a description of the text that is wanted becomes, at every step, the set
//! of tokens that may come next.
//!
//! In reading order: a [`GrammarSpec`](spec::GrammarSpec) is what a request asks for; a
//! [`Vocabulary`](vocabulary::Vocabulary) is what a model can say; a
//! [`GrammarCompiler`](compiler::GrammarCompiler) makes a
//! [`Grammar`](grammar::Grammar) of the two, within a time
//! and a size, and remembers it; a [`Cursor`](cursor::Cursor) walks one sequence through it. The
//! automata are llguidance's. What is ours is to refuse what it would silently ignore
//! (`schema`), to bound what it would grow without end, and the notations it doesn't read
//! (`gbnf`, `structural_tag`). Knows neither requests nor models, and reads no JSON text.

pub mod compiler;
pub mod cursor;
pub mod error;
mod gbnf;
pub mod grammar;
mod json_string;
mod lark;
mod notation;
mod schema;
pub mod spec;
mod structural_tag;
pub mod vocabulary;

#[cfg(test)]
mod tests;
