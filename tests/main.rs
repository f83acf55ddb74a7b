//! All integration tests in one binary, so that they link once.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "tests stop at the first surprise, and their numbers are small"
)]

mod circles;
mod clients;
mod cuda;
mod embeddings;
mod fuzz;
mod http;
mod layering;
mod lora_folder;
mod parity;
mod recipes;
mod serving;
mod templates;
mod weights;
