//! What happens around handlers: ids and metrics, drain, keys, the address asked, and what a model can't do.

pub(crate) mod auth;
pub(crate) mod drain;
pub(crate) mod generation_guard;
pub(crate) mod observe;
pub(crate) mod ports;
