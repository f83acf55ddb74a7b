//! Text that a client keeps without showing it, reasoning or the summary of a conversation: compressed in
//! the opaque `signature` of Anthropic's blocks and the `encrypted_content` of OpenAI's items, which clients
//! send back as they came. It is no secret.
//!
//! `sconce.1.` and the base64 of an LZ4 block with its length before it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const VERSION: &str = "sconce.1.";
/// Longest text that is read back.
const MAX_BYTES: usize = 4 << 20;

/// The opaque text that carries `text`.
pub(crate) fn carry(text: &str) -> String {
    let compressed = lz4_flex::compress_prepend_size(text.as_bytes());
    format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(compressed))
}

/// The text that such a one carries; `None` if it is none of ours.
pub(crate) fn carried(opaque: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(opaque.strip_prefix(VERSION)?).ok()?;
    let (length, block) = lz4_flex::block::uncompressed_size(&bytes).ok()?;
    let text = lz4_flex::decompress(block, length.min(MAX_BYTES)).ok()?;
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_comes_back() {
        for reasoning in ["", "é, and so on", &"again and again ".repeat(1000)] {
            assert_eq!(carried(&carry(reasoning)).as_deref(), Some(reasoning));
        }
        assert!(carry(&"again ".repeat(1000)).len() < 200);
    }

    #[test]
    fn other_signatures_carry_nothing() {
        let ours = carry("some reasoning that was cut");
        let huge = [&u32::MAX.to_le_bytes()[..], &[0; 8]].concat();
        let huge = format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(huge));
        for other in ["", "ErUBCkYIBRgCIkDd", &ours[..ours.len() - 9], "sconce.1.!", &huge] {
            assert_eq!(carried(other), None, "{other}");
        }
    }
}
