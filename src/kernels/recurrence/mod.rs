//! Operations that read a sequence token by token and keep a state of fixed size instead of what
//! they have read.
//!
//! States are f32 tensors `[slots, ..]`, a row for each sequence that runs, and are changed in
//! place. Every token is computed from the state that the token before it left, one after the
//! other, so that results depend neither on how a prompt is cut nor on what runs beside it.

mod cuda;
pub mod delta_rule;
pub mod fading_sum;
mod lanes;
mod runs;
pub mod selective_scan;
pub mod short_conv;
pub mod state_space;
