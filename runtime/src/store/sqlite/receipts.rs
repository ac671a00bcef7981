//! Final receipts in memory, so that a retry soon after its call needs no look-up.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::Timestamp,
    operation::{identity::Identity, stored::Receipt},
};

/// How many receipts are kept: about 3 MB of them at most.
const PLACES: usize = 4_096;

/// The largest result that is kept, in bytes.
const LARGEST_RESULT: usize = 512;

/// A table of committed receipts. A later one takes an earlier one's place, so a miss
/// proves nothing. A hit is the receipt: it does not change before its retention ends.
pub(super) struct Receipts {
    hasher: RandomState,
    places: Box<[Mutex<Option<Box<Entry>>>]>,
}

struct Entry {
    identity: Identity,
    receipt: Receipt,
}

impl Receipts {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            places: (0..PLACES).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Keeps a receipt that is committed.
    pub(super) fn insert(&self, identity: &Identity, receipt: &Receipt) {
        if LARGEST_RESULT < receipt.result.get().len() {
            return;
        }
        let entry = Box::new(Entry {
            identity: identity.clone(),
            receipt: receipt.clone(),
        });
        if let Some(mut place) = self.place(identity) {
            *place = Some(entry);
        }
    }

    /// The receipt of `identity` within its retention. Past it only the ledger knows
    /// whether the key is refused or free.
    pub(super) fn get(&self, identity: &Identity, now: Timestamp) -> Option<Receipt> {
        let place = self.place(identity)?;
        let entry = place.as_ref()?;
        let fits = entry.identity == *identity && now < entry.receipt.expires_at;
        fits.then(|| entry.receipt.clone())
    }

    /// Forgets all: rows have been pruned, and the clock may go back.
    pub(super) fn clear(&self) {
        for place in &self.places {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn place(&self, identity: &Identity) -> Option<MutexGuard<'_, Option<Box<Entry>>>> {
        let place = self.hasher.hash_one(identity) % PLACES as u64;
        let place = self.places.get(usize::try_from(place).ok()?)?;
        Some(place.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}
