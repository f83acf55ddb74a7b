//! How vectors are written: as numbers, as base64 of their bytes, or as bytes alone, in the shape that
//! vLLM gives them.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use serde_json::json;
use uuid::Uuid;

use crate::http::error::ApiError;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::embeddings::{EmbeddingEntry, EmbeddingList, EmbeddingUsage, Vector};

/// Where an answer of bytes says which of them are whose.
const METADATA: HeaderName = HeaderName::from_static("metadata");

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    form: Form,
    numbers: Numbers,
    endianness: Endianness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A list in JSON.
    Float,
    Base64,
    /// The answer is the bytes of all vectors, with a header that describes them or without.
    Bytes {
        described: bool,
    },
}

/// The type of each number where vectors are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    F32,
    F16,
    Bf16,
    E4m3,
    E5m2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endianness {
    Little,
    Big,
}

impl Encoding {
    /// As the fields of these names say.
    pub(crate) fn new(
        encoding_format: Option<&str>,
        embed_dtype: Option<&str>,
        endianness: Option<&str>,
    ) -> Result<Self, ApiError> {
        let forms = [
            ("float", Form::Float),
            ("base64", Form::Base64),
            ("bytes", Form::Bytes { described: true }),
            ("bytes_only", Form::Bytes { described: false }),
        ];
        let numbers = [
            ("float32", Numbers::F32),
            ("float16", Numbers::F16),
            ("bfloat16", Numbers::Bf16),
            ("fp8_e4m3", Numbers::E4m3),
            ("fp8_e5m2", Numbers::E5m2),
        ];
        let native = if cfg!(target_endian = "big") { Endianness::Big } else { Endianness::Little };
        let orders = [("little", Endianness::Little), ("big", Endianness::Big), ("native", native)];
        Ok(Self {
            form: named("encoding_format", encoding_format, &forms)?,
            numbers: named("embed_dtype", embed_dtype, &numbers)?,
            endianness: named("endianness", endianness, &orders)?,
        })
    }

    /// Whether answers are bytes alone, not JSON.
    pub(crate) fn is_bytes(self) -> bool {
        matches!(self.form, Form::Bytes { .. })
    }

    /// The bytes of a vector in base64, if that is how vectors are written.
    pub(crate) fn base64(self, vector: &[f32]) -> Option<String> {
        (self.form == Form::Base64).then(|| STANDARD.encode(self.bytes(vector)))
    }

    /// The answer.
    pub(crate) fn answer(
        self,
        vectors: Vec<Vec<f32>>,
        model: &str,
        usage: EmbeddingUsage,
    ) -> Response {
        let Form::Bytes { described } = self.form else {
            let entry = |(index, vector): (usize, Vec<f32>)| EmbeddingEntry {
                object: "embedding",
                index,
                embedding: match self.base64(&vector) {
                    Some(text) => Vector::Base64(text),
                    None => Vector::Float(vector),
                },
            };
            let data = vectors.into_iter().enumerate().map(entry).collect();
            let list = EmbeddingList { object: "list", data, model, usage };
            return axum::Json(list).into_response();
        };
        let (mut all, mut data) = (Vec::new(), Vec::new());
        for (index, vector) in vectors.iter().enumerate() {
            let start = all.len();
            all.extend(self.bytes(vector));
            data.push(json!({
                "index": index,
                "embed_dtype": self.numbers.name(),
                "endianness": self.endianness.name(),
                "start": start,
                "end": all.len(),
                "shape": [vector.len()],
            }));
        }
        let mut response = Body::from(all).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if described {
            let id = format!("embd-{}", Uuid::new_v4().simple());
            let metadata = json!({"id": id, "created": unix_seconds(), "model": model,
                "data": data, "usage": usage});
            let metadata = HeaderValue::try_from(metadata.to_string());
            headers.extend(metadata.ok().map(|value| (METADATA, value)));
        }
        response
    }

    fn bytes(self, vector: &[f32]) -> Vec<u8> {
        let bytes = |number: &f32| match self.numbers {
            Numbers::F32 => number.to_le_bytes().to_vec(),
            Numbers::F16 => f16::from_f32(*number).to_le_bytes().to_vec(),
            Numbers::Bf16 => bf16::from_f32(*number).to_le_bytes().to_vec(),
            Numbers::E4m3 => vec![F8E4M3::from_f32(*number).to_bits()],
            Numbers::E5m2 => vec![F8E5M2::from_f32(*number).to_bits()],
        };
        let ordered = |mut bytes: Vec<u8>| {
            if self.endianness == Endianness::Big {
                bytes.reverse();
            }
            bytes
        };
        vector.iter().map(bytes).flat_map(ordered).collect()
    }
}

impl Numbers {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::E4m3 => "fp8_e4m3",
            Self::E5m2 => "fp8_e5m2",
        }
    }
}

impl Endianness {
    fn name(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }
}

/// The choice that a field names; the first if it isn't given.
fn named<T: Copy>(
    param: &'static str,
    field: Option<&str>,
    choices: &[(&str, T)],
) -> Result<T, ApiError> {
    let Some(given) = field else { return Ok(choices[0].1) };
    let found = choices.iter().find(|(name, _)| *name == given);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let message = format!("{param} must be one of {}, got {given:?}", names.join(", "));
        ApiError::field(param, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(format: &str, numbers: &str, endianness: &str) -> Result<Encoding, ApiError> {
        Encoding::new(Some(format), Some(numbers), Some(endianness))
    }

    #[test]
    fn numbers_become_bytes_of_the_type_and_order() {
        // 1.5 is exact in all of them.
        for (numbers, little) in [
            ("float32", &[0, 0, 0xc0, 0x3f][..]),
            ("float16", &[0, 0x3e]),
            ("bfloat16", &[0xc0, 0x3f]),
            ("fp8_e4m3", &[0x3c]),
            ("fp8_e5m2", &[0x3e]),
        ] {
            assert_eq!(encoding("base64", numbers, "little").unwrap().bytes(&[1.5]), little);
            let big: Vec<u8> = little.iter().rev().copied().collect();
            assert_eq!(encoding("bytes", numbers, "big").unwrap().bytes(&[1.5]), big);
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(encoding("hex", "float32", "little").is_err());
        assert!(encoding("bytes", "float64", "little").is_err());
        assert!(encoding("bytes", "float32", "middle").is_err());
    }
}
