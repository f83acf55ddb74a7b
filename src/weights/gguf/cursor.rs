//! Reading little-endian numbers and strings from bytes that nobody vouches for.
//!
//! No length is believed before the bytes are there, and nothing is allocated from a length.

use std::borrow::Cow;

/// A position in a file's bytes.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.position) as u64
    }

    /// The bytes from `start`, an earlier position, to here.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.position]
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        if count > self.remaining() {
            return Err(format!(
                "{count} bytes are needed at byte {}, {} remain: truncated or corrupt",
                self.position,
                self.remaining()
            ));
        }
        let start = self.position;
        self.position += usize::try_from(count).expect("at most the length of a slice");
        Ok(self.since(start))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.take(N as u64)?;
        Ok(bytes.try_into().expect("`take` gives as many bytes as asked for"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string with its leading length. Bytes that are not UTF-8 are replaced, since vocabularies
    /// in the wild hold such tokens.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, String> {
        let length = self.u64()?;
        self.take(length).map(String::from_utf8_lossy)
    }
}
