//! What architectures share.

pub(super) mod base;
pub(super) mod experts;
pub(super) mod state_space;
