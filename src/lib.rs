//! sconce
pub mod cli;
pub mod demo;
