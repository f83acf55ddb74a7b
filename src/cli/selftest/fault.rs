//! Why a case did not pass.

/// Why a case did not pass.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server is wrong.
    Wrong(String),
    /// The server says that it hasn't this.
    Absent(String),
}

impl Fault {
    pub(super) fn wrong(what: impl Into<String>) -> Self {
        Self::Wrong(what.into())
    }
}

/// Ends a case with a fault unless something is so.
macro_rules! demand {
    ($so:expr, $($why:tt)+) => {
        if !$so {
            return Err($crate::cli::selftest::fault::Fault::wrong(format!($($why)+)));
        }
    };
}
pub(super) use demand;
