//! What a protocol calls the fields that the checks of all protocols speak of.

/// The names of fields in one protocol, for errors.
#[derive(Debug)]
pub(crate) struct FieldNames {
    /// What the prompt is made of.
    pub(crate) prompt: &'static str,
    pub(crate) tools: &'static str,
    pub(crate) tool_choice: &'static str,
    /// Most tokens of the answer.
    pub(crate) max_tokens: &'static str,
    /// Most tokens of reasoning.
    pub(crate) reasoning_budget: &'static str,
}
