//! Texts that end an answer.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// A string or a list of strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopField(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for StopField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StopVisitor;
        impl<'de> Visitor<'de> for StopVisitor {
            type Value = Vec<String>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
                Ok(vec![value.to_owned()])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut strings = Vec::new();
                while let Some(string) = access.next_element()? {
                    strings.push(string);
                }
                Ok(strings)
            }
        }
        deserializer.deserialize_any(StopVisitor).map(Self)
    }
}
