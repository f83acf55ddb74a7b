//! What is done with every request before its handler does anything: its body is read into wire
//! structs, its model is found, and the fields that no struct has are judged.

pub(crate) mod arrival;
pub(crate) mod blocking;
pub(crate) mod body;
mod deserialize;
pub(crate) mod extract;
pub(crate) mod fields;
pub(crate) mod form;
pub(crate) mod id;
pub(crate) mod owner;
pub(crate) mod path_id;
pub(crate) mod rules;
