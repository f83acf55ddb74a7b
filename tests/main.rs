//! All integration tests in one binary, so that they link once.

mod clients;
mod layering;
mod parity;
mod templates;
mod weights;
