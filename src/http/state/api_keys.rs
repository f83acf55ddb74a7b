//! The keys that requests must carry, compared in constant time.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// What the bearer of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Whatever leaves things as they are.
    Use,
    /// Everything.
    Admin,
}

/// The configured keys, as digests: comparing those takes the same time for any key.
#[derive(Debug)]
pub(crate) struct ApiKeys(Vec<([u8; 32], Scope)>);

impl ApiKeys {
    /// Keys of users and of administrators; one that is both is an administrator's.
    pub(crate) fn new(users: &[String], admins: &[String]) -> Self {
        let keys = |keys: &[String], scope| -> Vec<([u8; 32], Scope)> {
            keys.iter().map(|key| (Sha256::digest(key).into(), scope)).collect()
        };
        Self([keys(users, Scope::Use), keys(admins, Scope::Admin)].concat())
    }

    /// Whether no key is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What this key allows, if it is known.
    pub(crate) fn scope(&self, key: &[u8]) -> Option<Scope> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = |scope| {
            let own = self.0.iter().filter(|(_, own)| *own == scope);
            let known = own.fold(Choice::from(0), |known, (key, _)| known | key.ct_eq(&digest));
            bool::from(known)
        };
        let [user, admin] = [Scope::Use, Scope::Admin].map(known);
        if admin { Some(Scope::Admin) } else { user.then_some(Scope::Use) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_keys_open() {
        let [secret, other, both] = ["secret", "other", "both"].map(str::to_owned);
        let keys = ApiKeys::new(&[secret, both.clone()], &[other, both]);
        assert_eq!(keys.scope(b"secret"), Some(Scope::Use));
        for admin in ["other", "both"] {
            assert_eq!(keys.scope(admin.as_bytes()), Some(Scope::Admin));
        }
        for unknown in ["secre", "secret2", ""] {
            assert_eq!(keys.scope(unknown.as_bytes()), None);
        }
        assert_eq!(ApiKeys::new(&[], &[]).scope(b""), None);
    }
}
