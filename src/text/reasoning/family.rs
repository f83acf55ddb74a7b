//! The row that every family of models has in the table of formats. Refuses to know a family.

use super::tags::Tags;

/// A family of models that sets reasoning apart in the same way.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// Whether a chat template is one of the family's.
    pub(super) detect: fn(&str) -> bool,
    pub(super) tags: Tags,
    /// Special tokens among the tags.
    pub(super) markers: &'static [&'static str],
}
