//! What a case is, and what can come of it.

use futures::future::BoxFuture;

use super::fault::Fault;
use super::probe::Probe;

/// Cases about one protocol or one part of it.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// The route without which none of them can be judged.
    pub(super) path: Option<&'static str>,
    pub(super) cases: &'static [Case],
}

/// One behaviour.
pub(super) struct Case {
    /// What the server does if it is right.
    pub(super) name: &'static str,
    pub(super) check: Check,
}

/// Asks the server and judges what it says.
pub(super) type Check = for<'a> fn(&'a Probe) -> BoxFuture<'a, Result<(), Fault>>;

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed(String),
    Absent(String),
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Wrong(why) => Self::Failed(why),
            Fault::Absent(why) => Self::Absent(why),
        }
    }
}

/// A row of a table of cases: `case!("name", |probe| { .. })`.
macro_rules! case {
    ($name:literal, |$probe:ident| $body:block) => {
        $crate::cli::selftest::case::Case {
            name: $name,
            check: |$probe| futures::FutureExt::boxed(async move {
                $body
                Ok::<(), $crate::cli::selftest::fault::Fault>(())
            }),
        }
    };
}
pub(super) use case;
