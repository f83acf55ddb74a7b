//! The format of a file: a header that says what the payload is, and the payload.
//!
//! ```text
//! offset  bytes
//!      0  8   "SCONCEKV"
//!      8  4   version, little-endian as all numbers
//!     12  4   CRC-32 (IEEE) of all that follows
//!     16  16  namespace
//!     32  16  hash
//!     48  8   1 for a block, 2 for a snapshot
//!     56  8   bytes of the payload
//!     64      payload
//! ```

use crc32fast::Hasher;

use super::folder::FileKey;
use crate::kv_cache::content::Content;

/// Bytes before the payload.
pub(super) const HEADER: usize = 64;
const MAGIC: &[u8; 8] = b"SCONCEKV";
const VERSION: u32 = 1;
/// Where the part begins that the checksum is of.
const CHECKED: usize = 16;

/// Why a file is not what its name says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it has {found} bytes, fewer than the {HEADER} of a header")]
    Short { found: usize },
    #[error("it does not begin as files of the KV cache do")]
    Foreign,
    #[error("its format is version {found}, this program writes version {VERSION}")]
    Version { found: u32 },
    #[error("its payload should have {expected} bytes and has {found}")]
    Size { expected: u64, found: usize },
    #[error("its checksum is wrong")]
    Checksum,
    #[error("its content is that of another name")]
    Name,
}

/// A file's bytes, of which the payload is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload(Vec<u8>);

impl Payload {
    /// The block or snapshot as the runner wrote it.
    pub fn bytes(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}

/// The header of a file with this payload.
pub(super) fn header(key: &FileKey, payload: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..32].copy_from_slice(&key.namespace.bytes());
    header[32..48].copy_from_slice(&key.content.hash().bytes());
    header[48] = match key.content {
        Content::Block(_) => 1,
        Content::Snapshot(_) => 2,
    };
    header[56..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let checksum = checksum(&header[CHECKED..], payload);
    header[12..CHECKED].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The payload of a file that should be `key`'s.
pub(super) fn check(key: &FileKey, bytes: Vec<u8>) -> Result<Payload, Fault> {
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(Fault::Short { found: bytes.len() });
    };
    let [number, checked] = [8, 12].map(|at| u32_at(head, at));
    if &head[..8] != MAGIC {
        return Err(Fault::Foreign);
    }
    if number != VERSION {
        return Err(Fault::Version { found: number });
    }
    let mut length = [0; 8];
    length.copy_from_slice(&head[56..]);
    let expected = u64::from_le_bytes(length);
    if expected != payload.len() as u64 {
        return Err(Fault::Size { expected, found: payload.len() });
    }
    if checked != checksum(&head[CHECKED..], payload) {
        return Err(Fault::Checksum);
    }
    if head[CHECKED..] != header(key, payload)[CHECKED..] {
        return Err(Fault::Name);
    }
    Ok(Payload(bytes))
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

fn u32_at(head: &[u8; HEADER], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::namespace::Namespace;
    use super::*;
    use crate::kv_cache::block_hash::BlockHash;

    fn key(content: fn(BlockHash) -> Content) -> FileKey {
        let namespace = Namespace::from_bytes([7; 16]);
        FileKey { namespace, content: content(BlockHash::from_bytes([3; 16])) }
    }

    fn written(key: &FileKey, payload: &[u8]) -> Vec<u8> {
        [&header(key, payload)[..], payload].concat()
    }

    #[test]
    fn what_was_written_is_read() {
        for payload in [&b""[..], b"some numbers"] {
            let read = check(&key(Content::Block), written(&key(Content::Block), payload));
            assert_eq!(read.unwrap().bytes(), payload);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_torn_end_is_noticed() {
        let key = key(Content::Snapshot);
        let whole = written(&key, &[5; 40]);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&key, flipped).is_err(), "bit {bit}");
        }
        for end in 0..whole.len() {
            assert!(check(&key, whole[..end].to_vec()).is_err(), "cut at {end}");
        }
        assert!(check(&key, [&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn another_name_is_refused() {
        let own = key(Content::Block);
        let others = [
            key(Content::Snapshot),
            FileKey { namespace: Namespace::from_bytes([8; 16]), ..own },
            FileKey { content: Content::Block(BlockHash::from_bytes([4; 16])), ..own },
        ];
        for other in others {
            assert_eq!(check(&own, written(&other, b"x")), Err(Fault::Name));
        }
        assert_eq!(check(&own, vec![0; 200]), Err(Fault::Foreign));
        let mut later = written(&own, b"x");
        later[8] = 2;
        assert_eq!(check(&own, later), Err(Fault::Version { found: 2 }));
    }
}
