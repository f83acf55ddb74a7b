//! The row that every family of models has in the table of formats. Refuses to know a family.

use super::event::{Functions, ToolCallParser};
use super::shape::Grammar;

/// A family of models that writes calls in the same way.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// Whether a chat template is one of the family's.
    pub(super) detect: fn(&str) -> bool,
    pub(super) parser: fn(&Functions) -> Box<dyn ToolCallParser>,
    /// What the parser has to see even where special tokens are hidden.
    pub(super) markers: &'static [&'static str],
    /// Whether answers need the parser without tools as well.
    pub(super) always: bool,
    pub(super) grammar: Grammar,
}
