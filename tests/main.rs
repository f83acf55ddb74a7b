//! All integration tests in one binary, so that they link once.

mod clients;
mod http;
mod layering;
mod parity;
mod templates;
mod weights;
