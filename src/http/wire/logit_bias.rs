//! What is added to the logits of single tokens.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// An object from token ids to biases, or llama.cpp's list of pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogitBiasField(pub(crate) Vec<(BiasedToken, Bias)>);

/// A token's id, as a number or in a text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum BiasedToken {
    Id(i64),
    Text(String),
}

impl BiasedToken {
    /// The id; -1, which no token has, for a text that is none.
    pub(crate) fn id(&self) -> i64 {
        match self {
            Self::Id(id) => *id,
            Self::Text(text) => text.parse().unwrap_or(-1),
        }
    }

    /// The text that should have been an id.
    pub(crate) fn not_an_id(&self) -> Option<&str> {
        match self {
            Self::Text(text) if text.parse::<i64>().is_err() => Some(text),
            _ => None,
        }
    }
}

/// A number, or false for a token that is never drawn.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Bias {
    Number(f64),
    Flag(bool),
}

impl<'de> Deserialize<'de> for LogitBiasField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BiasVisitor;
        impl<'de> Visitor<'de> for BiasVisitor {
            type Value = Vec<(BiasedToken, Bias)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of token ids and numbers, or a list of such pairs")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut biases = Vec::new();
                while let Some(token) = access.next_key()? {
                    biases.push((BiasedToken::Text(token), Bias::Number(access.next_value()?)));
                }
                Ok(biases)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                let mut biases = Vec::new();
                while let Some((token, bias)) = access.next_element::<(BiasedToken, Bias)>()? {
                    if bias == Bias::Flag(true) {
                        return Err(A::Error::custom("a bias is a number or false"));
                    }
                    biases.push((token, bias));
                }
                Ok(biases)
            }
        }
        deserializer.deserialize_any(BiasVisitor).map(Self)
    }
}
