//! All integration tests in one binary, so that they link once.

mod layering;
mod parity;
mod weights;
