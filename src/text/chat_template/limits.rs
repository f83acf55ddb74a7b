//! How much a template may do: what ends a template that loops forever or explodes.
//!
//! The engine counts instructions ([`FUEL`]) and recursion; this file counts text. All text that a
//! render prints or builds through our operations is charged to one allowance per render.

use std::cell::Cell;

use minijinja::{Error, ErrorKind};

/// Instructions that one render may execute.
pub(super) const FUEL: u64 = 20_000_000;
/// Bytes of text that one render may print or build.
const TEXT_ALLOWANCE: usize = 256 << 20;
/// Deepest nesting of a value that is printed.
const MAX_DEPTH: usize = 200;

thread_local! {
    /// What is left of the allowance of the render that runs on this thread.
    static LEFT: Cell<usize> = const { Cell::new(TEXT_ALLOWANCE) };
}

/// Begins a render with a full allowance.
pub(super) fn begin() {
    LEFT.set(TEXT_ALLOWANCE);
}

/// Charges `bytes` of text.
pub(super) fn charge(bytes: usize) -> Result<(), Error> {
    match LEFT.get().checked_sub(bytes) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => {
            Err(exceeded(format!("the template builds more than {TEXT_ALLOWANCE} bytes of text")))
        }
    }
}

/// Checks a text that is still being built, before it is charged.
pub(super) fn check_length(bytes: usize) -> Result<(), Error> {
    if bytes > LEFT.get() { charge(bytes) } else { Ok(()) }
}

/// Checks the nesting of a value that is being printed.
pub(super) fn check_depth(depth: usize) -> Result<(), Error> {
    if depth <= MAX_DEPTH {
        return Ok(());
    }
    Err(exceeded(format!("a value is nested more than {MAX_DEPTH} levels deep")))
}

fn exceeded(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
