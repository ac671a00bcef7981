//! What a provider knows an operation by, derived from its identity.

use hmac::{Hmac, KeyInit, Mac, digest::Key};
use sha2::Sha256;
use uuid::Builder;

use crate::operation::identity::Identity;

/// The form in which the parts are hashed.
const FORMAT: u8 = 1;

/// A UUID of version 8 that only holders of the `secret` can tell for an identity.
///
/// The same identity has the same key in every copy of the ledger, so that a provider knows
/// a request again that the ledger has lost. The version is not in it: whichever version
/// serves a key, it is one operation.
pub(super) fn provider_key(secret: &[u8; 32], identity: &Identity) -> String {
    // HMAC fills a short key up with zeros, so this is the secret itself.
    let mut key = Key::<Hmac<Sha256>>::default();
    for (to, from) in key.iter_mut().zip(secret) {
        *to = *from;
    }
    let mut mac = Hmac::<Sha256>::new(&key);
    mac.update(&[FORMAT]);
    for part in [&*identity.scope, &*identity.tool, identity.key.as_str()] {
        // The length tells where a part ends, whatever is in it.
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part.as_bytes());
    }
    let digest = mac.finalize().into_bytes();
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = from;
    }
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::request::{key::IdempotencyKey, scope::Scope};

    fn key(account: &str, tool: &str, key: &str) -> String {
        let scope = Scope::builder().account(account).build().unwrap();
        let identity = Identity::new(&scope, &Arc::from(tool), IdempotencyKey::new(key).unwrap());
        provider_key(&[7; 32], &identity)
    }

    /// What was sent must be sent again by every later version.
    #[test]
    fn the_derivation_never_changes() {
        assert_eq!(
            key("ada", "pay", "k-1"),
            "8e47d3a2-c0f9-878c-ab1a-4b5f389e0901"
        );
    }

    #[test]
    fn every_part_counts_where_it_stands() {
        let keys = [
            key("ada", "pay", "k-1"),
            key("bob", "pay", "k-1"),
            key("ada", "paid", "k-1"),
            key("ada", "pay", "dk-1"),
            key("ada", "payd", "k-1"),
            key("ada", "pay", "K-1"),
        ];
        for (place, one) in keys.iter().enumerate() {
            assert!(!keys.iter().skip(place + 1).any(|other| other == one));
            let id: uuid::Uuid = one.parse().unwrap();
            assert_eq!(id.get_version_num(), 8);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        }
    }
}
