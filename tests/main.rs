//! All integration tests in one binary, so that they link once.

mod clients;
mod layering;
mod templates;
mod weights;
