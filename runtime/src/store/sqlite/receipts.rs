//! Final receipts in memory, so that a retry soon after its call needs no look-up.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::Timestamp,
    operation::{identity::Identity, stored::Receipt},
};

/// How many receipts can have the same hash, and how many such groups there are: about 3 MB
/// of receipts at most.
const WAYS: usize = 4;
const GROUPS: usize = 1_024;

/// The largest result that is kept, in bytes.
const LARGEST_RESULT: usize = 512;

/// A table of committed receipts. Later ones push out earlier ones of their group, so a miss
/// proves nothing. A hit is the receipt, as long as the generation holds that it was read or
/// committed in: it does not change before its retention ends.
pub(super) struct Receipts {
    groups: Box<[Mutex<Group>]>,
}

/// The latest first.
type Group = [Option<Box<Entry>>; WAYS];

struct Entry {
    identity: Identity,
    receipt: Receipt,
    /// See [`Watch`](crate::store::sqlite::watch::Watch).
    generation: u64,
}

impl Receipts {
    pub(super) fn new() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Keeps a receipt that was read or committed in `generation`. It comes in its caller's
    /// time, when that may be over.
    pub(super) fn insert(&self, identity: &Identity, receipt: &Receipt, generation: u64) {
        if LARGEST_RESULT < receipt.result.get().len() {
            return;
        }
        let entry = Box::new(Entry {
            identity: identity.clone(),
            receipt: receipt.clone(),
            generation,
        });
        let Some(mut group) = self.group(identity) else {
            return;
        };
        let known = group.iter().position(|kept| match kept {
            Some(kept) => kept.identity == *identity,
            None => true,
        });
        let pushed_out = known.unwrap_or(WAYS - 1);
        group[..=pushed_out].rotate_right(1);
        group[0] = Some(entry);
    }

    /// The receipt of `identity` within its retention, if `generation` is still its own. Past
    /// it only the ledger knows whether the key is refused or free.
    pub(super) fn get(
        &self,
        identity: &Identity,
        now: Timestamp,
        generation: u64,
    ) -> Option<Receipt> {
        let group = self.group(identity)?;
        let entry = group
            .iter()
            .flatten()
            .find(|kept| kept.generation == generation && kept.identity == *identity)?;
        (now < entry.receipt.expires_at).then(|| entry.receipt.clone())
    }

    fn group(&self, identity: &Identity) -> Option<MutexGuard<'_, Group>> {
        let group = identity.hash() % GROUPS as u64;
        let group = self.groups.get(usize::try_from(group).ok()?)?;
        Some(group.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::value::RawValue;

    use super::*;
    use crate::{
        operation::id::OperationId,
        request::{arguments::fingerprint::Fingerprint, key::IdempotencyKey, scope::Scope},
    };

    const NOON: Timestamp = Timestamp(43_200_000);

    fn identity(key: usize) -> Identity {
        let key = IdempotencyKey::new(format!("key-{key}")).unwrap();
        let scope = Scope::builder().account("acme").build().unwrap();
        Identity::new(&scope, &Arc::from("tool"), key)
    }

    fn receipt() -> Receipt {
        Receipt {
            operation_id: OperationId::generate(),
            version: 1,
            fingerprint: Fingerprint::of_bytes(b"{}"),
            result: RawValue::from_string("1".to_owned()).unwrap(),
            expires_at: NOON,
        }
    }

    #[test]
    fn a_group_keeps_its_latest_receipts_each_once() {
        let receipts = Receipts::new();
        let first = identity(0);
        let group = |identity: &Identity| identity.hash() % GROUPS as u64;
        let together: Vec<_> = (0..)
            .map(identity)
            .filter(|other| group(other) == group(&first))
            .take(WAYS + 1)
            .collect();
        let known = |identity| receipts.get(identity, Timestamp(0), 1).is_some();
        for identity in &together[..WAYS] {
            receipts.insert(identity, &receipt(), 1);
        }
        assert!(together[..WAYS].iter().all(known));
        receipts.insert(&together[0], &receipt(), 1); // Now the latest.
        receipts.insert(&together[WAYS], &receipt(), 1);
        assert!(!known(&together[1]));
        assert!(known(&together[0]) && together[2..].iter().all(known));
        assert!(
            receipts.get(&first, NOON, 1).is_none(),
            "past its retention"
        );
        receipts.insert(&first, &receipt(), 1);
        for other in [0, 2] {
            assert!(
                receipts.get(&first, Timestamp(0), other).is_none(),
                "learnt in another generation"
            );
        }
    }
}
