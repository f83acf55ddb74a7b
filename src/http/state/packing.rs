//! What is stored as bytes: JSON, compressed.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::error::ApiError;

/// Most bytes of JSON of one object.
const MOST: usize = 1 << 30;

/// Anything with string keys, as bytes.
pub(crate) fn pack(value: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("what is stored has string keys");
    lz4_flex::compress_prepend_size(&json)
}

/// What [`pack`] was given.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let read = || {
        let (length, block) = lz4_flex::block::uncompressed_size(bytes).ok()?;
        let json = lz4_flex::decompress(block, length.min(MOST)).ok()?;
        serde_json::from_slice(&json).ok()
    };
    read().ok_or_else(|| ApiError::Internal("the stored object can't be read".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let value = serde_json::json!({"a": [1, 0.1, "é"], "b": null});
        assert_eq!(unpack::<serde_json::Value>(&pack(&value)).unwrap(), value);
        for broken in [&b""[..], b"abc", b"\xff\xff\xff\xff\x00", &pack(&value)[..8]] {
            assert!(unpack::<serde_json::Value>(broken).is_err());
        }
    }
}
