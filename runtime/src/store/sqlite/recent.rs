//! Which identities are probably recorded, from memory alone.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::operation::identity::Identity;

/// How many identities are remembered: 64 KiB.
const PLACES: usize = 8_192;

/// A table of hashes, filled after a commit. A later identity takes an earlier one's
/// place, so a miss proves nothing; nor does a hit, since hashes collide.
pub(super) struct Recent {
    places: Box<[AtomicU64]>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn insert(&self, identity: &Identity) {
        let (hash, place) = self.locate(identity);
        if let Some(place) = place {
            place.store(hash, Ordering::Relaxed);
        }
    }

    pub(super) fn may_contain(&self, identity: &Identity) -> bool {
        let (hash, place) = self.locate(identity);
        place.is_some_and(|place| place.load(Ordering::Relaxed) == hash)
    }

    fn locate(&self, identity: &Identity) -> (u64, Option<&AtomicU64>) {
        let hash = identity.hash().max(1);
        let place = usize::try_from(hash % PLACES as u64).ok();
        (hash, place.and_then(|place| self.places.get(place)))
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}
