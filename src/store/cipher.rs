//! Bodies at rest: as they are, or encrypted with XChaCha20-Poly1305 under the store's key.
//!
//! A stored body begins with a byte that says which; an encrypted one goes on with its nonce. Its
//! place in the store is authenticated with it: one that was moved elsewhere doesn't open.

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::error::StoreError;

const PLAIN: u8 = 0;
const SEALED: u8 = 1;
const NONCE_BYTES: usize = 24;

/// How bodies are written, and what can be read.
#[derive(Clone, Default)]
pub(super) struct Cipher(Option<XChaCha20Poly1305>);

impl fmt::Debug for Cipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "Cipher(key)" } else { "Cipher(none)" })
    }
}

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(Some(XChaCha20Poly1305::new(key.into())))
    }

    /// A body as it is stored at `place`.
    pub(super) fn seal(&self, place: &str, body: &[u8]) -> Result<Vec<u8>, StoreError> {
        let Some(cipher) = &self.0 else { return Ok([&[PLAIN], body].concat()) };
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = Payload { msg: body, aad: place.as_bytes() };
        let sealed = cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.map_err(|_| StoreError::Locked("a body is too large".to_owned()))?;
        Ok([&[SEALED], nonce.as_slice(), &sealed].concat())
    }

    /// What was stored at `place`.
    pub(super) fn open(&self, place: &str, stored: &[u8]) -> Result<Vec<u8>, StoreError> {
        match stored.split_first() {
            Some((&PLAIN, body)) => Ok(body.to_vec()),
            Some((&SEALED, rest)) => {
                let locked = |reason: &str| StoreError::Locked(reason.to_owned());
                let cipher = self.0.as_ref().ok_or_else(|| {
                    locked("what is stored is encrypted; name its key with --store-key-file")
                })?;
                let (nonce, sealed) =
                    rest.split_at_checked(NONCE_BYTES).ok_or_else(|| locked("it was cut"))?;
                let payload = Payload { msg: sealed, aad: place.as_bytes() };
                let opened = cipher.decrypt(XNonce::from_slice(nonce), payload);
                opened.map_err(|_| locked("another key encrypted it, or it was changed"))
            }
            _ => {
                Err(StoreError::Locked("it is of a kind that this program doesn't know".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_and_the_place_open_a_body() {
        let (key, other, none) = (Cipher::new(&[1; 32]), Cipher::new(&[2; 32]), Cipher::default());
        let sealed = key.seal("a", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_ne!(sealed, key.seal("a", b"secret").unwrap());
        assert_eq!(key.open("a", &sealed).unwrap(), b"secret");
        let mut changed = sealed.clone();
        changed[30] ^= 1;
        for (cipher, place, stored) in [
            (&other, "a", &sealed[..]),
            (&none, "a", &sealed[..]),
            (&key, "b", &sealed[..]),
            (&key, "a", &changed[..]),
            (&key, "a", &sealed[..20]),
            (&key, "a", &[][..]),
        ] {
            assert!(cipher.open(place, stored).is_err());
        }
        let plain = none.seal("a", b"open").unwrap();
        assert_eq!(key.open("a", &plain).unwrap(), b"open");
    }
}
