//! The integration tests, one binary.

mod weights;
