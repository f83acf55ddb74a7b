//! How Cohere's API writes vectors.
//!
//! Whole numbers are steps of 1/127 between -1 and 1, which embeddings of length 1 stay within. Bits
//! say which numbers are above zero, eight to a byte, the first one highest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::error::ApiError;

/// A way to write a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    Float,
    Int8,
    Uint8,
    Binary,
    Ubinary,
    Base64,
}

impl Numbers {
    const ALL: [Self; 6] =
        [Self::Float, Self::Int8, Self::Uint8, Self::Binary, Self::Ubinary, Self::Base64];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Binary => "binary",
            Self::Ubinary => "ubinary",
            Self::Base64 => "base64",
        }
    }

    /// The ways that a request names; as floats, if it names none.
    pub(super) fn of(names: Option<&[String]>) -> Result<Vec<Self>, ApiError> {
        let names = names.unwrap_or_default();
        if names.is_empty() {
            return Ok(vec![Self::Float]);
        }
        let find = |name: &String| {
            Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                let message = format!("embedding_types must be of {known}, got {name:?}");
                ApiError::field("embedding_types", message)
            })
        };
        names.iter().map(find).collect()
    }

    pub(super) fn write(self, vector: &[f32]) -> Value {
        match self {
            Self::Float => json!(vector),
            Self::Int8 => vector.iter().map(|x| step(*x)).collect::<Vec<i32>>().into(),
            Self::Uint8 => vector.iter().map(|x| step(*x) + 128).collect::<Vec<i32>>().into(),
            Self::Ubinary => bits(vector).map(i32::from).collect::<Vec<_>>().into(),
            Self::Binary => {
                bits(vector).map(|byte| i32::from(byte) - 128).collect::<Vec<_>>().into()
            }
            Self::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            }
        }
    }
}

/// The nearest step, -127 to 127.
#[expect(clippy::cast_possible_truncation, reason = "it is within the bounds")]
fn step(x: f32) -> i32 {
    (x.clamp(-1.0, 1.0) * 127.0).round() as i32
}

fn bits(vector: &[f32]) -> impl Iterator<Item = u8> {
    vector.chunks(8).map(|chunk| {
        let bits = chunk.iter().enumerate();
        bits.fold(0, |byte, (at, x)| byte | (u8::from(*x > 0.0) << (7 - at)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_steps_and_bits() {
        let vector = [1.0, -1.0, 0.5, 0.0, 0.1, -0.2, 0.3, 0.4, 0.9];
        assert_eq!(Numbers::Int8.write(&vector[..4]), json!([127, -127, 64, 0]));
        assert_eq!(Numbers::Uint8.write(&vector[..2]), json!([255, 1]));
        assert_eq!(Numbers::Ubinary.write(&vector), json!([0b1010_1011, 0b1000_0000]));
        assert_eq!(Numbers::Binary.write(&vector), json!([0b1010_1011 - 128, 0]));
        assert_eq!(Numbers::Base64.write(&[1.5]), json!("AADAPw=="));
        assert!(Numbers::of(Some(&["int4".to_owned()])).is_err());
    }
}
