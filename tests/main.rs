//! All integration tests in one binary, so that they link once.

mod clients;
mod http;
mod layering;
mod parity;
mod serving;
mod templates;
mod weights;
