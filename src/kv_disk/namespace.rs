//! What the bits of a block depend on besides tokens: the name of a subfolder.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Stands for a model, the way in which it is computed and the form of its cache: what one process
/// stored under it another one can use, to the bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace([u8; 16]);

/// What a namespace stands for, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The model's name.
    pub model: String,
    /// The element type of the KV cache.
    pub kv_cache_dtype: String,
    /// What computes: a level of CPU kernels, or a device.
    pub computed_on: String,
    /// The program's version.
    pub version: String,
}

impl Namespace {
    /// The namespace of all these facts.
    pub fn of(facts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for fact in facts {
            hasher.update((fact.len() as u64).to_le_bytes());
            hasher.update(fact);
        }
        let digest = hasher.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }

    /// The namespace with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The namespace as bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0))
    }
}

/// The digits of some bytes.
pub(super) fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// The bytes that these digits stand for.
pub(super) fn from_hex(digits: &str) -> Option<[u8; 16]> {
    let valid =
        digits.len() == 32 && digits.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| valid)?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        let bytes = *b"\x00\x01abcdefghijk\xfd\xfe\xff";
        assert_eq!(from_hex(&hex(bytes)), Some(bytes));
        for wrong in
            ["", "00", "+0000000000000000000000000000000", &"G".repeat(32), &"A".repeat(32)]
        {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn facts_are_told_apart() {
        assert_ne!(Namespace::of(&[b"ab", b"c"]), Namespace::of(&[b"a", b"bc"]));
        assert_eq!(Namespace::of(&[b"a"]), Namespace::of(&[b"a"]));
    }
}
