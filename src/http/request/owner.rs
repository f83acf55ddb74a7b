//! Whose things a request may see: those of its key.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest, Sha256};

use crate::http::state::AppState;

/// The owner of what a request stores: a digest of its key, so that the store knows no key. Where
/// no key is needed, all requests are the same owner's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) String);

impl Owner {
    /// The bearer of a key.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        let digest = Sha256::new_with_prefix(b"sconce owner\0").chain_update(key).finalize();
        let first = digest.first_chunk::<16>().expect("a digest has 32 bytes");
        Self(format!("{:032x}", u128::from_be_bytes(*first)))
    }
}

impl FromRequestParts<AppState> for Owner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_owners_that_do_not_tell_them() {
        let [one, other] = [b"one", b"two"].map(|key| Owner::of_key(key));
        assert!(one != other && one == Owner::of_key(b"one"));
        assert!(one.0.len() == 32 && !one.0.contains("one"));
    }
}
